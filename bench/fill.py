"""Files with very many finished tasks, made in bulk: copies of one task that the store itself has kept."""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.work import NAMESPACE, live_once
from raincheck.clock import SystemClock, new_task_id
from raincheck.core.owner import Owner
from raincheck.stores.sql import to_datetime
from raincheck.stores.sqlite import SqliteStore

TASKS_EACH = 100
"""How many tasks each owner has."""

_BATCH = 20_000
_HOUR = 3_600 * 1_000_000
_ISSUER = "https://issuer.example"


@dataclass(frozen=True, slots=True)
class Filling:
    """How many tasks a file gets: some that have expired, which are the oldest, and some that are kept."""

    kept: int
    expired: int = 0

    @property
    def total(self) -> int:
        return self.kept + self.expired

    @property
    def owners(self) -> int:
        return self.kept // TASKS_EACH


def owner_of(number: int) -> Owner:
    return Owner.token(_ISSUER, f"user-{number}")


async def fill(path: Path, filling: Filling, tick: Callable[[int, int], None]) -> None:
    """Make a file with so many finished tasks, each with its history and its payloads."""
    store = SqliteStore(path)
    await store.open()
    await live_once(store)
    await store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _copy_pattern(connection, filling, tick)
    finally:
        connection.close()
    # So that the disk is not still busy with this file while others are measured.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _copy_pattern(connection: sqlite3.Connection, filling: Filling, tick: Callable[[int, int], None]) -> None:
    # Nobody needs this file after a crash, so it is made without a log; the store turns the log on again.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1000000"):
        connection.execute(f"PRAGMA {pragma}")
    # Real ids, because where they fall in an index is part of what is measured.
    connection.create_function("new_task_id", 1, _id_of)
    (pattern,) = connection.execute("SELECT pk FROM tasks").fetchone()
    now = SystemClock().now().timestamp() * 1_000_000
    before, after = owner_of(0).key.rsplit("0", 1)
    parameters = {
        "pattern": pattern,
        "namespace": NAMESPACE,
        "owners": filling.owners,
        "owner_before": before,
        "owner_after": after,
        "expired": filling.expired,
        # One millisecond apart, and all of them before now.
        "begun": int(now) - _HOUR - filling.total * 1_000,
        "past": int(now) - _HOUR,
        "future": int(now) + 1_000 * _HOUR,
    }
    statements = _statements(connection)
    for first in range(1, filling.total + 1, _BATCH):
        last = min(first + _BATCH - 1, filling.total)
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement, parameters | {"first": first, "last": last})
        connection.execute("COMMIT")
        tick(last, filling.total)


def _id_of(created_at: int) -> str:
    return new_task_id(to_datetime(created_at))


def _statements(connection: sqlite3.Connection) -> list[str]:
    created = ":begun + n * 1000"
    own = {
        "pk": ":pattern + n",
        "id": f"new_task_id({created})",
        "owner": ":owner_before || (n % :owners) || :owner_after",
        "created_at": created,
        "updated_at": created,
        "finished_at": created,
        "expires_at": "iif(n <= :expired, :past, :future) + n",
    }
    return [
        _copy(connection, "tasks", "pk", own),
        _copy(connection, "history", "task_pk", {"task_pk": ":pattern + n", "at": created}),
        _copy(connection, "payloads", "task_pk", {"task_pk": ":pattern + n"}),
    ]


def _copy(connection: sqlite3.Connection, table: str, key: str, own: dict[str, str]) -> str:
    """The statement that copies the pattern's rows, with columns of their own where `own` has an expression."""
    columns: list[str] = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    values = ", ".join(own.get(column, column) for column in columns)
    return f"""
        WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
        INSERT INTO {table} ({", ".join(columns)})
        SELECT {values} FROM numbers, {table} WHERE {table}.{key} = :pattern
    """
