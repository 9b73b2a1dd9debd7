"""Tests for `raincheck tasks purge` and `export`: what is deleted, and what is exported."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest

from raincheck.cli.app import program
from raincheck.cli.commands.tasks import purge
from raincheck.core.commands import Cancel, Complete, Note
from raincheck.core.owner import Owner
from raincheck.core.records import Task
from raincheck.core.values import SEAL, Payload, encode
from raincheck.testing import FakeClock, StoreHarness
from tests.support.cli.operator import (
    LONG,
    START,
    STORE,
    create_task_in_each_phase,
    in_store,
    lines,
    run,
    run_json,
    stored_ids,
)

pytestmark = pytest.mark.usefixtures("folder")

LIVE = {"parked", "running", "paused", "queued"}
DAY = 86_400
MAIN = "from raincheck.cli import main; main()"


def after(days: float) -> FakeClock:
    clock = FakeClock(START)
    clock.advance(days * DAY)
    return clock


def test_only_tasks_that_ended_over_a_week_ago_are_deleted() -> None:
    clock = FakeClock(START)
    old = in_store(create_task_in_each_phase, clock)
    clock.advance(8 * DAY)

    async def newer(harness: StoreHarness) -> Task:
        await harness.claim(limit=10)
        return await harness.apply(await harness.create(id=old["queued"].id.replace("8", "9")), Cancel("alice"))

    new = in_store(newer, clock)
    assert lines("tasks", "purge", "--yes", clock=clock) == ["4 tasks deleted"]
    assert stored_ids() == {old[name].id for name in LIVE} | {new.id}


def test_live_tasks_are_never_deleted() -> None:
    tasks = in_store(create_task_in_each_phase)
    assert lines("tasks", "purge", "--older-than", "0s", "--yes", clock=after(399)) == ["4 tasks deleted"]
    assert stored_ids() == {tasks[name].id for name in LIVE}
    assert run("tasks", "purge", "--status", "running", "--yes").exit_code == 2


def test_expired_tasks_that_were_not_pruned_are_deleted_too() -> None:
    in_store(create_task_in_each_phase)
    assert run_json("tasks", "purge", "--yes", clock=after(500))["deleted"] == 4


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--status", "failed"], {"failed"}),
        (["--status", "failed", "--status", "cancelled"], {"failed", "cancelled"}),
        (["--status", "completed"], {"completed", "error"}),
        (["--owner", "nobody"], set[str]()),
        (["--tool", "build_report", "--namespace", "reports"], {"completed", "error", "failed", "cancelled"}),
        (["--namespace", "elsewhere"], set[str]()),
        (["--older-than", "400d"], set[str]()),
    ],
)
def test_purge_accepts_filters(words: list[str], gone: set[str]) -> None:
    tasks = in_store(create_task_in_each_phase)
    printed = run_json("tasks", "purge", *words, "--yes", clock=after(30))
    assert printed["found"] == printed["deleted"] == len(gone)
    assert stored_ids() == {task.id for name, task in tasks.items() if name not in gone}


def test_a_dry_run_reports_and_deletes_nothing() -> None:
    in_store(create_task_in_each_phase)
    before = stored_ids()
    assert lines("tasks", "purge", "--dry-run", clock=after(30)) == [
        "4 tasks would be deleted (1 cancelled, 1 failed, 2 completed)"
    ]
    assert run_json("tasks", "purge", "--dry-run", "--yes", clock=after(30)) == {
        "dry_run": True,
        "found": 4,
        "deleted": 0,
        "by_status": {"cancelled": 1, "failed": 1, "completed": 2},
    }
    assert stored_ids() == before


def test_purge_without_a_terminal_requires_yes() -> None:
    in_store(create_task_in_each_phase)
    before = stored_ids()
    for words in ([], ["--json"]):
        done = run("tasks", "purge", *words, clock=after(30))
        assert (done.exit_code, bool(done.stdout)) == (2, bool(words))
        assert (
            done.stderr == "raincheck: 4 tasks would be deleted, but there is no terminal to confirm it at: add --yes\n"
        )
    assert stored_ids() == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 4), ("n", 1, 8), ("", 1, 8)])
def test_purge_asks_for_confirmation_on_a_terminal(
    answer: str, code: int, left: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_store(create_task_in_each_phase)
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    with pytest.raises(SystemExit) as ended:
        program(["tasks", "purge", "--store", STORE], obj=after(30))
    printed = capsys.readouterr()
    assert ended.value.code == code
    assert "delete 4 tasks (1 cancelled, 1 failed, 2 completed)? [y/N]:" in printed.err
    assert printed.out.lstrip() == ("4 tasks deleted\n" if code == 0 else "")
    assert len(stored_ids()) == left


def test_purge_without_matches_asks_nothing() -> None:
    in_store(create_task_in_each_phase)
    printed = "nothing to delete: no matching task ended more than 7d ago"
    assert lines("tasks", "purge", clock=after(1)) == [printed]
    assert run_json("tasks", "purge", clock=after(1))["found"] == 0


@pytest.mark.parametrize("time", ["7", "d", "-1d", "1.5d", "7 d", "1y", "", "999999999w"])
def test_an_invalid_duration_is_refused(time: str) -> None:
    in_store(create_task_in_each_phase)
    done = run("tasks", "purge", "--yes", "--older-than", time)
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"raincheck: {time!r} is not a duration: write a number and a unit, such as 90s, 30m, 12h, 7d or 2w\n"
    )


@pytest.mark.parametrize(("time", "gone"), [("60s", 1), ("1m", 1), ("61s", 0), ("0s", 1), (" 1m ", 1)])
def test_the_age_counts_from_the_end_of_a_task(time: str, gone: int) -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        task = await harness.create_running(retention=LONG)
        harness.clock.advance(3_600)
        await harness.apply(task, Complete(1, encode(1)))

    in_store(work, clock)
    clock.advance(60)
    assert run_json("tasks", "purge", "--yes", "--older-than", time, clock=clock)["deleted"] == gone


def test_a_child_of_a_live_parent_is_not_deleted_and_reported() -> None:
    async def work(harness: StoreHarness) -> None:
        parent = await harness.create_running(retention=LONG)
        await harness.apply(parent, Note(1, spawned=(harness.creation(parent_id=parent.id, retention=LONG),)))
        (child,) = await harness.claim()
        await harness.apply(child, Complete(1, encode(1)))
        await harness.apply(await harness.create(retention=LONG), Cancel("alice"))

    in_store(work)
    assert lines("tasks", "purge", "--yes", clock=after(30), exit_code=1) == [
        "1 task deleted; 1 task not deleted: a parent is live, or another process deleted the task"
    ]
    assert stored_ids() == {"task-0001", "task-0002"}


def test_many_tasks_are_deleted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "BATCH_SIZE", 3)

    async def work(harness: StoreHarness) -> None:
        for _ in range(10):
            await harness.apply(await harness.create(retention=LONG), Cancel("alice"))

    in_store(work)
    assert run_json("tasks", "purge", "--yes", clock=after(30))["deleted"] == 10
    assert stored_ids() == set()


def exported(*words: str) -> list[dict[str, Any]]:
    done = run("tasks", "export", *words)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_export_has_a_line_for_each_task_with_all_its_data() -> None:
    tasks = in_store(create_task_in_each_phase)
    documents = exported()
    assert [one["id"] for one in documents] == [task.id for task in reversed(tasks.values())]
    by_id = {one["id"]: one for one in documents}
    completed = by_id[tasks["completed"].id]
    assert completed["arguments"] == {"year": 2026}
    assert completed["outcome"] == {"rows": 12}
    assert [entry["event"] for entry in completed["history"]] == ["create", "claim", "complete"]
    assert exported("--json") == documents
    # The same as is shown of one.
    shown = run_json("tasks", "show", tasks["completed"].id)
    del shown["advice"]
    assert shown == completed


def test_export_accepts_ids_or_filters_but_not_both() -> None:
    tasks = in_store(create_task_in_each_phase)
    assert [one["id"] for one in exported("task-0003", "task-0001")] == ["task-0003", "task-0001"]
    assert [one["id"] for one in exported("--status", "failed", "--owner", "alice")] == [tasks["failed"].id]
    done = run("tasks", "export", "task-0001", "--status", "failed")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "raincheck: ids and filters can't be combined: give task ids, or filters such as --status\n"


def test_a_missing_task_is_reported_and_the_others_are_exported() -> None:
    in_store(create_task_in_each_phase)
    done = run("tasks", "export", "task-0001", "nope", "task-0002")
    assert done.exit_code == 1
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["task-0001", "task-0002"]
    assert done.stderr.startswith("raincheck: there is no task 'nope'")


def test_encrypted_fields_are_marked_and_the_caller_is_not_exported() -> None:
    async def work(harness: StoreHarness) -> None:
        sealed = Payload(SEAL + b"sesame\xff\x00")
        await harness.create(arguments=sealed, caller=encode({"identity": "open-sesame"}), owner=Owner.anonymous())

    in_store(work)
    done = run("tasks", "export")
    assert "sesame" not in done.stdout
    (document,) = exported()
    assert (document["arguments"], document["unreadable"]) == (None, {"arguments": "sealed"})


def test_an_export_stops_quietly_when_the_reader_closes() -> None:
    async def work(harness: StoreHarness) -> None:
        for _ in range(300):
            await harness.create(arguments=encode("x" * 1_000))

    in_store(work)
    command = [sys.executable, "-c", MAIN, "tasks", "export", "--store", STORE]
    exporting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert exporting.stdout is not None
    assert exporting.stderr is not None
    assert json.loads(exporting.stdout.readline())["arguments"]
    exporting.stdout.close()
    assert exporting.stderr.read() == b""
    exporting.stderr.close()
    assert exporting.wait(30) in (0, 1)


def test_a_progress_bar_is_shown_and_the_cursor_is_restored() -> None:
    in_store(create_task_in_each_phase, after(-30))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", MAIN, "tasks", "purge", "--yes", "--older-than", "0s", "--store", STORE]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, check=False, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"4 tasks deleted\n")
    assert "deleting" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1


def test_ctrl_c_at_the_confirmation_deletes_nothing() -> None:
    in_store(create_task_in_each_phase, after(-30))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", MAIN, "tasks", "purge", "--older-than", "0s", "--store", STORE]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as purging:
        shown = ""
        while "[y/N]" not in shown:
            shown += os.read(ours, 65_536).decode()
        purging.send_signal(signal.SIGINT)
        os.write(ours, b"y\n")
        assert purging.wait(30) == 130
    os.close(theirs)
    os.close(ours)
    assert len(run_json("tasks", "ls", clock=after(0))) > 0
    assert run_json("tasks", "purge", "--older-than", "0s", "--dry-run")["found"] == 4
