"""Connection threads: each owns a connection, so that the event loop never waits for a disk.

A thread takes all calls that have queued up since its last batch and answers them together. For reads that saves trips
between threads. For writes it is the point of the design: `GroupCommitThread` runs a batch in one transaction, so that
however many callers commit at once, the disk is synced once for all of them. It also keeps the write-ahead log short.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from raincheck._async import shield, spawn_background
from raincheck.core.records import TaskId
from raincheck.errors import RaincheckError, StoreUnavailable
from raincheck.stores.sqlite.connection import FileIdentity, file_gone_error, translate_error
from raincheck.stores.sqlite.migrate import schema_version

T = TypeVar("T")

MAX_BATCH = 256
"""The approximate maximum number of calls in a batch. It bounds how long the first caller waits for the rest."""


@dataclass(slots=True, eq=False)
class ThreadCall(Generic[T]):
    """A call to run on a thread's connection, and the future for its result."""

    run: Callable[[sqlite3.Connection], T]
    future: asyncio.Future[T]
    result: Any = None
    error: BaseException | None = None


class WriteResult(NamedTuple, Generic[T]):
    """The result of a write, and the tasks it touched."""

    result: T
    touched: tuple[TaskId, ...]


class ConnectionThread:
    """A thread with its own connection that runs calls in the order of their arrival."""

    def __init__(self, name: str, store: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._store = store
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._pending: list[ThreadCall[Any]] = []
        self._queue: SimpleQueue[list[ThreadCall[Any]] | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._is_closed = False
        self._closed_reason = "the store is closed: open it before use"
        self._stopped_by: BaseException | None = None
        # A daemon, so that a program that forgets to close the store still ends. Killing it is safe at any moment.
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True)

    async def open(self) -> None:
        """Start the thread, and wait until it has its connection."""
        self._thread.start()
        await asyncio.shield(self._opened)

    def submit(self, run: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run the call on the thread. Cancelling the caller does not stop it: it is done whole or not at all."""
        if self._is_closed:
            raise self._closed_error()
        self.check_same_loop()
        call = ThreadCall(run, self._loop.create_future())
        if not self._pending:
            # Enqueued after the loop has run all other ready callbacks, which may want to submit too. That makes
            # batches larger, and keeps the two threads from contending for the interpreter lock all the time.
            self._loop.call_soon(self._enqueue_pending)
        self._pending.append(call)
        return call.future

    def check_same_loop(self) -> None:
        """Check that the caller is on the event loop, and in the process, that opened it."""
        if asyncio.get_running_loop() is not self._loop or os.getpid() != self._pid:
            raise StoreUnavailable(
                self._store, "it was opened by another event loop or process: open a separate store for this one"
            )

    def _enqueue_pending(self) -> None:
        calls, self._pending = self._pending, []
        for first in range(0, len(calls), MAX_BATCH):
            self._queue.put(calls[first : first + MAX_BATCH])

    async def close(self) -> None:
        """Finish the submitted calls, then close the connection."""
        if not self._is_closed:
            self._is_closed = True
            self._enqueue_pending()
            self._queue.put(None)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _run_thread(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - reported to the callers that wait for the thread
            self._call_in_loop(self._fail_permanently, error)
            return
        try:
            self._call_in_loop(self._opened.set_result, None)
            for calls in self._batches(connection):
                self._process_batch(connection, calls)
        except BaseException as error:  # noqa: BLE001 - likewise
            self._call_in_loop(self._fail_permanently, error)
        finally:
            connection.close()

    def _batches(self, connection: sqlite3.Connection) -> Iterator[list[ThreadCall[Any]]]:
        """Yield the calls that have queued up since the last batch, until the thread is closed."""
        while (batch := self._wait_for_calls(connection)) is not None:
            while len(batch) < MAX_BATCH and not self._queue.empty():
                calls = self._queue.get()
                if calls is None:
                    yield batch
                    return
                batch += calls
            yield batch

    def _process_batch(self, connection: sqlite3.Connection, calls: list[ThreadCall[Any]]) -> None:
        try:
            self._run(connection, calls)
        except BaseException as error:
            # The outcome of this batch is unknown, so none of its callers may get a result.
            for call in calls:
                call.error = error
            raise
        finally:
            self._call_in_loop(self._settle, calls)
        self._tidy_up(connection)

    def _wait_for_calls(self, connection: sqlite3.Connection) -> list[ThreadCall[Any]] | None:  # noqa: ARG002 - for subclasses
        return self._queue.get()

    def _run(self, connection: sqlite3.Connection, calls: list[ThreadCall[Any]]) -> None:
        for call in calls:
            self._run_call(connection, call)

    def _tidy_up(self, connection: sqlite3.Connection) -> None:
        """Do work that can wait until the callers of a batch have their results."""

    def _run_call(self, connection: sqlite3.Connection, call: ThreadCall[Any]) -> None:
        try:
            call.result = call.run(connection)
        except Exception as error:  # noqa: BLE001 - belongs to the caller
            call.error = self._translated(error)

    def _call_in_loop(self, callback: Callable[[Any], None], argument: object) -> None:
        # The loop may be closed by now if the program ended without closing the store; then no caller waits any more.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, argument)

    def _fail_permanently(self, error: BaseException) -> None:
        """Mark the thread as broken: fail every waiting caller, and refuse new calls."""
        error = self._translated(error)
        self._stopped_by = error
        self._closed_reason = f"an unexpected error stopped it ({error!r}): close the store and open it again"
        self._is_closed = True
        if not self._opened.done():
            self._opened.set_exception(error)
        self._enqueue_pending()
        while not self._queue.empty():
            calls = self._queue.get() or []
            for call in calls:
                call.error = self._closed_error()
            self._settle(calls)

    def _translated(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        translated = translate_error(error, self._store)
        translated.__cause__ = error
        return translated

    def _closed_error(self) -> StoreUnavailable:
        refusal = StoreUnavailable(self._store, self._closed_reason)
        refusal.__cause__ = self._stopped_by
        return refusal

    def _settle(self, calls: list[ThreadCall[Any]]) -> None:
        for call in calls:
            if call.future.done():
                continue
            if call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.result)


WAL_LIMIT = 4 * 1_024 * 1_024
"""Size in bytes above which the write-ahead log is moved into the database."""

CHECKPOINT_WAIT = 250
"""Milliseconds to wait for readers that block moving the log. Writers wait meanwhile, so it is short."""

IDLE_CHECKPOINT_AFTER = 0.5
"""Seconds without a write after which the rest of the log is moved too."""

MAX_CHECKPOINT_RETRY = 60.0
"""Maximum seconds between two tries at that, if a reader blocks it."""


class GroupCommitThread(ConnectionThread):
    """Groups the commits of many callers. Each is still atomic: a call that fails does not affect the other ones.

    It also moves the write-ahead log into the database (a checkpoint), instead of leaving that to SQLite, for two
    reasons: the file then shrinks back to nothing, and the checkpoint takes the write lock first. SQLite before 3.51.3
    can, very rarely, damage a file when one process moves the log just while another restarts it; a process with the
    write lock is safe from that. (If it can't get the lock in time, SQLite moves what it can without it.)

    While it is busy, the log restarts in its existing file, since a disk syncs overwritten blocks twice as fast as
    those that extend a file. So a growing file means that the log has become longer than before.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        identity: FileIdentity | None,
        connect: Callable[[], sqlite3.Connection],
        newest_version: int,
        announce: Callable[[Iterable[TaskId]], None],
        on_rollback: Callable[[], None],
    ) -> None:
        self._announce = announce
        self._on_rollback = on_rollback
        self._path = path
        self._identity = identity
        self._wal = path.with_name(path.name + "-wal")
        self._newest_version = newest_version
        self._wal_limit = WAL_LIMIT
        self._idle_after: float | None = None
        super().__init__(name, str(path), connect)

    def _wait_for_calls(self, connection: sqlite3.Connection) -> list[ThreadCall[Any]] | None:
        while self._idle_after is not None:
            try:
                return self._queue.get(timeout=self._idle_after)
            except Empty:
                is_empty = self._checkpoint(connection, "TRUNCATE")
                self._idle_after = None if is_empty else min(2 * self._idle_after, MAX_CHECKPOINT_RETRY)
        return self._queue.get()

    def _run(self, connection: sqlite3.Connection, calls: list[ThreadCall[Any]]) -> None:
        # First together, which takes one sync for all. If a call failed after it had written something, together with
        # savepoints. If the transaction as a whole failed, one by one. Calls can be run again.
        if self._commit(connection, calls) or self._commit(connection, calls, with_savepoints=True):
            return
        for call in calls:
            self._commit(connection, [call])

    def _tidy_up(self, connection: sqlite3.Connection) -> None:
        self._idle_after = IDLE_CHECKPOINT_AFTER
        size = self._wal_size()
        if size > self._wal_limit:
            self._checkpoint(connection, "TRUNCATE" if size > 2 * WAL_LIMIT else "RESTART")

    def _commit(
        self, connection: sqlite3.Connection, calls: list[ThreadCall[Any]], *, with_savepoints: bool = False
    ) -> bool:
        """Run the calls in one transaction; false if nothing was stored and they should be retried more carefully.

        Most calls that fail do so before they write (a stale change finds no row to update) and need nothing more. A
        call that fails after it wrote has to be rolled back: to its savepoint or, without one, with the whole batch.
        """
        for call in calls:
            call.error = None
        try:
            self._begin(connection)
        except (sqlite3.Error, RaincheckError) as error:
            self._fail(connection, calls, error)
            return True
        for call in calls:
            written = connection.total_changes
            if with_savepoints:
                connection.execute("SAVEPOINT job")
            self._run_call(connection, call)
            if call.error is not None and (connection.total_changes != written or not connection.in_transaction):
                # A full disk, among others, makes SQLite roll back the whole transaction by itself.
                if not (with_savepoints and connection.in_transaction):
                    self._roll_back(connection)
                    return len(calls) == 1
                connection.execute("ROLLBACK TO job")
                self._on_rollback()
            if with_savepoints:
                connection.execute("RELEASE job")
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(connection, calls, error)
            return len(calls) == 1
        return True

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have installed a newer raincheck, and migrated the file while it is open here. The full
        # check runs only if the version differs: this is done for every commit.
        if connection.execute("PRAGMA user_version").fetchone()[0] != self._newest_version:
            schema_version(connection, self._store, self._newest_version)
        try:
            found = os.stat(self._path)  # noqa: PTH116 - twice as fast as Path.stat, and called for every commit
        except OSError as error:
            raise file_gone_error(self._path) from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise file_gone_error(self._path)

    def _settle(self, calls: list[ThreadCall[Any]]) -> None:
        super()._settle(calls)
        # Published here and not by the callers: a caller that was cancelled meanwhile would not do it.
        self._announce(task_id for call in calls if call.error is None for task_id in call.result.touched)

    def _fail(
        self, connection: sqlite3.Connection, calls: list[ThreadCall[Any]], error: sqlite3.Error | RaincheckError
    ) -> None:
        """Roll back and fail all calls: nothing was stored."""
        self._roll_back(connection)
        for call in calls:
            call.error = call.error or self._translated(error)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._on_rollback()
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _checkpoint(self, connection: sqlite3.Connection, then: Literal["RESTART", "TRUNCATE"]) -> bool:
        """Move the log into the database, and return whether it restarts: in its existing file, or in an empty one.

        A long read of another connection may block it. Then it is retried when the log has grown to twice its size, so
        that an unavoidable block is not waited for again and again.
        """
        timeout: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT}")
        try:
            is_blocked, *_ = connection.execute(f"PRAGMA wal_checkpoint({then})").fetchone()
        except sqlite3.Error:
            # It is only maintenance: committed data is safe where it is, and a disk error shows at the next write.
            is_blocked = True
        finally:
            connection.execute(f"PRAGMA busy_timeout = {timeout:d}")
        self._wal_limit = max(WAL_LIMIT, self._wal_size() * (2 if is_blocked else 1))
        return not is_blocked

    def _wal_size(self) -> int:
        try:
            return self._wal.stat().st_size
        except OSError:
            return 0


async def open_threads(reader: ConnectionThread, writer: GroupCommitThread) -> None:
    """Open both, or neither."""
    try:
        await writer.open()
        await reader.open()
    except BaseException:
        await shield(spawn_background(close_threads(reader, writer)))
        raise


async def close_threads(reader: ConnectionThread, writer: GroupCommitThread) -> None:
    # The reader first: the last connection to close moves the rest of the log, so it must be able to write.
    await reader.close()
    await writer.close()
