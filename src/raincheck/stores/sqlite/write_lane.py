"""The lane that writes: one transaction for all that has queued up, and a log that shrinks back."""

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty
from typing import Any, Literal

from raincheck.core.records import TaskId
from raincheck.errors import RaincheckError
from raincheck.futures import set_going, unhurt
from raincheck.stores.sqlite.connect import Identity, file_is_gone, identity_of
from raincheck.stores.sqlite.lane import Job, Lane
from raincheck.stores.sqlite.migrate import schema_version

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
