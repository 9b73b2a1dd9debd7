"""The lane that writes: one transaction for all that has queued up, and a log that shrinks back."""

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty
from typing import Any

from raincheck.core.records import TaskId
from raincheck.errors import RaincheckError
from raincheck.stores.sqlite.errors import translate
from raincheck.stores.sqlite.lane import Job, Lane
from raincheck.stores.sqlite.migrate import schema_version

WAL_LIMIT = 4 * 1_024 * 1_024
"""Bytes after which the write-ahead log is moved into the database."""

IDLE_AFTER = 0.5
"""Seconds without a write after which what is left in the log is moved too."""


class WriteLane(Lane):
    """Groups the commits of many callers. Each is still whole: one that fails takes nothing with it.

    It also moves the write-ahead log into the database, instead of leaving that to SQLite, for two reasons: the
    file then shrinks back to nothing, and it is done under the write lock. SQLite before 3.51.3 can, very
    rarely, damage a file when one process moves the log just while another starts it anew; under the write lock
    nobody can.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        known_version: int,
        announce: Callable[[Iterable[TaskId]], None],
    ) -> None:
        self._announce = announce
        self._wal = path.with_name(path.name + "-wal")
        self._known_version = known_version
        self._has_written = False
        super().__init__(name, str(path), connect)

    def _wait_for_jobs(self, connection: sqlite3.Connection) -> list[Job[Any]] | None:
        if self._has_written:
            try:
                return self._jobs.get(timeout=IDLE_AFTER)
            except Empty:
                self._checkpoint(connection)
                self._has_written = False
        return self._jobs.get()

    def _run(self, connection: sqlite3.Connection, jobs: list[Job[Any]]) -> None:
        if not jobs:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have brought a newer raincheck, and migrated the file under this one.
            schema_version(connection, self._store, self._known_version)
            if not self._run_plainly(connection, jobs):
                self._roll_back(connection)
                connection.execute("BEGIN IMMEDIATE")
                self._run_in_savepoints(connection, jobs)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail_round(connection, jobs, translate(error, self._store), error)
        except RaincheckError as error:
            self._fail_round(connection, jobs, error, error.__cause__)
        self._has_written = True
        if self._wal_size() > WAL_LIMIT:
            self._checkpoint(connection)

    def _run_plainly(self, connection: sqlite3.Connection, jobs: list[Job[Any]]) -> bool:
        """Run the jobs one after the other; false if one failed after it had written something.

        Most jobs that fail do so before they write (a stale change finds no row to update), so the cost of savepoints
        is paid only in the rounds that need them.
        """
        for job in jobs:
            written = connection.total_changes
            self._run_one(connection, job)
            if job.error is not None and not (connection.in_transaction and connection.total_changes == written):
                return False
        return True

    def _run_in_savepoints(self, connection: sqlite3.Connection, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            job.error = None
            connection.execute("SAVEPOINT job")
            self._run_one(connection, job)
            if job.error is not None:
                connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")

    def _settle(self, jobs: list[Job[Any]]) -> None:
        super()._settle(jobs)
        # Said here and not by the callers: one that was cancelled meanwhile would not say it.
        self._announce(task_id for job in jobs if job.error is None for task_id in _touched(job))

    def _fail_round(
        self, connection: sqlite3.Connection, jobs: list[Job[Any]], error: Exception, cause: BaseException | None
    ) -> None:
        """Nothing of the round was kept, so nobody in it may be told otherwise."""
        error.__cause__ = cause
        self._roll_back(connection)
        for job in jobs:
            job.error = job.error or error

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        # Some errors, a full disk among them, have rolled everything back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        # If a reader or writer is in the way, it just stays for the next time.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _wal_size(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0


def _touched(job: Job[Any]) -> tuple[TaskId, ...]:
    return () if job.result is None else job.result.touched
