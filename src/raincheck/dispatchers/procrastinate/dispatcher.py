"""The dispatcher: a worker of Procrastinate that has attempts begun, and is made anew whenever it gives up."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg
from procrastinate import App, BaseRetryStrategy, PsycopgConnector, RetryDecision
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition, Job
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from raincheck.core.records import Tool
from raincheck.dispatchers.procrastinate.jobs import ATTEMPT, MendedWorker, queue_of
from raincheck.errors import RaincheckError
from raincheck.stores.dispatcher import Hands
from raincheck.stores.postgres.connection import RECONNECT, look_in
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

FETCH_EVERY = 2.0
"""Seconds after which a worker looks for jobs that nobody told it of."""

HEARTBEAT = 4.0
"""Seconds between two signs of life."""

STALE = 20.0
"""Seconds without one after which a worker is taken for dead, and its jobs are given to others."""

REAP_EVERY = 10.0
"""Seconds between two looks for those."""

AFTER_AN_ERROR = 1.0
"""Seconds before a worker is made anew, and before a job that could not be done is tried again."""

PATIENCE = 3.0
"""Seconds to wait for a database that is away, before the worker is given up: also when it is to stop."""

NEVER = 86_400.0
"""Seconds between two looks for jobs to abort: a body stops when its task is stopped, which the store tells."""

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Due(Protocol):
    """The store, as far as it is asked for parked tasks whose moment has come."""

    async def first_due(self) -> datetime | None: ...

    async def wake_due(self, now: datetime) -> None: ...


class NoRoom(RaincheckError):
    """The place that a job was fetched for is taken: the job goes back."""


class AtOnce(BaseRetryStrategy):
    """A job that could not be done goes back. By no clock of this machine: the database's may say something else."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision:
        del exception, job
        return RetryDecision(retry_at=LONG_AGO)


class ProcrastinateDispatcher:
    """Brings jobs from Procrastinate's tables to whoever has room."""

    def __init__(self, conninfo: str, schema: str, due: Due) -> None:
        self._conninfo = conninfo
        self._schema = schema
        self._due = due
        self._queues: list[str] = []
        self._worker: MendedWorker | None = None
        self._is_listening = False
        self._is_away = False
        self._stopping = asyncio.Event()
        self._app: App | None = None
        self._reaped_at: float | None = None

    async def run(self, hands: Hands) -> None:
        hands.when_room_changes(lambda: self._look_at_room(hands))
        while not self._stopping.is_set():
            try:
                await self._run_worker(hands)
            except (ConnectorException, psycopg.Error, OSError) as error:
                why = " ".join(str(error.__cause__ or error).split())
                logger.warning("the queue can't be reached, will try again: %s", why)
                self._is_away = True
            except Exception:
                logger.exception("an unexpected error of the queue; will go on")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), AFTER_AN_ERROR)

    def stop(self) -> None:
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()

    async def recover(self, now: datetime) -> datetime | None:
        await self._reap()
        due_at = await self._due.first_due()
        if due_at is not None and due_at <= now:
            await self._due.wake_due(now)
            due_at = await self._due.first_due()
        return due_at

    async def _run_worker(self, hands: Hands) -> None:
        """Run a worker until it ends: because it is told to, or because the database is away."""
        pool = AsyncConnectionPool[AsyncConnection[Any]](
            self._conninfo,
            min_size=1,
            max_size=4,
            open=False,
            configure=self._configure,
            timeout=PATIENCE,
            reconnect_timeout=RECONNECT,
        )
        app = App(connector=PsycopgConnector(configure=self._configure))
        app.task(name=ATTEMPT, retry=AtOnce())(self._carrier(hands))
        # All of them, since it listens only to those that it has at first.
        self._queues[:] = [queue_of(hands.namespace, tool) for tool in sorted_tools(hands.tools)]
        self._is_listening = False
        async with pool, app.open_async(pool):
            if self._is_away:
                logger.info("the queue is reached again")
            self._is_away = False
            self._worker = MendedWorker(
                app,
                queues=self._queues,
                name="raincheck",
                concurrency=hands.concurrency,
                fetch_job_polling_interval=FETCH_EVERY,
                abort_job_polling_interval=NEVER,
                update_heartbeat_interval=HEARTBEAT,
                stalled_worker_timeout=STALE,
                # Jobs are let go of at once when it ends. The attempts that they brought go on.
                shutdown_graceful_timeout=0,
                delete_jobs=DeleteJobCondition.ALWAYS,
                install_signal_handlers=False,
            )
            self._app = app
            try:
                if not self._stopping.is_set():
                    await self._worker.run()
            finally:
                self._worker = self._app = None

    def _carrier(self, hands: Hands) -> Callable[..., Any]:
        async def carry(tool: str, version: str, **_: object) -> None:
            self._is_listening = True
            told = Tool(tool, version)
            # Asked before: a place that is free a moment later is no reason to take the job for done.
            has_room = told in hands.free
            try:
                running = await hands.take(told)
            except Exception as error:
                # The job goes back. Not at once: the database is in trouble, and so would all the others.
                logger.warning("a task of %s could not be begun, will try again: %s", tool, error)
                await asyncio.sleep(AFTER_AN_ERROR)
                raise
            if running is None and not has_room:
                self._look_at_room(hands)
                raise NoRoom("another attempt took the last place")
            try:
                while running is not None:
                    await asyncio.wait([running])
                    running = await hands.follow()
            except asyncio.CancelledError:
                # This worker ends; the attempt does not, and needs no job any more: it has its lease.
                return
            except Exception as error:  # noqa: BLE001 - what this job was for is done, and what is left has jobs
                logger.debug("no other task was begun after one of %s: %s", tool, error)

        return carry

    def _look_at_room(self, hands: Hands) -> None:
        """Fetch only what there is room for."""
        if self._worker is None or not self._is_listening:
            return
        queues = [queue_of(hands.namespace, tool) for tool in sorted_tools(hands.free)]
        has_grown = not set(queues) <= set(self._queues)
        self._queues[:] = queues
        if has_grown:
            # What waits in them was told of before.
            self._worker.look()

    async def _reap(self) -> None:
        """Give jobs that dead workers had to others: nobody else does that."""
        app, now = self._app, asyncio.get_running_loop().time()
        if app is None or (self._reaped_at is not None and now < self._reaped_at + REAP_EVERY):
            return
        self._reaped_at = now
        try:
            for job in await app.job_manager.get_stalled_jobs(task_name=ATTEMPT, seconds_since_heartbeat=STALE):
                logger.info("job %s of a dead worker is given to another", job.id)
                await app.job_manager.retry_job(job, retry_at=LONG_AGO)
        except ConnectorException as error:
            # Another process was quicker, or the database is away.
            logger.debug("jobs of dead workers were not given back: %s", error.__cause__ or error)

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        # One trip for each statement, and not one more to begin and one to commit.
        await connection.set_autocommit(True)
        # That a job was fetched, or is done with, may be lost in a crash of the database: it comes again, which does no
        # harm. So nothing waits for the disk here. What the store writes does.
        await connection.execute("SET synchronous_commit TO off")
        await look_in(connection, self._schema)


def sorted_tools(tools: frozenset[Tool]) -> list[Tool]:
    return sorted(tools, key=lambda tool: (tool.name, tool.version))
