"""The dispatcher: a Procrastinate worker that starts attempts, and is recreated whenever it fails."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
from procrastinate import App, BaseRetryStrategy, PsycopgConnector, RetryDecision
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition, Job
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from raincheck.core.records import Tool
from raincheck.dispatchers.procrastinate.jobs import JOB_NAME, PatchedWorker, queue_name
from raincheck.errors import RaincheckError
from raincheck.stores.dispatcher import JobConsumer
from raincheck.stores.postgres.connection import RECONNECT_TIMEOUT, set_search_path
from raincheck.stores.postgres.store import PostgresStore
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

FETCH_INTERVAL = 2.0
"""Seconds between polls for jobs without a notification."""

HEARTBEAT_INTERVAL = 4.0
"""Seconds between two heartbeats."""

STALE_AFTER = 20.0
"""Seconds without a heartbeat after which a worker is considered dead, and its jobs are requeued."""

REAP_INTERVAL = 10.0
"""Seconds between two searches for such jobs."""

RETRY_DELAY = 1.0
"""Seconds before a worker is recreated, and before a failed job is retried."""

POOL_TIMEOUT = 3.0
"""Seconds to wait for an unavailable database before the worker is given up, also when it is to stop."""

ABORT_POLL_INTERVAL = 86_400.0
"""Seconds between two polls for jobs to abort: a body is stopped when its task is, which the store reports."""

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class NoFreeSlot(RaincheckError):
    """The slot that a job was fetched for is taken: the job returns to the queue."""


class ImmediateRetry(BaseRetryStrategy):
    """Returns failed jobs to the queue, due in the past: this machine's clock may differ from the database's."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision:
        del exception, job
        return RetryDecision(retry_at=LONG_AGO)


class ProcrastinateDispatcher:
    """Delivers jobs from Procrastinate's tables to a consumer with free slots."""

    def __init__(self, conninfo: str, schema: str, store: PostgresStore) -> None:
        self._conninfo = conninfo
        self._schema = schema
        self._store = store
        self._queues: list[str] = []
        self._worker: PatchedWorker | None = None
        self._is_listening = False
        self._is_disconnected = False
        self._stopping = asyncio.Event()
        self._app: App | None = None
        self._reaped_at: float | None = None

    async def run(self, consumer: JobConsumer) -> None:
        consumer.on_free_change(lambda: self._update_queues(consumer))
        while not self._stopping.is_set():
            try:
                await self._run_worker(consumer)
            except (ConnectorException, psycopg.Error, OSError) as error:
                reason = " ".join(str(error.__cause__ or error).split())
                logger.warning("the job queue is unreachable, will retry: %s", reason)
                self._is_disconnected = True
            except Exception:
                logger.exception("the job queue failed with an unexpected error, will retry")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), RETRY_DELAY)

    def stop(self) -> None:
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()

    async def recover(self, now: datetime) -> datetime | None:
        await self._retry_stalled_jobs()
        due_at = await self._store.first_due()
        if due_at is not None and due_at <= now:
            await self._store.wake_due(now)
            due_at = await self._store.first_due()
        return due_at

    async def _run_worker(self, consumer: JobConsumer) -> None:
        """Run a worker until it ends: because `stop` was called, or because the database is unavailable."""
        pool = AsyncConnectionPool[AsyncConnection[Any]](
            self._conninfo,
            min_size=1,
            max_size=4,
            open=False,
            configure=self._configure,
            timeout=POOL_TIMEOUT,
            reconnect_timeout=RECONNECT_TIMEOUT,
        )
        app = App(connector=PsycopgConnector(configure=self._configure))
        app.task(name=JOB_NAME, retry=ImmediateRetry())(self._job_handler(consumer))
        # All queues, since the worker listens only to the queues that it starts with.
        self._queues[:] = [queue_name(consumer.namespace, tool) for tool in sorted_tools(consumer.tools)]
        self._is_listening = False
        async with pool, app.open_async(pool):
            if self._is_disconnected:
                logger.info("the job queue is reachable again")
            self._is_disconnected = False
            self._worker = PatchedWorker(
                app,
                queues=self._queues,
                name="raincheck",
                concurrency=consumer.concurrency,
                fetch_job_polling_interval=FETCH_INTERVAL,
                abort_job_polling_interval=ABORT_POLL_INTERVAL,
                update_heartbeat_interval=HEARTBEAT_INTERVAL,
                stalled_worker_timeout=STALE_AFTER,
                # Jobs are released at once when it ends. The attempts that they started continue.
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

    def _job_handler(self, consumer: JobConsumer) -> Callable[..., Any]:
        async def run_job(tool: str, version: str, **_: object) -> None:
            self._is_listening = True
            job_tool = Tool(tool, version)
            # Checked before the claim: a slot that becomes free a moment later does not mean that the job is done.
            has_slot = job_tool in consumer.free_tools
            try:
                running = await consumer.claim_next(job_tool)
            except Exception as error:
                # The job returns to the queue. Not at once: the database has a problem, and all other jobs would fail
                # too.
                logger.warning("could not start a task of %s, will retry: %s", tool, error)
                await asyncio.sleep(RETRY_DELAY)
                raise
            if running is None and not has_slot:
                self._update_queues(consumer)
                raise NoFreeSlot("another attempt took the last slot")
            try:
                while running is not None:
                    await asyncio.wait([running])
                    running = await consumer.claim_following()
            except asyncio.CancelledError:
                # This worker ends; the attempt does not, and needs no job any more: it has its lease.
                return
            except Exception as error:  # noqa: BLE001 - this job's work is done, and the remaining tasks have jobs
                logger.debug("could not start another task after one of %s: %s", tool, error)

        return run_job

    def _update_queues(self, consumer: JobConsumer) -> None:
        """Fetch only jobs for which a slot is free."""
        if self._worker is None or not self._is_listening:
            return
        queues = [queue_name(consumer.namespace, tool) for tool in sorted_tools(consumer.free_tools)]
        has_grown = not set(queues) <= set(self._queues)
        self._queues[:] = queues
        if has_grown:
            # Jobs that wait in the added queues were announced before.
            self._worker.fetch_now()

    async def _retry_stalled_jobs(self) -> None:
        """Requeue jobs of dead workers: nothing else does that."""
        app, now = self._app, asyncio.get_running_loop().time()
        if app is None or (self._reaped_at is not None and now < self._reaped_at + REAP_INTERVAL):
            return
        self._reaped_at = now
        try:
            for job in await app.job_manager.get_stalled_jobs(task_name=JOB_NAME, seconds_since_heartbeat=STALE_AFTER):
                logger.info("requeued job %s of a dead worker", job.id)
                await app.job_manager.retry_job(job, retry_at=LONG_AGO)
        except ConnectorException as error:
            # Another process was first, or the database is unavailable.
            logger.debug("could not requeue the jobs of dead workers: %s", error.__cause__ or error)

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        # One round trip for each statement, without extra ones for BEGIN and COMMIT.
        await connection.set_autocommit(True)
        # A crash of the database may lose that a job was fetched or finished: it is redelivered, which does no harm. So
        # nothing waits for the disk here. The store's own writes do.
        await connection.execute("SET synchronous_commit TO off")
        await set_search_path(connection, self._schema)


def sorted_tools(tools: frozenset[Tool]) -> list[Tool]:
    return sorted(tools, key=lambda tool: (tool.name, tool.version))
