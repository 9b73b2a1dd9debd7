"""A file with many tasks and the store that has it open: what is asked of it, at random places."""

import random
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bench.fill import Filling, owner_of
from bench.work import NAMESPACE, live_once
from raincheck.clock import SystemClock
from raincheck.core.owner import Scope
from raincheck.core.records import TaskId
from raincheck.stores.requests import PageCursor, TaskQuery
from raincheck.stores.sql import to_datetime
from raincheck.stores.sqlite import SqliteStore

PAGE = 50

Operation: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Place:
    """An open store, and what is in it."""

    store: SqliteStore
    path: Path
    filling: Filling

    def loads(self, count: int) -> Sequence[Operation]:
        now, scope = SystemClock().now(), Scope.for_namespace(NAMESPACE)
        return [partial(self.store.load, one.task_id, scope, now=now) for one in self._some(count)]

    def views(self, count: int) -> Sequence[Operation]:
        now, scope = SystemClock().now(), Scope.for_namespace(NAMESPACE)
        return [partial(self.store.view, one.task_id, scope, now=now) for one in self._some(count)]

    def pages_of_owners(self, count: int) -> Sequence[Operation]:
        now = SystemClock().now()
        owners = random.choices(range(self.filling.owners), k=count)  # noqa: S311 - no secret
        queries = [TaskQuery(Scope.for_owner(NAMESPACE, owner_of(owner))) for owner in owners]
        return [partial(self.store.list_tasks, query, now=now, limit=PAGE) for query in queries]

    def pages_of_all(self, count: int) -> Sequence[Operation]:
        now, query = SystemClock().now(), TaskQuery(Scope.everything())
        places = self._some(count, older=PAGE)
        return [partial(self.store.list_tasks, query, now=now, after=place, limit=PAGE) for place in places]

    def lives(self, count: int) -> Sequence[Operation]:
        return [partial(live_once, self.store)] * count

    def _some(self, count: int, *, older: int = 0) -> list[PageCursor]:
        """Tasks that are kept, from anywhere in the file, with so many that are older than they."""
        # The pattern that all were copied from has the key 1.
        keys = range(2 + self.filling.expired + older, 2 + self.filling.total)
        with closing(sqlite3.connect(self.path)) as connection:
            rows = [
                connection.execute("SELECT created_at, id FROM tasks WHERE pk = ?", (key,)).fetchone()
                for key in random.sample(keys, count)
            ]
        return [PageCursor(to_datetime(created_at), TaskId(task_id)) for created_at, task_id in rows]


@asynccontextmanager
async def opened(path: Path, filling: Filling) -> AsyncGenerator[Place]:
    store = SqliteStore(path)
    await store.open()
    try:
        yield Place(store, path, filling)
    finally:
        await store.close()
