"""Tests for `raincheck tools` on real servers and stores: its output and exit codes."""

import asyncio
import json
import re
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raincheck.cli.loader import load_tasks
from raincheck.stores.sqlite.migrate import APPLICATION_ID
from raincheck.wire.fallback_text import format_duration
from tests.support.cli.report_server import SERVER, record_durations, run, run_json, write

pytestmark = pytest.mark.usefixtures("folder")


def call(target: str, *seconds: float) -> None:
    """Really call a tool, as often as that, on the module's own clock."""
    tasks = load_tasks(target)

    async def calls() -> None:
        async with tasks.running() as engine:
            for one in seconds:
                task = await engine.submit("crunch", {"seconds": one})
                await engine.wait(task.id)

    asyncio.run(calls())


def test_measured_durations_decide_the_outcome() -> None:
    write()
    call("reports.py", *[2.0] * 9, *[8.0] * 2)
    crunch = run_json("reports.py")["crunch"]
    assert crunch["measured"] == 11
    assert crunch["p50_seconds"] == pytest.approx(2, rel=0.2)
    assert crunch["p90_seconds"] == pytest.approx(8, rel=0.2)
    assert crunch["with_tasks"]["waits_seconds"] >= crunch["p90_seconds"]
    assert crunch["with_tasks"]["reason"].startswith("of the latest 11 calls, 100% end within")


def test_json_is_a_list_with_stable_names_and_times_in_seconds() -> None:
    write()
    record_durations(crunch=[600.0] * 10)
    done = run("reports.py", "--json")
    assert done.stderr == ""
    assert json.loads(done.stdout) == [
        {
            "name": "crunch",
            "mode": "auto",
            "measured": 10,
            "p50_seconds": pytest.approx(600, rel=0.2),
            "p90_seconds": pytest.approx(600, rel=0.2),
            "with_tasks": {
                "outcome": "task",
                "waits_seconds": 0.0,
                "reason": "of the latest 10 calls, 0% end within 10 s: it is not worth waiting",
            },
            "without_tasks": {
                "outcome": "fallback",
                "waits_seconds": 5.0,
                "reason": "of the latest 10 calls, 0% end within 45 s: waiting longer is of no use",
            },
        },
        {
            "name": "publish",
            "mode": "required",
            "measured": 0,
            "p50_seconds": None,
            "p90_seconds": None,
            "with_tasks": {
                "outcome": "task",
                "waits_seconds": 0.0,
                "reason": 'it always runs as a task (mode="required")',
            },
            "without_tasks": {
                "outcome": "refused",
                "waits_seconds": 0.0,
                "reason": 'only callers that accept tasks can call it (mode="required")',
            },
        },
        {
            "name": "look_up",
            "mode": "forbidden",
            "measured": 0,
            "p50_seconds": None,
            "p90_seconds": None,
            "with_tasks": {
                "outcome": "result",
                "waits_seconds": None,
                "reason": 'its calls never become tasks (mode="forbidden")',
            },
            "without_tasks": {
                "outcome": "result",
                "waits_seconds": None,
                "reason": 'its calls never become tasks (mode="forbidden")',
            },
        },
    ]


def test_the_table_has_each_tools_outcome_and_reason() -> None:
    write()
    record_durations(crunch=[0.02] * 5 + [1.5] * 5, look_up=[600.0])
    done = run("reports.py:mcp")
    assert done.exit_code == 0
    lines = [re.split(r"\s{2,}", line.rstrip()) for line in done.stdout.splitlines()]
    wait = run_json("reports.py")["crunch"]["with_tasks"]
    assert lines[:4] == [
        ["tool", "measured", "callers with tasks", "callers without tasks"],
        ["crunch", "10 calls", f"waits up to {format_duration(wait['waits_seconds'])}, then gets a task", lines[1][3]],
        ["auto", "half in 23 ms", wait["reason"], "such callers wait for fallback_wait seconds"],
        ["", "9 of 10 in 1.7 s"],
    ]
    assert lines[1][3] == "waits up to 45 s, then gets a text about the task"
    assert ["publish", "no calls", "gets a task at once", "is refused"] in lines
    assert ["look_up", "1 call", "waits for the result", "waits for the result"] in lines
    assert done.stdout.splitlines()[-1] == f"measured for 'reports' in {Path.cwd() / 'tasks.db'}"


def test_store_selects_the_store_to_read() -> None:
    write()
    record_durations("other.db", crunch=[600.0] * 10)
    assert run_json("reports.py", "--store", "other.db")["crunch"]["measured"] == 10
    assert run_json("reports.py", "--store", f"sqlite:///{Path.cwd()}/other.db")["crunch"]["measured"] == 10
    assert run_json("reports.py")["crunch"]["measured"] == 0


@pytest.mark.parametrize("variable", ["other.db", ""])
def test_without_store_the_servers_own_store_is_read(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINCHECK_STORE", variable)
    write(SERVER.replace('"tasks.db", ', ""))
    record_durations(None, crunch=[600.0] * 10)
    assert run_json("reports.py")["crunch"]["measured"] == 10
    assert Path("other.db").exists() == bool(variable)


def test_the_store_is_closed() -> None:
    write()
    record_durations(crunch=[600.0] * 10)
    before = threading.active_count()
    run_json("reports.py")
    assert threading.active_count() == before


def test_measurements_of_another_server_are_ignored() -> None:
    write()
    record_durations(namespace="others", crunch=[600.0] * 10)
    done = run("reports.py")
    assert done.stdout.splitlines()[-1] == f"nothing is measured yet for 'reports' in {Path.cwd() / 'tasks.db'}"
    assert "600" not in done.stdout


@pytest.mark.parametrize(
    ("store", "why"),
    [
        ("tasks.db", "nothing is measured yet: there is no file {folder}/tasks.db"),
        ("nowhere/tasks.db", "nothing is measured yet: there is no file {folder}/nowhere/tasks.db"),
        ("memory:", "nothing is measured: a store in memory ends with its process"),
    ],
)
def test_a_missing_store_of_the_server_is_reported_and_not_created(store: str, why: str) -> None:
    write(SERVER.replace("tasks.db", store))
    why = why.format(folder=Path.cwd())
    done = run("reports.py")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == why
    # Where stdout is for a program to read, it is not among the JSON.
    in_json = run("reports.py", "--json")
    assert in_json.stderr.splitlines() == [why]
    assert [tool["measured"] for tool in json.loads(in_json.stdout)] == [0, 0, 0]
    assert [path.name for path in Path.cwd().iterdir() if path.suffix != ".py" and path.is_file()] == []


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize("store", ["taks.db", "nowhere/tasks.db"])
def test_a_missing_store_exits_with_two_and_is_not_created(store: str, more: list[str]) -> None:
    """Naming a missing file can only be a mistake."""
    write()
    record_durations(crunch=[600.0] * 10)
    done = run("reports.py", "--store", store, *more)
    assert (done.exit_code, bool(done.stdout)) == (2, "--json" in more)
    why = f"raincheck: there is no file {Path.cwd() / store}: name the store of a server\n"
    assert done.stderr == why
    assert not Path(store).exists()


def test_a_store_in_memory_has_no_measurements() -> None:
    write()
    done = run("reports.py", "--store", "memory:")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("nothing is measured: a store in memory ends")


TAKEN = "\n\n@mcp.tool()\nasync def task_wait() -> None: ...\n"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_tool_with_the_name_of_a_fallback_tool_is_reported(more: list[str]) -> None:
    write(SERVER + TAKEN)
    record_durations(crunch=[600.0] * 10)
    done = run("reports.py", *more)
    assert done.exit_code == 0
    assert done.stderr.startswith(
        "raincheck: the server would not start: the server's tool 'task_wait' has the name of a fallback tool"
    )
    assert "crunch" in done.stdout
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("setting", ["fallback_wait=None", "fallback_tools=FallbackTools.prefixed('reports_')"])
def test_the_name_of_a_fallback_tool_is_allowed_without_fallback_tools(setting: str) -> None:
    server = SERVER.replace("import Tasks", "import FallbackTools, Tasks").replace(
        "clock=clock)", f"clock=clock, {setting})"
    )
    write(server + TAKEN)
    done = run("reports.py")
    assert (done.exit_code, done.stderr) == (0, "")


def test_the_folder_of_the_default_store_is_not_created() -> None:
    write(SERVER.replace('"tasks.db", ', ""))
    assert "there is no file" in run("reports.py").stdout
    assert not Path(".local").exists()


def test_a_server_without_task_tools_gets_advice() -> None:
    write(SERVER.partition("@tasks.tool")[0])
    done = run("reports.py")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].startswith("no calls become tasks: decorate a tool with @tasks.tool")
    assert run_json("reports.py") == {}


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()


def text(path: Path) -> None:
    path.write_text("It is no database, and long enough to be looked at. " * 40)


def newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 9999")
    connection.close()


def older(path: Path) -> None:
    record_durations(str(path), crunch=[1.0])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "odd.db is a folder: name a file in it, such as odd.db/tasks.db"),
        (foreign, "the file is a database of another program: name another store"),
        (newer, "its schema is version 9999, and this raincheck knows versions up to"),
        (older, "its schema is of an older version"),
        (text, "the file is not a SQLite database: name another store"),
    ],
)
def test_an_unusable_store_exits_with_two_and_is_left_unchanged(make: Callable[[Path], object], why: str) -> None:
    write()
    path = Path("odd.db")
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    for words in (["--store", "odd.db"], ["--store", "odd.db", "--json"]):
        done = run("reports.py", *words)
        assert (done.exit_code, bool(done.stdout)) == (2, "--json" in words)
        assert done.stderr.startswith("raincheck: ")
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nope.py"], "raincheck: there is no file nope.py"),
        (["."], "raincheck: . is a folder"),
        (["broken.py"], "raincheck: broken.py can't be loaded: SyntaxError: invalid syntax (in broken.py, line 2)"),
        (
            ["failing.py", "--json"],
            "raincheck: failing.py can't be loaded: ModuleNotFoundError: No module",
        ),
        (["reports.py:nope"], "raincheck: reports.py has no 'nope': write reports.py:tasks"),
        (["reports.py:clock"], "raincheck: 'clock' in reports.py is of type FakeClock, not a Tasks"),
        (
            ["reports.py", "--store", "mysql://user:sesame@host/db"],
            "raincheck: the store has an unknown kind 'mysql'",
        ),
        (["reports.py", "--store", ""], "raincheck: the store's name is empty"),
        (["reports.py", "--store", "x" * 300], f"raincheck: {'x' * 300} can't be accessed (File name too long): name"),
    ],
)
def test_an_unusable_target_exits_with_two_and_one_sentence(words: list[str], why: str) -> None:
    write()
    write("one = 1\ndef two(:\n", "broken.py")
    write("import nope\n", "failing.py")
    done = run(*words)
    assert (done.exit_code, bool(done.stdout)) == (2, "--json" in words)
    assert done.stderr.startswith(why)
    assert len(done.stderr.splitlines()) == 1
    assert "sesame" not in done.stderr


def test_the_help_has_examples_and_exit_codes() -> None:
    done = run("--help")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert "raincheck tools server.py:mcp" in text
    assert "Exit codes: 0 success; 2" in text
    for word in ("TARGET", "--store", "--json"):
        assert word in text
