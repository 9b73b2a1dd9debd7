"""Lanes: threads with a connection each, so that the event loop never waits for a disk.

A lane takes all that has queued up since its last round and answers it in one go. For reads that saves trips between
threads. For writes it is the point of the design: `WriteLane` puts a round into one transaction, so that however many
callers commit at once, the disk is synced once for all of them.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from raincheck.errors import StoreUnavailable
from raincheck.stores.sqlite.errors import translate

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
