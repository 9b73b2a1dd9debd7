"""Tests for operator commands on unusable stores: the error is reported, and nothing is created or changed."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raincheck.cli.app import TASKS, program
from raincheck.stores.sqlite.migrate import APPLICATION_ID
from raincheck.testing import FakeClock
from tests.support.cli.operator import START, STORE, create_task_in_each_phase, in_store, run

pytestmark = pytest.mark.usefixtures("folder")

READING = [
    ["tasks", "ls"],
    ["tasks", "show", "task-0001"],
    ["tasks", "watch", "task-0001"],
    ["tasks", "export"],
    ["tasks", "purge", "--older-than", "0s", "--dry-run"],
    ["doctor"],
    ["stats"],
]
WRITING = [
    ["tasks", "cancel", "task-0001"],
    ["tasks", "retry", "task-0001"],
    ["tasks", "pause", "task-0001"],
    ["tasks", "resume", "task-0001"],
    ["tasks", "purge", "--yes"],
]
ALL = READING + WRITING


def command_id(words: list[str]) -> str:
    return " ".join(words)


def test_every_tasks_command_is_covered_here() -> None:
    assert TASKS.keys() == {words[1] for words in ALL if words[0] == "tasks"}


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()


def text(path: Path) -> None:
    path.write_text("It is no database, and long enough to be looked at. " * 40)


def newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 9999")
    connection.close()


@pytest.mark.parametrize("words", ALL, ids=command_id)
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "odd.db is a folder: name a file in it, such as odd.db/tasks.db"),
        (foreign, "the file is a database of another program: name another store"),
        (newer, "its schema is version 9999, and this raincheck knows versions up to"),
        (text, "the file is not a SQLite database: name another store"),
    ],
)
def test_an_unusable_store_exits_with_two_and_is_left_unchanged(
    words: list[str], make: Callable[[Path], object], why: str
) -> None:
    path = Path("odd.db")
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    for json in ([], ["--json"]):
        done = run(*words, *json, "--store", "odd.db")
        assert (done.exit_code, bool(done.stdout)) == (2, bool(json))
        assert done.stderr.startswith("raincheck: ")
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert [one.name for one in Path.cwd().iterdir()] == ["odd.db"]


@pytest.mark.parametrize("words", ALL, ids=command_id)
@pytest.mark.parametrize(
    ("store", "why"),
    [
        ("nope.db", "there is no file {folder}/nope.db: name the store that your server uses, with --store or"),
        ("nowhere/tasks.db", "there is no file {folder}/nowhere/tasks.db"),
        ("sqlite:///nope.db", "there is no file {folder}/nope.db"),
        ("memory:", "a store in memory is visible only to the process that created it: name a store in a file"),
        ("mysql://user:sesame@host/db", "the store has an unknown kind 'mysql'"),
        ("", "the store's name is empty"),
        ("x" * 300, "can't be accessed (File name too long): name another store"),
    ],
)
def test_a_missing_store_exits_with_two_and_is_not_created(words: list[str], store: str, why: str) -> None:
    done = run(*words, "--store", store)
    assert (done.exit_code, done.stdout) == (2, "")
    assert why.format(folder=Path.cwd()) in done.stderr
    assert "sesame" not in done.stderr
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("words", [words for words in ALL if words != ["doctor"]], ids=command_id)
def test_a_store_of_an_older_version_is_not_migrated(words: list[str]) -> None:
    in_store(create_task_in_each_phase)
    connection = sqlite3.connect(STORE)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    before = Path(STORE).read_bytes()
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "its schema is of an older version: start a server or a worker on it" in done.stderr
    assert Path(STORE).read_bytes() == before


@pytest.mark.parametrize("variable", ["other.db", ""])
def test_without_store_the_default_store_is_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINCHECK_STORE", variable)
    missing = CliRunner().invoke(program, ["tasks", "ls"])
    assert missing.exit_code == 2
    # Not even its folder is made.
    assert list(Path.cwd().iterdir()) == []
    in_store(create_task_in_each_phase, store=None)  # type: ignore[arg-type] # the default
    found = CliRunner().invoke(program, ["tasks", "ls"], obj=FakeClock(START))
    assert found.exit_code == 0
    assert "task-0001" in found.stdout
    assert Path("other.db").exists() == bool(variable)


def dumped() -> Iterator[str]:
    connection = sqlite3.connect(STORE)
    yield from connection.iterdump()
    connection.close()


@pytest.mark.parametrize("words", READING, ids=command_id)
def test_reading_commands_change_nothing(words: list[str]) -> None:
    in_store(create_task_in_each_phase)
    shutil.copy(STORE, "before.db")
    before, dump = Path(STORE).read_bytes(), list(dumped())
    for json in ([], ["--json"]):
        assert run(*words, *json).exit_code in (0, 1)
    assert Path(STORE).read_bytes() == before
    assert list(dumped()) == dump


@pytest.mark.parametrize("words", ALL, ids=command_id)
def test_the_help_has_an_example_and_exit_codes(words: list[str]) -> None:
    name = words[:2] if words[0] == "tasks" else words[:1]
    done = run(*name, "--help")
    assert done.exit_code == 0
    printed = " ".join(done.stdout.split())
    assert f"raincheck {' '.join(name)}" in printed.partition("Examples:")[2]
    assert "Exit codes: 0" in printed
    assert "; 2 " in printed
    for option in ("--store", "--json"):
        assert option in printed
