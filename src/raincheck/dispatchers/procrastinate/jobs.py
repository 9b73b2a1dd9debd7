"""Jobs in Procrastinate's tables, written in the transactions of the store."""

import logging
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from procrastinate import PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from psycopg import AsyncConnection

from raincheck.core.records import Task
from raincheck.dispatchers.procrastinate import schema
from raincheck.dispatchers.procrastinate.queues import queue_of

ATTEMPT = "raincheck.attempt"
"""The name of our jobs, among those that others may have in the same tables."""


class ProcrastinateJobs:
    """Queues jobs, and takes them back."""

    def __init__(self, schema_name: str) -> None:
        _keep_quiet()
        self._schema = schema_name
        # Never opened: it works on the connections that it is given.
        self._manager = JobManager(PsycopgConnector())

    async def enqueue(self, transaction: AsyncConnection[Any], task: Task) -> int:
        tool = task.tool
        job = Job(
            queue=queue_of(task.namespace, tool),
            priority=task.priority,
            task_name=ATTEMPT,
            task_kwargs={"namespace": task.namespace, "tool": tool.name, "version": tool.version},
            lock=None,
            queueing_lock=None,
        )
        async with _drivers_errors():
            queued = await self._manager.defer_job_async(job, connection=transaction)
        assert queued.id is not None  # noqa: S101 - it is queued
        return queued.id

    async def cancel(self, transaction: AsyncConnection[Any], numbers: Collection[int]) -> None:
        async with _drivers_errors():
            for number in numbers:
                await self._manager.cancel_job_by_id_async(number, delete_job=True, connection=transaction)

    async def is_ready(self, transaction: AsyncConnection[Any]) -> bool:
        return await schema.is_ready(transaction, self._schema)

    async def migrate(self, transaction: AsyncConnection[Any]) -> None:
        await schema.migrate(transaction, self._schema)


def _keep_quiet() -> None:
    """Let what carries jobs say nothing, unless somebody wants to read it and has set a level.

    It writes several lines for each job, and a traceback for each moment without a database. What of it concerns tasks
    is told by us.
    """
    for name in ("procrastinate", "psycopg.pool"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)


@asynccontextmanager
async def _drivers_errors() -> AsyncGenerator[None]:
    """The store knows what the driver's errors mean, and Procrastinate wraps them."""
    try:
        yield
    except ConnectorException as error:
        if isinstance(error.__cause__, psycopg.Error):
            raise error.__cause__ from error
        raise
