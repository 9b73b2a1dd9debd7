"""The lane that writes: one transaction for all that has queued up, and a log that shrinks back.

Lanes: threads with a connection each, so that the event loop never waits for a disk.

A lane takes all that has queued up since its last round and answers it in one go. For reads that saves trips between
threads. For writes it is the point of the design: `WriteLane` puts a round into one transaction, so that however many
callers commit at once, the disk is synced once for all of them.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, TypeVar

from raincheck._async import set_going, unhurt
from raincheck.core.records import TaskId
from raincheck.errors import RaincheckError, StoreUnavailable
from raincheck.stores.sqlite.connection import Identity, file_is_gone, identity_of, translate
from raincheck.stores.sqlite.migrate import schema_version

T = TypeVar("T")

ROUND_LIMIT = 256
"""About how many jobs a round takes at most, so that the first caller does not wait for too many others."""


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """Something to do on a lane's connection, and where its result goes."""

    run: Callable[[sqlite3.Connection], T]
    future: asyncio.Future[T]
    result: T | None = None
    error: BaseException | None = None


class Lane:
    """A thread with a connection of its own that does jobs in the order of their arrival."""

    def __init__(self, name: str, store: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._store = store
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._pending: list[Job[Any]] = []
        self._jobs: SimpleQueue[list[Job[Any]] | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._is_closed = False
        self._why_closed = "the store is closed: open it before use"
        self._broken_by: BaseException | None = None
        # A daemon, so that a program that forgets to close the store still ends. Being killed is safe at any moment.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    async def open(self) -> None:
        """Start the thread, and wait until it has its connection."""
        self._thread.start()
        await asyncio.shield(self._opened)

    def submit(self, run: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Do it on the lane's thread. A caller that is cancelled does not stop it: it is done whole or not at all."""
        if self._is_closed:
            raise self._refusal()
        self.check_home()
        job = Job(run, self._loop.create_future())
        if not self._pending:
            # Handed over when the loop has run everybody else who is ready, and may want to submit too. That makes
            # rounds larger, and keeps the two threads from taking the interpreter's lock from each other all the time.
            self._loop.call_soon(self._hand_over)
        self._pending.append(job)
        return job.future

    def check_home(self) -> None:
        """Refuse to be used by another event loop, or in another process, than the one that opened it."""
        if asyncio.get_running_loop() is not self._loop or os.getpid() != self._process:
            raise StoreUnavailable(
                self._store, "it was opened by another event loop or process: open a store of its own for this one"
            )

    def _hand_over(self) -> None:
        jobs, self._pending = self._pending, []
        for first in range(0, len(jobs), ROUND_LIMIT):
            self._jobs.put(jobs[first : first + ROUND_LIMIT])

    async def close(self) -> None:
        """Finish what was submitted, then let go of the connection."""
        if not self._is_closed:
            self._is_closed = True
            self._hand_over()
            self._jobs.put(None)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the lane is told
            self._tell_loop(self._break, error)
            return
        try:
            self._tell_loop(self._set_opened, None)
            self._serve_with(connection)
        except BaseException as error:  # noqa: BLE001 - likewise
            self._tell_loop(self._break, error)
        finally:
            connection.close()

    def _serve_with(self, connection: sqlite3.Connection) -> None:
        is_last = False
        while not is_last:
            jobs, is_last = self._next_round(connection)
            # The last round has often nothing to do, and then should not wait for a lock either.
            if jobs:
                self._serve_round(connection, jobs)

    def _serve_round(self, connection: sqlite3.Connection, jobs: list[Job[Any]]) -> None:
        try:
            self._run(connection, jobs)
        except BaseException as error:
            # Nobody can say what became of this round, so nobody in it may be told that it went well.
            for job in jobs:
                job.error = error
            raise
        finally:
            self._tell_loop(self._settle, jobs)
        self._tidy_up(connection)

    def _next_round(self, connection: sqlite3.Connection) -> tuple[list[Job[Any]], bool]:
        round_jobs: list[Job[Any]] = []
        jobs = self._wait_for_jobs(connection)
        while jobs is not None:
            round_jobs += jobs
            if len(round_jobs) >= ROUND_LIMIT:
                return round_jobs, False
            try:
                jobs = self._jobs.get_nowait()
            except Empty:
                return round_jobs, False
        return round_jobs, True

    def _wait_for_jobs(self, connection: sqlite3.Connection) -> list[Job[Any]] | None:  # noqa: ARG002 - for subclasses
        return self._jobs.get()

    def _run(self, connection: sqlite3.Connection, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            self._run_one(connection, job)

    def _tidy_up(self, connection: sqlite3.Connection) -> None:
        """What can wait until the callers of a round have their answers."""

    def _run_one(self, connection: sqlite3.Connection, job: Job[Any]) -> None:
        try:
            job.result = job.run(connection)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            job.error = self._translated(error)

    def _tell_loop(self, tell: Callable[[Any], None], what: object) -> None:
        # The loop may be gone by now if the program ended without closing the store; then nobody waits any more.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell, what)

    def _break(self, error: BaseException) -> None:
        """The lane is broken: nobody is left waiting, and nobody can submit any more."""
        error = self._translated(error)
        self._broken_by = error
        self._why_closed = f"an unexpected error stopped it ({error!r}): close the store and open it again"
        self._is_closed = True
        self._set_opened(error)
        self._hand_over()
        while not self._jobs.empty():
            jobs = self._jobs.get() or []
            for job in jobs:
                job.error = self._refusal()
            self._settle(jobs)

    def _set_opened(self, error: BaseException | None) -> None:
        # Whoever waited for it may have been cancelled.
        if self._opened.done():
            return
        if error is None:
            self._opened.set_result(None)
        else:
            self._opened.set_exception(error)

    def _translated(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        translated = translate(error, self._store)
        translated.__cause__ = error
        return translated

    def _refusal(self) -> StoreUnavailable:
        refusal = StoreUnavailable(self._store, self._why_closed)
        refusal.__cause__ = self._broken_by
        return refusal

    def _settle(self, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)


WAL_LIMIT = 4 * 1_024 * 1_024
"""Bytes after which the write-ahead log is moved into the database."""

CHECKPOINT_WAIT = 250
"""Milliseconds to wait for readers that keep the log from being moved. Writers wait meanwhile, so it is short."""

IDLE_AFTER = 0.5
"""Seconds without a write after which what is left in the log is moved too."""

LONGEST_IDLE = 60.0
"""Seconds between two tries at that, if a reader stays in the way."""


class WriteLane(Lane):
    """Groups the commits of many callers. Each is still whole: one that fails takes nothing with it.

    It also moves the write-ahead log into the database, instead of leaving that to SQLite, for two reasons: the
    file then shrinks back to nothing, and it asks for the write lock first. SQLite before 3.51.3 can, very
    rarely, damage a file when one process moves the log just while another starts it anew; who has the write lock
    is safe from that. (Where the lock can't be had in time, SQLite moves what it can without it.)

    While it is busy, the log starts anew in the file that it has, since a disk syncs what is written over twice as
    fast as what makes a file longer. That the file grows means then that the log has become longer than it was.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        identity: Identity | None,
        connect: Callable[[], sqlite3.Connection],
        known_version: int,
        announce: Callable[[Iterable[TaskId]], None],
    ) -> None:
        self._announce = announce
        self._path = path
        self._identity = identity
        self._wal = path.with_name(path.name + "-wal")
        self._known_version = known_version
        self._wal_limit = WAL_LIMIT
        self._idle_after: float | None = None
        super().__init__(name, str(path), connect)

    def _wait_for_jobs(self, connection: sqlite3.Connection) -> list[Job[Any]] | None:
        while self._idle_after is not None:
            try:
                return self._jobs.get(timeout=self._idle_after)
            except Empty:
                is_empty = self._checkpoint(connection, "TRUNCATE")
                self._idle_after = None if is_empty else min(2 * self._idle_after, LONGEST_IDLE)
        return self._jobs.get()

    def _run(self, connection: sqlite3.Connection, jobs: list[Job[Any]]) -> None:
        # Together, since that is one sync for all; then together with savepoints, if one failed after it had written
        # something; then one by one, if the transaction as a whole could not be had. Jobs can be run again.
        if self._commit(connection, jobs) or self._commit(connection, jobs, with_savepoints=True):
            return
        for job in jobs:
            self._commit(connection, [job])

    def _tidy_up(self, connection: sqlite3.Connection) -> None:
        self._idle_after = IDLE_AFTER
        size = self._wal_size()
        if size > self._wal_limit:
            self._checkpoint(connection, "TRUNCATE" if size > 2 * WAL_LIMIT else "RESTART")

    def _commit(self, connection: sqlite3.Connection, jobs: list[Job[Any]], *, with_savepoints: bool = False) -> bool:
        """Do the jobs in one transaction; false if nothing was kept and they should be tried more carefully.

        Most jobs that fail do so before they write (a stale change finds no row to update) and need nothing more. One
        that fails after it wrote has to be rolled back: to its savepoint or, without one, with all the others.
        """
        for job in jobs:
            job.error = None
        try:
            self._begin(connection)
        except (sqlite3.Error, RaincheckError) as error:
            self._fail(connection, jobs, error)
            return True
        for job in jobs:
            written = connection.total_changes
            if with_savepoints:
                connection.execute("SAVEPOINT job")
            self._run_one(connection, job)
            if job.error is not None and (connection.total_changes != written or not connection.in_transaction):
                # A full disk, among others, makes SQLite roll the whole transaction back by itself.
                if not (with_savepoints and connection.in_transaction):
                    self._roll_back(connection)
                    return len(jobs) == 1
                connection.execute("ROLLBACK TO job")
            if with_savepoints:
                connection.execute("RELEASE job")
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(connection, jobs, error)
            return len(jobs) == 1
        return True

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have brought a newer raincheck, and migrated the file under this one. Everything is looked
        # at only if something is not as it was: this is done for every commit.
        if connection.execute("PRAGMA user_version").fetchone()[0] != self._known_version:
            schema_version(connection, self._store, self._known_version)
        if identity_of(self._path) != self._identity:
            raise file_is_gone(self._path)

    def _settle(self, jobs: list[Job[Any]]) -> None:
        super()._settle(jobs)
        # Said here and not by the callers: one that was cancelled meanwhile would not say it.
        self._announce(task_id for job in jobs if job.error is None for task_id in _touched(job))

    def _fail(
        self, connection: sqlite3.Connection, jobs: list[Job[Any]], error: sqlite3.Error | RaincheckError
    ) -> None:
        """Nothing was kept, so nobody may be told otherwise."""
        self._roll_back(connection)
        for job in jobs:
            job.error = job.error or self._translated(error)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _checkpoint(self, connection: sqlite3.Connection, then: Literal["RESTART", "TRUNCATE"]) -> bool:
        """Move the log into the database, and say whether it starts anew: in the file that it has, or in none.

        Somebody's long read may keep it from that. Then it is tried again when the log has grown to twice its
        size, so that what can't be helped is not waited for again and again.
        """
        timeout: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT}")
        try:
            is_blocked, *_ = connection.execute(f"PRAGMA wal_checkpoint({then})").fetchone()
        except sqlite3.Error:
            # It is tidying up: what was committed is safe where it is, and a disk in trouble shows at the next write.
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


async def open_lanes(reader: Lane, writer: WriteLane) -> None:
    """Open both, or neither."""
    try:
        await writer.open()
        await reader.open()
    except BaseException:
        await unhurt(set_going(close_lanes(reader, writer)))
        raise


async def close_lanes(reader: Lane, writer: WriteLane) -> None:
    # The reader first: the last connection to go moves what is left in the log, so that one must be able to write.
    await reader.close()
    await writer.close()


def _touched(job: Job[Any]) -> tuple[TaskId, ...]:
    return () if job.result is None else job.result.touched
