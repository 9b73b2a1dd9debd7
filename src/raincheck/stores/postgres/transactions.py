"""Run whole transactions on a connection pool: retried where nothing was stored, else reported as errors."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.errors import FeatureNotSupported, ReadOnlySqlTransaction, UniqueViolation

from raincheck._async import shield, spawn_background
from raincheck.core.records import TaskId
from raincheck.errors import StoreUnavailable
from raincheck.stores.postgres.connection import (
    SERIALIZATION_FAILURES,
    Pool,
    is_connection_lost,
    is_stale_plan,
    translate_error,
)
from raincheck.stores.postgres.rows import Connection, run
from raincheck.stores.postgres.writes import PostgresTables
from raincheck.stores.sql_store import Plan

T = TypeVar("T")


class TransactionRunner:
    """Reads and writes of one open handle, on the event loop that opened it.

    Each runs to its end, even if its caller is cancelled: aborting it would take longer.
    """

    def __init__(
        self,
        store: str,
        pool: Pool,
        tables: Callable[[Connection], PostgresTables],
        announce: Callable[[Iterable[TaskId]], None],
        timeout: float,
    ) -> None:
        self._store = store
        self._pool = pool
        self._tables = tables
        self._announce = announce
        self._timeout = timeout
        self._opened_in = asyncio.get_running_loop(), os.getpid()

    def check_same_loop(self) -> None:
        """Check that the caller is on the event loop, and in the process, that opened it."""
        if self._opened_in != (asyncio.get_running_loop(), os.getpid()):
            raise StoreUnavailable(
                self._store, "it was opened by another event loop or process: open a separate store for this one"
            )

    async def close(self) -> None:
        await self._pool.close()

    async def read(self, plan: Callable[[], Plan[T]]) -> T:
        """Run a plan that only reads."""
        return await shield(spawn_background(self._read(plan)))

    async def write(
        self, write: Callable[[PostgresTables], Awaitable[T]], *, is_single: bool, may_repeat: bool = False
    ) -> T:
        """Run a write, whole or not at all. With `is_single`, its one statement is its own transaction.

        With `may_repeat`, it is retried even if it may have been committed already.
        """
        written = asyncio.get_running_loop().create_future()
        background_task = spawn_background(self._write(write, is_single=is_single, may_repeat=may_repeat))
        background_task.add_done_callback(partial(self._settle, written))
        await written
        return background_task.result()[0]

    def _settle(self, written: asyncio.Future[None], background_task: "asyncio.Task[tuple[Any, list[TaskId]]]") -> None:
        """Wake the writer, and publish the changes, in that order.

        The callbacks run in that order, too. So the writer can pass its result to followers that would otherwise have
        to read it. The writer may have been cancelled: the changes are published all the same.
        """
        if not written.done():
            written.set_result(None)
        if not background_task.cancelled() and background_task.exception() is None:
            self._announce(background_task.result()[1])

    async def _read(self, plan: Callable[[], Plan[T]]) -> T:
        started_at = self._now()
        while True:
            try:
                async with _PooledConnection(self._pool) as connection:
                    return await run(connection, plan())
            except psycopg.Error as error:
                if not is_connection_lost(error) or self._now() > started_at + self._timeout:
                    raise translate_error(error, self._store) from error
                # That connection was unusable, and it is dropped. The pool has another, or waits for one.
                await self._drop_broken_connections()

    async def _write(
        self, write: Callable[[PostgresTables], Awaitable[T]], *, is_single: bool, may_repeat: bool
    ) -> tuple[T, list[TaskId]]:
        """Return the result of the write, and the tasks that it touched."""
        started_at = self._now()
        while True:
            is_committing = is_single and not may_repeat
            try:
                async with _PooledConnection(self._pool) as connection:
                    tables = self._tables(connection)
                    if not is_single:
                        await connection.execute("BEGIN")
                    result = await write(tables)
                    if not is_single:
                        is_committing = True
                        await connection.execute("COMMIT")
            except psycopg.Error as error:
                # A stale plan was refused before anything was done, even for a single statement.
                is_safe = not is_committing or is_stale_plan(error)
                if is_safe and _is_retryable(error) and self._now() <= started_at + self._timeout:
                    if is_connection_lost(error):
                        await self._drop_broken_connections()
                    continue
                raise translate_error(error, self._store) from error
            return result, tables.touched

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _drop_broken_connections(self) -> None:
        """Close all idle connections that are broken: where one is, others usually are."""
        with suppress(psycopg.Error):
            await self._pool.check()


class _PooledConnection:
    """Borrow a connection from a pool: `pool.connection()` at half its cost, since nothing is left to commit.

    A connection that is no longer suitable is closed. The server may have stopped being the primary, and the next
    connection may lead to the new one. Or a migration has invalidated the connection's prepared statements.
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
                # A lost connection has nothing to roll back.
                with suppress(psycopg.Error):
                    await self._connection.rollback()
        finally:
            await self._pool.putconn(self._connection)


def _is_retryable(error: Exception) -> bool:
    """Return whether nothing was stored, and an immediate retry may succeed."""
    if isinstance(error, UniqueViolation):
        # Another create used the same key first: now there is a task to find.
        return True
    return is_connection_lost(error) or (isinstance(error, psycopg.Error) and error.sqlstate in SERIALIZATION_FAILURES)
