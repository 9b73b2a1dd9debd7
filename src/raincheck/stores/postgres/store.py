"""The PostgreSQL store: the methods of the store interface, each a transaction on a pooled connection."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from psycopg import AsyncConnection

from raincheck._async import shield, spawn_background
from raincheck.core.change import Change, Creation
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import ChangeBroadcaster, ChangeFeed
from raincheck.stores.dispatcher import Dispatcher, JobQueue
from raincheck.stores.postgres import reads, writes
from raincheck.stores.postgres.address import parse_url
from raincheck.stores.postgres.connection import DatabaseClock, check_existing_database, make_pool, prepare_database
from raincheck.stores.postgres.notifications import watch_changes
from raincheck.stores.postgres.reads import Connection
from raincheck.stores.postgres.transactions import TransactionRunner
from raincheck.stores.postgres.writes import PostgresTables
from raincheck.stores.requests import (
    PAGE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    Page,
    PageCursor,
    TaskQuery,
    check_durations,
)

T = TypeVar("T")

MAX_CONNECTIONS = 8
"""The maximum number of connections of a handle, in addition to the one that it listens on."""


class PostgresStore:
    """A store that keeps tasks in a PostgreSQL database.

    `jobs` queues a job with every task that enters the queue, and `make_dispatcher` creates the dispatcher that
    delivers jobs to workers; without them, workers poll for work. `timeout` is how many seconds to wait for an
    unavailable database.
    """

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
        self._target = parse_url(url)
        self._url = url
        self._jobs = jobs
        self._timeout = timeout
        self._connections = connections
        self._connection_class = connection_class
        # Distinguishes this handle's changes, which reach its listeners directly, from those of other handles.
        self._origin = secrets.token_hex(8)
        self._channel = f"raincheck.{self._target.schema}"
        self._clock = DatabaseClock()
        self._feeds = ChangeBroadcaster()
        self._transactions: TransactionRunner | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._open_close_lock = asyncio.Lock()
        self._must_exist = False
        dispatcher = None if make_dispatcher is None else partial(make_dispatcher, self)
        self.capabilities = Capabilities(durable=True, shared=True, clock=self._clock, make_dispatcher=dispatcher)

    def __repr__(self) -> str:
        return f"PostgresStore({self._target.display_url!r})"

    async def open(self) -> None:
        async with self._open_close_lock:
            if self._transactions is not None:
                self._transactions.check_same_loop()
                return
            if self._must_exist:
                await check_existing_database(self._target, self._clock, self._connection_class)
            else:
                await prepare_database(self._target, self._jobs, self._clock, self._connection_class)
            pool = make_pool(self._target, self._connection_class, self._connections, self._timeout)
            await pool.open()
            self._transactions = TransactionRunner(
                self._target.display_url, pool, self._tables, self._feeds.publish, self._timeout
            )

    async def close(self) -> None:
        self._feeds.close()
        # In the background, so that cancelling the caller does not leak a connection.
        await shield(spawn_background(self._close()))

    async def _close(self) -> None:
        async with self._open_close_lock:
            if self._watch_task is not None:
                self._watch_task.cancel()
                await asyncio.gather(self._watch_task, return_exceptions=True)
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
        await self._write(partial(writes.commit, changes=changes), is_single=is_single)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        return await self._write(partial(writes.claim, request=request, now=now))

    async def first_due(self) -> datetime | None:
        """Return when the first parked task is due, of all namespaces and tools."""
        return await self._read(reads.first_due)

    async def wake_due(self, now: datetime) -> None:
        """Move parked tasks that are due to the queue."""
        await self._write(partial(writes.wake_due, now=now))

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        extend = partial(writes.extend_leases, held=held, until=until)
        return await self._require_open().write(extend, is_single=True, may_repeat=True)

    async def release_key(self, task_id: TaskId, key: str) -> None:
        await self._write(partial(writes.release_key, task_id=task_id, key=key))

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        return await self._write(partial(writes.prune, now=now, limit=limit, only=only))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        return await self._read(partial(reads.next_due, namespace=namespace, tools=tools))

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return await self._read(partial(reads.list_overdue, now=now, limit=limit, clock=self._clock))

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        return await self._read(partial(reads.load, task_id=task_id, scope=scope, now=now))

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return await self._read(partial(reads.view, task_id=task_id, scope=scope, now=now))

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return await self._read(partial(reads.journal, task_id=task_id, scope=scope, now=now))

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        return await self._read(partial(reads.artifact, task_id=task_id, name=name, scope=scope, now=now))

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        read = partial(reads.history, task_id=task_id, scope=scope, now=now, after=after, limit=limit)
        return await self._read(read)

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        if not query.scope.may_list:
            return Page((), None)
        return await self._read(partial(reads.list_tasks, query=query, now=now, after=after, limit=limit))

    async def count_states(self, scope: Scope, *, now: datetime) -> dict[tuple[str, str], int]:
        return await self._read(partial(reads.count_states, scope=scope, now=now)) if scope.may_list else {}

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        return await self._read(partial(reads.count_live, scope=scope)) if scope.may_list else {}

    async def get_or_create_secret(self, name: str) -> bytes:
        found = await self._read(partial(reads.find_secret, name=name))
        return await self._write(partial(writes.create_secret, name=name)) if found is None else found

    async def save_definitions(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        return await self._write(partial(writes.save_definitions, namespace=namespace, definitions=definitions))

    async def merge_durations(
        self, namespace: str, durations: Mapping[str, DurationHistogram]
    ) -> dict[str, DurationHistogram]:
        check_durations(namespace, durations)
        if not durations:
            return await self._read(partial(reads.durations, namespace=namespace))
        return await self._write(partial(writes.merge_durations, namespace=namespace, durations=durations))

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

    async def _read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._require_open().read(read)

    async def _write(self, write: Callable[[PostgresTables], Awaitable[T]], *, is_single: bool = False) -> T:
        return await self._require_open().write(write, is_single=is_single)

    def _require_open(self) -> TransactionRunner:
        if self._transactions is None:
            raise StoreUnavailable(self._target.display_url, "the store is not open: open it before use")
        self._transactions.check_same_loop()
        return self._transactions

    def _tables(self, connection: Connection) -> PostgresTables:
        return PostgresTables(connection, self._jobs, self._channel, self._origin)
