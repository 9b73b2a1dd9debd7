"""The PostgreSQL store: the seam's methods, each a transaction on a connection of a pool."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from psycopg import AsyncConnection

from raincheck._async import set_going, unhurt
from raincheck.core.change import Change, Creation
from raincheck.core.histogram import Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import Feed, Feeds
from raincheck.stores.dispatcher import Dispatcher, Jobs
from raincheck.stores.postgres import reads, writes
from raincheck.stores.postgres.address import parse_url
from raincheck.stores.postgres.connection import DatabaseClock, find_database, make_pool, prepare_database
from raincheck.stores.postgres.notifications import watch
from raincheck.stores.postgres.reads import Connection
from raincheck.stores.postgres.transactions import Transactions
from raincheck.stores.postgres.writes import Tables
from raincheck.stores.requests import PAGE_LIMIT, ClaimRequest, HeldAttempt, Page, Position, TaskQuery, check_news

T = TypeVar("T")

CONNECTIONS = 8
"""How many connections a handle has at most, next to the one that it listens on."""


class PostgresStore:
    """Keeps tasks in a PostgreSQL database.

    `jobs` is what queues a job with every task that enters the queue, and `make_dispatcher` makes what brings those to
    workers; without, workers look for work themselves. `timeout` is how many seconds to wait for a database that is
    away.
    """

    def __init__(
        self,
        url: str,
        *,
        jobs: Jobs[Any] | None = None,
        make_dispatcher: "Callable[[PostgresStore], Dispatcher] | None" = None,
        timeout: float = 10.0,
        connections: int = CONNECTIONS,
        connection_class: type[Connection] = AsyncConnection,
    ) -> None:
        self._target = parse_url(url)
        self._url = url
        self._jobs = jobs
        self._timeout = timeout
        self._connections = connections
        self._connection_class = connection_class
        # Tells this handle's changes, which its listeners hear of directly, from those of others.
        self._origin = secrets.token_hex(8)
        self._channel = f"raincheck.{self._target.schema}"
        self._clock = DatabaseClock()
        self._feeds = Feeds()
        self._transactions: Transactions | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._is_twin = False
        dispatcher = None if make_dispatcher is None else partial(make_dispatcher, self)
        self.capabilities = Capabilities(durable=True, shared=True, clock=self._clock, make_dispatcher=dispatcher)

    def __repr__(self) -> str:
        return f"PostgresStore({self._target.shown!r})"

    async def open(self) -> None:
        async with self._changing:
            if self._transactions is not None:
                self._transactions.check_home()
                return
            if self._is_twin:
                await find_database(self._target, self._clock, self._connection_class)
            else:
                await prepare_database(self._target, self._jobs, self._clock, self._connection_class)
            pool = make_pool(self._target, self._connection_class, self._connections, self._timeout)
            await pool.open()
            self._transactions = Transactions(
                self._target.shown, pool, self._tables, self._feeds.publish, self._timeout
            )

    async def close(self) -> None:
        self._feeds.close()
        # In the background: a caller that is cancelled meanwhile does not leave a connection behind.
        await unhurt(set_going(self._close()))

    async def _close(self) -> None:
        async with self._changing:
            if self._watching is not None:
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)
            transactions, self._transactions = self._transactions, None
            if transactions is not None:
                await transactions.close()

    def twin(self) -> "PostgresStore":
        twin = PostgresStore(
            self._url, jobs=self._jobs, timeout=self._timeout, connections=1, connection_class=self._connection_class
        )
        twin._is_twin = True
        return twin

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        write = writes.Creating(creation, quota, now, claim)
        return await self._opened().write(write, is_single=write.is_single, may_repeat=write.is_single)

    async def commit(self, changes: Sequence[Change]) -> None:
        is_single = len(changes) == 1 and writes.is_single(changes[0])
        await self._write(partial(writes.commit, changes=changes), is_single=is_single)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        return await self._write(partial(writes.claim, request=request, now=now))

    async def first_due(self) -> datetime | None:
        """When the first parked task is due, of all namespaces and tools."""
        return await self._read(reads.first_due)

    async def wake_due(self, now: datetime) -> None:
        """Let parked tasks through to the queue whose moment has come."""
        await self._write(partial(writes.wake_due, now=now))

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        extend = partial(writes.extend_leases, held=held, until=until)
        return await self._opened().write(extend, is_single=True, may_repeat=True)

    async def release_key(self, task_id: TaskId, key: str) -> None:
        await self._write(partial(writes.release_key, task_id=task_id, key=key))

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        return await self._write(partial(writes.prune, now=now, limit=limit, only=only))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        return await self._read(partial(reads.next_due, namespace=namespace, tools=tools))

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return await self._read(partial(reads.overdue, now=now, limit=limit, clock=self._clock))

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
        self, query: TaskQuery, *, now: datetime, after: Position | None = None, limit: int = 100
    ) -> Page:
        if not query.scope.may_list:
            return Page((), None)
        return await self._read(partial(reads.list_tasks, query=query, now=now, after=after, limit=limit))

    async def count_states(self, scope: Scope, *, now: datetime) -> dict[tuple[str, str], int]:
        return await self._read(partial(reads.count_states, scope=scope, now=now)) if scope.may_list else {}

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        return await self._read(partial(reads.count_live, scope=scope)) if scope.may_list else {}

    async def secret(self, name: str) -> bytes:
        found = await self._read(partial(reads.secret, name=name))
        return await self._write(partial(writes.secret, name=name)) if found is None else found

    async def remember(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        return await self._write(partial(writes.remember, namespace=namespace, definitions=definitions))

    async def learn(self, namespace: str, news: Mapping[str, Sketch]) -> dict[str, Sketch]:
        check_news(namespace, news)
        if not news:
            return await self._read(partial(reads.durations, namespace=namespace))
        return await self._write(partial(writes.learn, namespace=namespace, news=news))

    @contextmanager
    def listen(self) -> Generator[Feed]:
        self._opened()
        with self._feeds.listen() as feed:
            if self._watching is None or self._watching.done() or self._watching.cancelling():
                self._watching = asyncio.create_task(watch(self._target, self._channel, self._feeds, self._origin))
            try:
                yield feed
            finally:
                if len(self._feeds) == 1:
                    self._watching.cancel()  # The last to listen. Whoever comes next begins anew.

    async def _read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._opened().read(read)

    async def _write(self, write: Callable[[Tables], Awaitable[T]], *, is_single: bool = False) -> T:
        return await self._opened().write(write, is_single=is_single)

    def _opened(self) -> Transactions:
        if self._transactions is None:
            raise StoreUnavailable(self._target.shown, "the store is not open: open it before use")
        self._transactions.check_home()
        return self._transactions

    def _tables(self, connection: Connection) -> Tables:
        return Tables(connection, self._jobs, self._channel, self._origin)
