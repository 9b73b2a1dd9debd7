"""The log of changes, by which other processes hear of what happened."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from raincheck.core.records import TaskId
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.sqlite.notifications import LOG_LIMIT, log_changes, read_changes


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    prepare_file(tmp_path / "tasks.db", connect, 5, shipped_migrations())
    connection = connect(str(tmp_path / "tasks.db"), 5)
    connection.execute("BEGIN")
    yield connection
    connection.close()


def ids(*numbers: int) -> tuple[TaskId, ...]:
    return tuple(TaskId(f"task {number}") for number in numbers)


def test_one_hears_of_what_others_changed_and_not_of_what_one_changed_oneself(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(1, 2), "me")
    log_changes(connection, ids(3), "you")
    assert read_changes(connection, 0, "me").task_ids == set(ids(3))
    assert read_changes(connection, 0, "you").task_ids == set(ids(1, 2))


def test_a_look_goes_on_where_the_last_one_ended(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(1, 2), "you")
    first = read_changes(connection, 0, "me")
    log_changes(connection, ids(3), "you")
    second = read_changes(connection, first.newest, "me")
    assert (second.task_ids, second.newest) == (set(ids(3)), 3)
    assert read_changes(connection, second.newest, "me") == (3, frozenset(), False)


def test_the_log_keeps_only_the_newest_and_says_so_to_who_is_too_far_behind(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(*range(2 * LOG_LIMIT)), "you")
    kept, newest = connection.execute("SELECT count(*), max(seq) FROM changes").fetchone()
    assert kept == LOG_LIMIT
    assert read_changes(connection, newest - LOG_LIMIT - 1, "me").has_gap
    assert not read_changes(connection, newest - LOG_LIMIT, "me").has_gap
    assert len(read_changes(connection, newest - 10, "me").task_ids) == 10


def test_who_has_seen_it_all_has_missed_nothing_though_the_log_is_empty(connection: sqlite3.Connection) -> None:
    log_changes(connection, ids(1), "you")
    connection.execute("DELETE FROM changes")
    assert read_changes(connection, 1, "me") == (1, frozenset(), False)
