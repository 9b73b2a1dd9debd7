"""The PostgreSQL store: each of its methods is a transaction on a pooled connection."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.errors import DataCorrupted

from raincheck.core.change import Change, Creation
from raincheck.core.policies import Quota
from raincheck.core.records import Task, TaskId
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import ChangeFeed
from raincheck.stores.dispatcher import Dispatcher, JobQueue
from raincheck.stores.postgres import rows, writes
from raincheck.stores.postgres.address import parse_url
from raincheck.stores.postgres.connection import DatabaseClock, make_pool, prepare_database
from raincheck.stores.postgres.notifications import watch_changes
from raincheck.stores.postgres.rows import Connection
from raincheck.stores.postgres.transactions import TransactionRunner
from raincheck.stores.postgres.writes import PostgresTables
from raincheck.stores.requests import ClaimRequest, HeldAttempt, clamp_limit, find_overdue
from raincheck.stores.sql import task_from_row, to_datetime, to_micros
from raincheck.stores.sql_store import Plan, SqlStore, Statement

T = TypeVar("T")

MAX_CONNECTIONS = 8
"""The maximum number of connections of a handle, in addition to the one that it listens on."""


class PostgresStore(SqlStore):
    """A store that keeps tasks in a PostgreSQL database.

    `jobs` queues a job with every task that enters the queue, and `make_dispatcher` creates the dispatcher that
    delivers jobs to workers; without them, workers poll for work. `timeout` is how many seconds to wait for an
    unavailable database.
    """

    needs_row_locks = True
    damaged = DataCorrupted
    encode_tools = staticmethod(rows.encode_tools)

    def __init__(
        self,
        url: str,
        *,
        jobs: JobQueue[Any] | None = None,
        make_dispatcher: "Callable[[PostgresStore], Dispatcher] | None" = None,
        timeout: float = 10.0,
        connections: int = MAX_CONNECTIONS,
        connection_class: type[Connection] = AsyncConnection,
    ) -> None:
        super().__init__()
        self._target = parse_url(url)
        self._url = url
        self._jobs = jobs
        self._timeout = timeout
        self._connections = connections
        self._connection_class = connection_class
        self._channel = f"raincheck.{self._target.schema}"
        self._clock = DatabaseClock()
        self._transactions: TransactionRunner | None = None
        dispatcher = None if make_dispatcher is None else partial(make_dispatcher, self)
        self.capabilities = Capabilities(durable=True, shared=True, clock=self._clock, make_dispatcher=dispatcher)

    def __repr__(self) -> str:
        return f"PostgresStore({self._target.display_url!r})"

    async def open(self) -> None:
        async with self._open_close_lock:
            if self._transactions is not None:
                self._transactions.check_same_loop()
                return
            await prepare_database(
                self._target, self._jobs, self._clock, self._connection_class, must_exist=self._must_exist
            )
            pool = make_pool(self._target, self._connection_class, self._connections, self._timeout)
            await pool.open()
            self._transactions = TransactionRunner(
                self._target.display_url, pool, self._tables, self._feeds.publish, self._timeout
            )

    async def _disconnect(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            await transactions.close()

    def new_handle(self) -> "PostgresStore":
        handle = PostgresStore(
            self._url, jobs=self._jobs, timeout=self._timeout, connections=1, connection_class=self._connection_class
        )
        handle._must_exist = True
        return handle

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        write = writes.CreateTransaction(creation, quota, now, claim)
        return await self._require_open().write(write, is_single=write.is_single, may_repeat=write.is_single)

    async def commit(self, changes: Sequence[Change]) -> None:
        is_single = len(changes) == 1 and writes.is_single(changes[0])
        await self._transact(partial(writes.commit, changes=changes), is_single=is_single)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        return await self._transact(partial(writes.claim, request=request, now=now))

    async def first_due(self) -> datetime | None:
        """Return when the first parked task is due, of all namespaces and tools."""
        return await self._read(_first_due)

    async def wake_due(self, now: datetime) -> None:
        """Move parked tasks that are due to the queue."""
        await self._transact(partial(writes.wake_due, now=now))

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        extend = partial(writes.extend_leases, held=held, until=until)
        return await self._require_open().write(extend, is_single=True, may_repeat=True)

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        return await self._transact(partial(writes.prune, now=now, limit=limit, only=only))

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return await self._read(partial(_list_overdue, now, limit, self._clock))

    @contextmanager
    def listen(self) -> Generator[ChangeFeed]:
        self._require_open()
        with self._feeds.listen() as feed:
            if self._watch_task is None or self._watch_task.done() or self._watch_task.cancelling():
                self._watch_task = asyncio.create_task(
                    watch_changes(self._target, self._channel, self._feeds, self._origin)
                )
            try:
                yield feed
            finally:
                if len(self._feeds) == 1:
                    self._watch_task.cancel()  # The last listener leaves. The next one starts over.

    @staticmethod
    def encode_texts(texts: Sequence[str]) -> list[str]:
        return list(map(str, texts))

    async def _read(self, plan: Callable[[], Plan[T]]) -> T:
        return await self._require_open().read(plan)

    async def _write(self, plan: Callable[[], Plan[T]]) -> T:
        return await self._transact(lambda tables: tables.run(plan()))

    async def _transact(self, write: Callable[[PostgresTables], Awaitable[T]], *, is_single: bool = False) -> T:
        return await self._require_open().write(write, is_single=is_single)

    def _require_open(self) -> TransactionRunner:
        if self._transactions is None:
            raise StoreUnavailable(self._target.display_url, "the store is not open: open it before use")
        self._transactions.check_same_loop()
        return self._transactions

    def _tables(self, connection: Connection) -> PostgresTables:
        return PostgresTables(connection, self._jobs, self._channel, self._origin)


def _first_due() -> Plan[datetime | None]:
    found = yield Statement("first_due")
    return to_datetime(found[0][0]) if found else None


def _list_overdue(now: datetime, limit: int, clock: DatabaseClock) -> Plan[tuple[Task, ...]]:
    sent_at = clock.monotonic()
    found = yield Statement("overdue", {"now": to_micros(now), "limit": clamp_limit(limit)})
    # This is called regularly, so it also keeps the clock accurate.
    clock.add_reading(to_datetime(found[0][0]), sent_at, clock.monotonic())
    overdue = [task_from_row(row[1:]) for row in found if row[1] is not None]
    return find_overdue(overdue, now=now, limit=limit)
