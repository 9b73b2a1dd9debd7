"""The SQLite store: each of its methods is a call on the reader thread or the writer thread.

Several processes may use one file. Readers never wait for writers (the file has a write-ahead log), and writers wait
for each other in SQLite, for the length of a commit.
"""

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar, get_args

from raincheck.clock import SteadyClock
from raincheck.core.change import Change, Creation
from raincheck.core.policies import Quota
from raincheck.core.records import Task, TaskId
from raincheck.errors import ConfigurationError, StoreError, StoreUnavailable
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import ChangeBroadcaster, ChangeFeed
from raincheck.stores.requests import ClaimRequest, HeldAttempt
from raincheck.stores.sql import to_datetime
from raincheck.stores.sql_store import Plan, SqlStore
from raincheck.stores.sqlite import writes
from raincheck.stores.sqlite.connection import (
    ConnectFunction,
    CorruptData,
    FileIdentity,
    check_existing_file,
    connect,
    file_identity,
    open_reader,
    open_writer,
    prepare_file,
)
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.sqlite.threads import (
    ConnectionThread,
    GroupCommitThread,
    WriteResult,
    close_threads,
    open_threads,
)
from raincheck.stores.sqlite.writes import QUERIES, LiveCounts, SqliteTables
from raincheck.stores.url import Synchronous

logger = logging.getLogger(__name__)

BUSY_INTERVAL = 0.025
IDLE_INTERVAL = 0.25
IDLE_AFTER_POLLS = 40
"""After this many polls that found nothing, it polls less often."""

LOG_LIMIT = 16_384
"""The number of changes the log keeps. A listener further behind is notified that any task may have changed."""

_TRIM_EVERY = 1_024


class ChangeBatch(NamedTuple):
    """The changes found by one poll of the log."""

    newest: int
    task_ids: frozenset[TaskId]
    has_gap: bool


def read_latest_time(connection: sqlite3.Connection) -> int:
    """Return a time that has passed, in microseconds: the latest that the file knows of."""
    return connection.execute(QUERIES["latest_time"]).fetchone()[0]


def log_changes(connection: sqlite3.Connection, task_ids: tuple[TaskId, ...], origin: str) -> None:
    """Record in the log that tasks changed, and occasionally trim old entries."""
    for task_id in task_ids:
        seq = connection.execute(QUERIES["log_change"], (task_id, origin)).lastrowid
        if seq is not None and seq % _TRIM_EVERY == 0:
            connection.execute(QUERIES["trim_changes"], (seq - LOG_LIMIT,))


def read_changes(connection: sqlite3.Connection, seen: int, origin: str) -> ChangeBatch:
    """Read the changes by other handles than `origin` since the position `seen` in the log."""
    oldest, newest = connection.execute(QUERIES["changes_bounds"]).fetchone()
    if newest <= seen:
        return ChangeBatch(seen, frozenset(), has_gap=False)
    rows = connection.execute(QUERIES["changes_since"], {"seen": seen, "origin": origin}).fetchall()
    newest = max([newest, *(seq for seq, _ in rows)])
    return ChangeBatch(newest, frozenset(TaskId(task_id) for _, task_id in rows), has_gap=oldest > seen + 1)


async def watch_changes(thread: ConnectionThread, feeds: ChangeBroadcaster, origin: str) -> None:
    """Publish changes by other handles to the feeds, until there are no listeners."""
    seen: int | None = None
    quiet_polls = 0
    while feeds:
        try:
            batch = await thread.submit(partial(read_changes, seen=seen or 0, origin=origin))
        except StoreError:
            # The file can't be read just now. A listener finds out by its own reads; here the poll is only retried.
            seen, quiet_polls = None, IDLE_AFTER_POLLS
        else:
            quiet_polls = quiet_polls + 1 if batch.newest == seen else 0
            # At the first poll, it is unknown which of the changes came after the first listener.
            if seen is None or batch.has_gap:
                feeds.publish_any_task()
            else:
                feeds.publish(batch.task_ids)
            seen = batch.newest
        await asyncio.sleep(BUSY_INTERVAL if quiet_polls < IDLE_AFTER_POLLS else IDLE_INTERVAL)


T = TypeVar("T")


class SqliteStore(SqlStore):
    """A store that keeps tasks in one SQLite file.

    `synchronous="FULL"` keeps committed data through a power loss; `"NORMAL"` is faster and may then lose the last
    moments, but no more. `lock_timeout` is how many seconds to wait for other processes.
    """

    needs_row_locks = False
    damaged = CorruptData
    encode_tools = staticmethod(writes.encode_tools)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        lock_timeout: float = 30.0,
        connect: ConnectFunction = connect,
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise ConfigurationError(f"synchronous is one of {get_args(Synchronous)}, not {synchronous!r}")
        super().__init__()
        self._path = Path(path)
        self.synchronous: Synchronous = synchronous
        self._lock_timeout = lock_timeout
        self._connect = connect
        self._reader: ConnectionThread | None = None
        self._writer: GroupCommitThread | None = None
        self._identity: FileIdentity | None = None
        self._live_counts = LiveCounts()
        self._clock = SteadyClock()
        self._shared_ahead = self._clock.ahead
        self.capabilities = Capabilities(durable=True, shared=True, clock=self._clock)

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    async def open(self) -> None:
        async with self._open_close_lock:
            if self._writer is None:
                await self._open_threads()
            else:
                self._writer.check_same_loop()

    async def _open_threads(self) -> None:
        migrations = await asyncio.to_thread(shipped_migrations)
        prepare = partial(check_existing_file, identity=self._identity) if self._must_exist else prepare_file
        path = await asyncio.to_thread(
            prepare, self._path, open_connection=self._connect, timeout=self._lock_timeout, migrations=migrations
        )
        # The real path from now on, so that it stays the same file if the program changes its working directory.
        self._path, self._identity = path, await asyncio.to_thread(file_identity, path)
        write = partial(open_writer, self._connect, path, self._lock_timeout, self.synchronous)
        read = partial(open_reader, self._connect, path, self._lock_timeout)
        newest_version = migrations[-1].version
        self._live_counts = LiveCounts()
        writer = GroupCommitThread(
            "raincheck-write",
            path,
            self._identity,
            write,
            newest_version,
            self._feeds.publish,
            on_rollback=self._live_counts.discard,
        )
        reader = ConnectionThread("raincheck-read", str(path), read)
        await open_threads(reader, writer)
        self._writer, self._reader = writer, reader
        try:
            await self._agree_on_time()
        except BaseException:
            await self._disconnect()
            raise
        if self._clock.ahead:
            logger.warning(
                "store %s: this machine's clock was set back: tasks continue with a clock that is %.0f s ahead of it",
                path,
                self._clock.ahead.total_seconds(),
            )

    async def _disconnect(self) -> None:
        reader, writer = self._reader, self._writer
        self._reader = self._writer = None
        if reader is not None and writer is not None:
            await close_threads(reader, writer)

    def new_handle(self) -> "SqliteStore":
        handle = SqliteStore(
            self._path, synchronous=self.synchronous, lock_timeout=self._lock_timeout, connect=self._connect
        )
        handle._must_exist, handle._identity = True, self._identity
        handle._clock, handle.capabilities = self._clock, self.capabilities
        return handle

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        return await self._transact(partial(writes.create, creation=creation, quota=quota, now=now, claim=claim))

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._transact(partial(writes.commit, changes=changes))

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        return await self._transact(partial(writes.claim, request=request, now=now))

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        return await self._transact(partial(writes.extend_leases, held=held, until=until, now=self._clock.now()))

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        return await self._transact(partial(writes.prune, now=now, limit=limit, only=only))

    async def _agree_on_time(self) -> None:
        """Continue from the latest time in the file, and write it there once this process finds the clock set back."""
        self._clock.continue_from(to_datetime(await self._require_open(self._reader).submit(read_latest_time)))
        if self._clock.ahead > self._shared_ahead:
            await self._transact(partial(writes.put_latest_time, now=self._clock.now()))
        self._shared_ahead = self._clock.ahead

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        # Every sweep calls this.
        await self._agree_on_time()
        return await self._read(partial(writes.list_overdue, now, limit))

    @contextmanager
    def listen(self) -> Generator[ChangeFeed]:
        reader = self._require_open(self._reader)
        with self._feeds.listen() as feed:
            if self._watch_task is None or self._watch_task.done():
                self._watch_task = asyncio.create_task(watch_changes(reader, self._feeds, self._origin))
            yield feed

    def _require_open(self, thread: ConnectionThread | None) -> ConnectionThread:
        if thread is None:
            raise StoreUnavailable(str(self._path), "the store is not open: open it before use")
        return thread

    @staticmethod
    def encode_texts(texts: Sequence[str]) -> str:
        return json.dumps(texts)

    async def _read(self, plan: Callable[[], Plan[T]]) -> T:
        return await self._require_open(self._reader).submit(partial(writes.run_read, plan=plan))

    async def _write(self, plan: Callable[[], Plan[T]]) -> T:
        return await self._transact(lambda tables: tables.run(plan()))

    async def _transact(self, write: Callable[[SqliteTables], T]) -> T:
        return (await self._require_open(self._writer).submit(partial(self._write_and_log, write))).result

    def _write_and_log(self, write: Callable[[SqliteTables], T], connection: sqlite3.Connection) -> WriteResult[T]:
        tables = SqliteTables(connection, self._live_counts)
        written = WriteResult(write(tables), tuple(dict.fromkeys(tables.touched)))
        log_changes(connection, written.touched, self._origin)
        return written
