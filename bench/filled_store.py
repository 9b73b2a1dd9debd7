"""An open store on a file with many tasks, and operations on random tasks of it."""

import random
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bench.bulk_tasks import TaskCounts, owner_of
from bench.task_lives import NAMESPACE, run_one_task
from raincheck.clock import SystemClock
from raincheck.core.owner import Scope
from raincheck.core.records import TaskId
from raincheck.stores.requests import PageCursor, TaskQuery
from raincheck.stores.sql import to_datetime
from raincheck.stores.sqlite import SqliteStore

PAGE = 50

Operation: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class FilledStore:
    """An open store, and the numbers of tasks in it."""

    store: SqliteStore
    path: Path
    counts: TaskCounts

    def loads(self, count: int) -> Sequence[Operation]:
        now, scope = SystemClock().now(), Scope.for_namespace(NAMESPACE)
        return [partial(self.store.load, cursor.task_id, scope, now=now) for cursor in self._random_tasks(count)]

    def views(self, count: int) -> Sequence[Operation]:
        now, scope = SystemClock().now(), Scope.for_namespace(NAMESPACE)
        return [partial(self.store.view, cursor.task_id, scope, now=now) for cursor in self._random_tasks(count)]

    def pages_of_owners(self, count: int) -> Sequence[Operation]:
        now = SystemClock().now()
        owners = random.choices(range(self.counts.owners), k=count)  # noqa: S311 - no secret
        queries = [TaskQuery(Scope.for_owner(NAMESPACE, owner_of(owner))) for owner in owners]
        return [partial(self.store.list_tasks, query, now=now, limit=PAGE) for query in queries]

    def pages_of_all(self, count: int) -> Sequence[Operation]:
        now, query = SystemClock().now(), TaskQuery(Scope.everything())
        cursors = self._random_tasks(count, older=PAGE)
        return [partial(self.store.list_tasks, query, now=now, after=cursor, limit=PAGE) for cursor in cursors]

    def lives(self, count: int) -> Sequence[Operation]:
        return [partial(run_one_task, self.store)] * count

    def _random_tasks(self, count: int, *, older: int = 0) -> list[PageCursor]:
        """Return random unexpired tasks of the file. At least `older` tasks are older than each."""
        # Key 1 is the pattern that all tasks were copied from.
        keys = range(2 + self.counts.expired + older, 2 + self.counts.total)
        with closing(sqlite3.connect(self.path)) as connection:
            rows = [
                connection.execute("SELECT created_at, id FROM tasks WHERE pk = ?", (key,)).fetchone()
                for key in random.sample(keys, count)
            ]
        return [PageCursor(to_datetime(created_at), TaskId(task_id)) for created_at, task_id in rows]


@asynccontextmanager
async def opened(path: Path, counts: TaskCounts) -> AsyncGenerator[FilledStore]:
    store = SqliteStore(path)
    await store.open()
    try:
        yield FilledStore(store, path, counts)
    finally:
        await store.close()
