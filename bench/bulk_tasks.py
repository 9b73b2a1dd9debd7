"""Create files with very many finished tasks in bulk, as copies of one task that the store has written."""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.task_lives import NAMESPACE, run_one_task
from raincheck.clock import SystemClock, new_task_id
from raincheck.core.owner import Owner
from raincheck.stores.sql import to_datetime
from raincheck.stores.sqlite import SqliteStore

TASKS_EACH = 100
"""The number of tasks of each owner."""

_BATCH = 20_000
_HOUR = 3_600 * 1_000_000
_ISSUER = "https://issuer.example"


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The numbers of tasks in a file. The expired ones are the oldest."""

    retained: int
    expired: int = 0

    @property
    def total(self) -> int:
        return self.retained + self.expired

    @property
    def owners(self) -> int:
        return self.retained // TASKS_EACH


def owner_of(number: int) -> Owner:
    return Owner.token(_ISSUER, f"user-{number}")


async def fill(path: Path, counts: TaskCounts, tick: Callable[[int, int], None]) -> None:
    """Create a file with these numbers of finished tasks, each with its history and its payloads."""
    store = SqliteStore(path)
    await store.open()
    await run_one_task(store)
    await store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _copy_pattern(connection, counts, tick)
    finally:
        connection.close()
    # Synced, so that the disk is not busy with this file during a measurement.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _copy_pattern(connection: sqlite3.Connection, counts: TaskCounts, tick: Callable[[int, int], None]) -> None:
    # Created without a journal, since the file is not needed after a crash. The store turns the log on again.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1000000"):
        connection.execute(f"PRAGMA {pragma}")
    # Real ids, since their position in an index affects the measurement.
    connection.create_function("new_task_id", 1, _id_of)
    (pattern,) = connection.execute("SELECT pk FROM tasks").fetchone()
    now = SystemClock().now().timestamp() * 1_000_000
    before, after = owner_of(0).key.rsplit("0", 1)
    parameters = {
        "pattern": pattern,
        "namespace": NAMESPACE,
        "owners": counts.owners,
        "owner_before": before,
        "owner_after": after,
        "expired": counts.expired,
        # One millisecond apart, and all in the past.
        "first_at": int(now) - _HOUR - counts.total * 1_000,
        "past": int(now) - _HOUR,
        "future": int(now) + 1_000 * _HOUR,
    }
    statements = _statements(connection)
    for first in range(1, counts.total + 1, _BATCH):
        last = min(first + _BATCH - 1, counts.total)
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement, parameters | {"first": first, "last": last})
        connection.execute("COMMIT")
        tick(last, counts.total)


def _id_of(created_at: int) -> str:
    return new_task_id(to_datetime(created_at))


def _statements(connection: sqlite3.Connection) -> list[str]:
    created_at = ":first_at + n * 1000"
    expressions = {
        "pk": ":pattern + n",
        "id": f"new_task_id({created_at})",
        "owner": ":owner_before || (n % :owners) || :owner_after",
        "created_at": created_at,
        "updated_at": created_at,
        "finished_at": created_at,
        "expires_at": "iif(n <= :expired, :past, :future) + n",
    }
    return [
        _copy(connection, "tasks", "pk", expressions),
        _copy(connection, "history", "task_pk", {"task_pk": ":pattern + n", "at": created_at}),
        _copy(connection, "payloads", "task_pk", {"task_pk": ":pattern + n"}),
    ]


def _copy(connection: sqlite3.Connection, table: str, key: str, expressions: dict[str, str]) -> str:
    """Return the statement that copies the pattern's rows. `expressions` replace the values of their columns."""
    columns: list[str] = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    values = ", ".join(expressions.get(column, column) for column in columns)
    return f"""
        WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
        INSERT INTO {table} ({", ".join(columns)})
        SELECT {values} FROM numbers, {table} WHERE {table}.{key} = :pattern
    """
