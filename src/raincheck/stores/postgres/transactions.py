"""Whole transactions on a pool of connections: done again where nothing was kept, else told of."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.errors import FeatureNotSupported, ReadOnlySqlTransaction, UniqueViolation

from raincheck._async import set_going, unhurt
from raincheck.core.records import TaskId
from raincheck.errors import StoreUnavailable
from raincheck.stores.postgres.connection import Pool
from raincheck.stores.postgres.errors import SERIALIZATION, is_lost, is_outdated, translate
from raincheck.stores.postgres.reads import Connection
from raincheck.stores.postgres.writes import Tables

T = TypeVar("T")


class Transactions:
    """Reads and writes of one handle, while it is open. They belong to the event loop that opened it.

    Each is done whole, also if whoever wants it leaves: to break it off would take longer.
    """

    def __init__(
        self,
        store: str,
        pool: Pool,
        tables: Callable[[Connection], Tables],
        announce: Callable[[Iterable[TaskId]], None],
        timeout: float,
    ) -> None:
        self._store = store
        self._pool = pool
        self._tables = tables
        self._announce = announce
        self._timeout = timeout
        self._home = asyncio.get_running_loop(), os.getpid()

    def check_home(self) -> None:
        """Refuse to be used by another event loop, or in another process, than the one that opened it."""
        if self._home != (asyncio.get_running_loop(), os.getpid()):
            raise StoreUnavailable(
                self._store, "it was opened by another event loop or process: open a store of its own for this one"
            )

    async def close(self) -> None:
        await self._pool.close()

    async def read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        """What is read, as of one moment."""
        return await unhurt(set_going(self._read(read)))

    async def write(self, write: Callable[[Tables], Awaitable[T]], *, is_single: bool, may_repeat: bool = False) -> T:
        """What is written, whole or not at all. What is a single statement is a transaction of its own.

        What may be repeated is tried again also where it may have been kept.
        """
        going_on = asyncio.get_running_loop().create_future()
        job = set_going(self._write(write, is_single=is_single, may_repeat=may_repeat))
        job.add_done_callback(partial(self._settle, going_on))
        await going_on
        return job.result()[0]

    def _settle(self, going_on: asyncio.Future[None], job: "asyncio.Task[tuple[Any, list[TaskId]]]") -> None:
        """Wake whoever wrote, and tell of it, in that order.

        They run in that order, too. So whoever wrote can say what came of it to those who would else have to read it.
        They may have left: it is told all the same.
        """
        if not going_on.done():
            going_on.set_result(None)
        if not job.cancelled() and job.exception() is None:
            self._announce(job.result()[1])

    async def _read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        began = self._now()
        while True:
            try:
                async with _Lent(self._pool) as connection:
                    return await read(connection)
            except psycopg.Error as error:
                if not is_lost(error) or self._now() > began + self._timeout:
                    raise translate(error, self._store) from error
                # That connection was of no use any more, and it is gone. There is another, or it is waited for.
                await self._sort_out()

    async def _write(
        self, write: Callable[[Tables], Awaitable[T]], *, is_single: bool, may_repeat: bool
    ) -> tuple[T, list[TaskId]]:
        """What it returns, and the tasks that it touched."""
        began = self._now()
        while True:
            is_committing = is_single and not may_repeat
            try:
                async with _Lent(self._pool) as connection:
                    tables = self._tables(connection)
                    if not is_single:
                        await connection.execute("BEGIN")
                    result = await write(tables)
                    if not is_single:
                        is_committing = True
                        await connection.execute("COMMIT")
            except psycopg.Error as error:
                # What is outdated was refused before anything was done, also where it is a single statement.
                is_safe = not is_committing or is_outdated(error)
                if is_safe and _may_try_again(error) and self._now() <= began + self._timeout:
                    if is_lost(error):
                        await self._sort_out()
                    continue
                raise translate(error, self._store) from error
            return result, tables.touched

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _sort_out(self) -> None:
        """Let go of all idle connections that are broken: where one is, others are."""
        with suppress(psycopg.Error):
            await self._pool.check()


class _Lent:
    """A connection of a pool, for a while. `pool.connection()`, at half of its cost: nothing is left to commit.

    One that will not do any more is let go of. The server may not be the primary any more, and the next connection may
    lead to the one that is. Or somebody has migrated, and what this one has prepared does not fit.
    """

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Connection:
        self._connection = await self._pool.getconn()
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if isinstance(error, ReadOnlySqlTransaction | FeatureNotSupported):
                await self._connection.close()
            elif error is not None:
                # A connection that is lost has nothing to roll back.
                with suppress(psycopg.Error):
                    await self._connection.rollback()
        finally:
            await self._pool.putconn(self._connection)


def _may_try_again(error: Exception) -> bool:
    """Whether nothing was kept, and it may go better at once."""
    if isinstance(error, UniqueViolation):
        # Somebody else was first to ask with the same key: now there is a task to find.
        return True
    return is_lost(error) or (isinstance(error, psycopg.Error) and error.sqlstate in SERIALIZATION)
