"""Tests for `raincheck worker` in a process: it runs a server's tasks, and stops gracefully."""

import asyncio
import json
import subprocess
import time
from pathlib import Path

import pytest

from raincheck.cli.loader import load_tasks
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError
from tests.support.cli.terminal import PATIENCE, run
from tests.support.cli.worker_processes import SECRET, start_process, with_password, write_reports

pytestmark = [pytest.mark.usefixtures("folder")]


def wait_for(path: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def tasks_in(store: str) -> list[dict[str, object]]:
    return json.loads(run("tasks", "ls", "--store", store, "--json").stdout)


def test_a_worker_runs_a_servers_tasks_and_hands_them_back_when_stopped(store_url: str) -> None:
    write_reports()
    store = with_password(store_url)
    with (
        start_process("worker", "reports.py", "--store", store, "--concurrency", "3") as worker,
        start_process("serve", "reports.py", "--store", store, "--no-work", "--http", "127.0.0.1:0") as server,
    ):
        shown = store_url.replace("postgres@", "")
        assert worker.facts == {
            "name": "reports",
            "namespace": "reports",
            "store": shown,
            "tools": ["hold", "who"],
            "concurrency": 3,
        }
        # With what the server's own lifespan made, as when it is served.
        reported = json.loads(run("call", server.facts["at"], "who").stdout)
        assert reported == {"pid": worker.process.pid, "press": "hot"}
        task_ref = json.loads(run("call", server.facts["at"], "hold", "--detach", "--json").stdout)
        wait_for("held")
        ending, printed = worker.stop()
        assert ending == 0
        assert f"raincheck: worker of 'reports' on {shown}: 2 tools, 3 at once\n" in printed
        assert SECRET not in printed
        assert "Traceback" not in printed
        assert {task["id"]: task["phase"] for task in tasks_in(store)}[task_ref["task_id"]] == "queued"
        Path("go").touch()
        with start_process("worker", "reports.py", "--store", store):
            assert run("wait", task_ref["task_id"]).stdout == "let go\n"
        assert server.stop()[0] == 0


def test_processes_share_a_file_and_a_second_signal_skips_the_grace_period() -> None:
    write_reports(grace=600)
    with start_process("worker", "reports.py", "--log-format", "json") as worker:
        assert worker.facts["store"] == str(Path("reports.db").absolute())
        submit("hold")
        wait_for("held")
        worker.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            worker.process.wait(2)
        ending, printed = worker.stop()
        assert ending == 0
    logged = [
        json.loads(line) for line in printed.splitlines() if not line.startswith("raincheck: worker of 'reports'")
    ]
    assert "INFO" in {one["level"] for one in logged}
    assert [task["phase"] for task in tasks_in("reports.db")] == ["queued"]


def submit(tool: str, store: str | None = None) -> Task:
    """Ask for a task, as a server does that leaves the running to others."""

    async def main() -> Task:
        tasks = load_tasks("reports.py")
        tasks.configure(store=store)
        async with tasks.running() as engine:
            return await engine.submit(tool)

    return asyncio.run(main())


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_worker_with_queues_runs_only_their_tasks(is_shared: bool, store_url: str) -> None:
    write_reports()
    store = store_url if is_shared else None
    list_saved_calls, asked = submit("hold", store), submit("who", store)

    async def main() -> tuple[Task, Task]:
        tasks = load_tasks("reports.py")
        tasks.configure(store=store, works=True, queues=frozenset({"who"}))
        async with tasks.running() as engine:
            await engine.wait(asked.id)
            # What is not run here can be asked for all the same.
            return (await engine.view(list_saved_calls.id)).task, await engine.submit("hold")

    before, new = asyncio.run(main())
    assert (before.phase, before.attempt_number) == (Phase.QUEUED, 0)
    assert new.phase is Phase.QUEUED
    assert not Path("held").exists()


def test_unknown_queues_are_refused_before_a_store_is_created() -> None:
    write_reports()
    tasks = load_tasks("reports.py")
    tasks.configure(queues=frozenset({"who", "print"}))

    async def main() -> None:
        async with tasks.running():
            raise AssertionError("it runs")

    with pytest.raises(ConfigurationError, match="there is no tool 'print' to run tasks for: the tools are hold, who"):
        asyncio.run(main())
    assert not Path("reports.db").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--store", "memory:"], "a worker can't use a store in memory"),
        (["--concurrency", "0"], "concurrency is a whole number from 1 to 1000, not 0"),
        (["--queues", "who,"], "'who,' is not a list of tools: write their names, separated by commas"),
        (["--queues", "print"], "there is no tool 'print' to run tasks for: the tools are hold, who"),
        (["--store", "postgresql://app:sesame99@127.0.0.1:1/a"], "postgresql://127.0.0.1:1/a: the database can't be"),
        (["--store", "nowhere/tasks.db"], "there is no folder"),
    ],
)
def test_an_invalid_worker_exits_with_two_and_the_reason(words: list[str], why: str) -> None:
    write_reports()
    done = run("worker", "reports.py", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert SECRET not in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("reports.db").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["worker", "flow.yaml"], "there is no file flow.yaml"),
        (["worker", "nope.py"], "there is no file nope.py"),
        (["serve", "reports.py", "--no-work", "--concurrency", "3"], "leave out --concurrency"),
        (["serve", "reports.py", "--http", "0", "--concurrency", "-1"], "concurrency is a whole number from 1 to 1000"),
    ],
)
def test_a_worker_that_can_not_start_is_reported(words: list[str], why: str) -> None:
    write_reports()
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
