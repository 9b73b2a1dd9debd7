"""The SQLite store: the methods of the store interface, each a call on the reader thread or the writer thread.

Several processes may use one file. Readers never wait for writers (the file has a write-ahead log), and writers wait
for each other in SQLite, for the length of a commit.
"""

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar, get_args

from raincheck._async import shield, spawn_background
from raincheck.core.change import Change, Creation
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import ConfigurationError, StoreUnavailable
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import ChangeBroadcaster, ChangeFeed
from raincheck.stores.requests import (
    PAGE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    Page,
    PageCursor,
    TaskQuery,
    check_durations,
)
from raincheck.stores.sqlite import reads, writes
from raincheck.stores.sqlite.connection import (
    ConnectFunction,
    FileIdentity,
    check_existing_file,
    connect,
    file_identity,
    open_reader,
    open_writer,
    prepare_file,
)
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.sqlite.notifications import log_changes, watch_changes
from raincheck.stores.sqlite.threads import ConnectionThread, GroupCommitThread, close_threads, open_threads
from raincheck.stores.url import Synchronous

T = TypeVar("T")


class SqliteStore:
    """A store that keeps tasks in one SQLite file.

    `synchronous="FULL"` keeps committed data through a power loss; `"NORMAL"` is faster and may then lose the last
    moments, but no more. `lock_timeout` is how many seconds to wait for other processes.
    """

    capabilities = Capabilities(durable=True, shared=True)

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
        self._path = Path(path)
        self.synchronous: Synchronous = synchronous
        self._lock_timeout = lock_timeout
        self._connect = connect
        # Distinguishes this handle's changes, which reach its listeners directly, from those of other handles on the
        # file.
        self._origin = secrets.token_hex(8)
        self._feeds = ChangeBroadcaster()
        self._reader: ConnectionThread | None = None
        self._writer: GroupCommitThread | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._open_close_lock = asyncio.Lock()
        self._must_exist = False
        self._identity: FileIdentity | None = None

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    async def open(self) -> None:
        async with self._open_close_lock:
            if self._writer is None:
                await self._open_threads()
            else:
                self._writer.check_same_loop()

    async def close(self) -> None:
        self._feeds.close()
        # In the background, so that cancelling the caller does not leak a thread or a connection.
        await shield(spawn_background(self._close()))

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
        writer = GroupCommitThread("raincheck-write", path, self._identity, write, newest_version, self._feeds.publish)
        reader = ConnectionThread("raincheck-read", str(path), read)
        await open_threads(reader, writer)
        self._writer, self._reader = writer, reader

    async def _close(self) -> None:
        async with self._open_close_lock:
            if self._watch_task is not None:
                self._watch_task.cancel()
                await asyncio.gather(self._watch_task, return_exceptions=True)
            reader, writer = self._reader, self._writer
            self._reader = self._writer = None
            if reader is not None and writer is not None:
                await close_threads(reader, writer)

    def new_handle(self) -> "SqliteStore":
        handle = SqliteStore(
            self._path, synchronous=self.synchronous, lock_timeout=self._lock_timeout, connect=self._connect
        )
        handle._must_exist, handle._identity = True, self._identity
        return handle

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        return await self._write(partial(writes.create, creation=creation, quota=quota, now=now, claim=claim))

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._write(partial(writes.commit, changes=changes))

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        return await self._write(partial(writes.claim, request=request, now=now))

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        return await self._write(partial(writes.extend_leases, held=held, until=until))

    async def release_key(self, task_id: TaskId, key: str) -> None:
        await self._write(partial(writes.release_key, task_id=task_id, key=key))

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        return await self._write(partial(writes.prune, now=now, limit=limit, only=only))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        return await self._read(partial(reads.next_due, namespace=namespace, tools=tools))

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return await self._read(partial(reads.list_overdue, now=now, limit=limit))

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
        reader = self._require_open(self._reader)
        with self._feeds.listen() as feed:
            if self._watch_task is None or self._watch_task.done():
                self._watch_task = asyncio.create_task(watch_changes(reader, self._feeds, self._origin))
            yield feed

    def _require_open(self, thread: ConnectionThread | None) -> ConnectionThread:
        if thread is None:
            raise StoreUnavailable(str(self._path), "the store is not open: open it before use")
        return thread

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        return await self._require_open(self._reader).submit(read)

    async def _write(self, write: Callable[[sqlite3.Connection], writes.WriteResult[T]]) -> T:
        return (await self._require_open(self._writer).submit(partial(self._write_and_log, write))).result

    def _write_and_log(
        self, write: Callable[[sqlite3.Connection], writes.WriteResult[T]], connection: sqlite3.Connection
    ) -> writes.WriteResult[T]:
        written = write(connection)
        log_changes(connection, written.touched, self._origin)
        return written
