"""The change log, by which other processes notice changes."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from raincheck.core.records import TaskId
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.sqlite.store import LOG_LIMIT, log_changes, read_changes


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    prepare_file(tmp_path / "tasks.db", connect, 5, shipped_migrations())
    connection = connect(str(tmp_path / "tasks.db"), 5)
    connection.execute("BEGIN")
    yield connection
    connection.close()


def ids(*numbers: int) -> tuple[TaskId, ...]:
    return tuple(TaskId(f"task {number}") for number in numbers)


def test_only_changes_by_other_handles_are_read_from_the_log(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(1, 2), "me")
    log_changes(connection, ids(3), "you")
    assert read_changes(connection, 0, "me").task_ids == set(ids(3))
    assert read_changes(connection, 0, "you").task_ids == set(ids(1, 2))


def test_a_poll_continues_after_the_position_of_the_last_one(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(1, 2), "you")
    first = read_changes(connection, 0, "me")
    log_changes(connection, ids(3), "you")
    second = read_changes(connection, first.newest, "me")
    assert (second.task_ids, second.newest) == (set(ids(3)), 3)
    assert read_changes(connection, second.newest, "me") == (3, frozenset(), False)


def test_the_log_keeps_only_the_newest_changes_and_reports_a_gap(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(*range(2 * LOG_LIMIT)), "you")
    stored, newest = connection.execute("SELECT count(*), max(seq) FROM changes").fetchone()
    assert stored == LOG_LIMIT
    assert read_changes(connection, newest - LOG_LIMIT - 1, "me").has_gap
    assert not read_changes(connection, newest - LOG_LIMIT, "me").has_gap
    assert len(read_changes(connection, newest - 10, "me").task_ids) == 10


def test_an_empty_log_has_no_gap_for_a_reader_that_is_up_to_date(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(1), "you")
    connection.execute("DELETE FROM changes")
    assert read_changes(connection, 1, "me") == (1, frozenset(), False)
