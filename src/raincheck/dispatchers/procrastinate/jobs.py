"""Jobs in Procrastinate's tables, written in the transactions of the store, and a worker that fetches them.

The worker is Procrastinate's with its gaps closed: it ends when it can no longer work, and misses no notification. The
overridden methods are not part of Procrastinate's public API. Each is covered by a test that fails without it.

Each version of a tool has its own queue, so that a worker gets jobs only for what it can run: an older worker does not
take jobs of a newer version, and waits for nothing that only a newer worker can run.
"""

import asyncio
import json
import logging
import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from procrastinate import App, BaseConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from procrastinate.worker import Worker
from psycopg import AsyncConnection

from raincheck.core.records import Task, Tool
from raincheck.dispatchers.procrastinate import schema

logger = logging.getLogger(__name__)


class JobAvailableEvent(asyncio.Event):
    """Set when there may be a job to fetch.

    Procrastinate clears this when a fetch has ended. A notification that arrived during the fetch, too late for it,
    would be lost. So it is cleared when a fetch starts.
    """

    def clear(self) -> None:
        """Do nothing: `begin_fetch` clears the event."""

    def begin_fetch(self) -> None:
        super().clear()


class PatchedJobManager(JobManager):
    """Fetches jobs for one worker."""

    def __init__(self, connector: BaseConnector, event: JobAvailableEvent) -> None:
        super().__init__(connector)
        self._event = event

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        self._event.begin_fetch()
        return await super().fetch_job(queues, worker_id)


class PatchedWorker(Worker):
    """A worker with its own job manager."""

    def __init__(self, app: App, **options: Any) -> None:  # noqa: ANN401 - any option of the worker
        super().__init__(app, **options)
        self._new_job_event = JobAvailableEvent()
        app.job_manager = PatchedJobManager(app.connector, self._new_job_event)

    def fetch_now(self) -> None:
        """Fetch jobs without a notification."""
        self._new_job_event.set()

    async def _periodic_deferrer(self) -> None:
        """Wait forever: there are no periodic jobs.

        The worker watches this together with the listener and the heartbeat, and stops watching when the first of them
        ends. The original ends at once, and then the end of one of the others would go unnoticed.
        """
        await asyncio.Event().wait()

    async def _persist_job_status(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - passed on
        try:
            await super()._persist_job_status(*arguments, **options)
        except ConnectorException as error:
            # It was delivered twice, and the other delivery finished first; or the database is unavailable, and it is
            # redelivered.
            logger.debug("could not mark a job as done: %s", error.__cause__ or error)


READABLE_LENGTH = 14
"""Characters of a tool's name shown in its queue's name, for operators who read the table."""

DIGEST_SIZE = 12
"""Bytes. Procrastinate makes a channel of each queue, and a channel's name has 63 characters, 23 of them its prefix."""


@lru_cache(1_024)
def queue_name(namespace: str, tool: Tool) -> str:
    """Return the queue's name: at most 39 characters, and unique per tool, version and namespace."""
    digest = blake2b(digest_size=DIGEST_SIZE)
    for part in (namespace, tool.name, tool.version):
        # With their lengths, so that no two different triples have the same encoding.
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return f"{re.sub('[^A-Za-z0-9_-]', '_', tool.name)[:READABLE_LENGTH]}.{digest.hexdigest()}"


JOB_NAME = "raincheck.attempt"
"""The name of our jobs, among those of other programs in the same tables."""


class ProcrastinateJobQueue:
    """Queues and withdraws jobs as parts of the store's own statements, with the functions that its client calls."""

    enqueue_sql = f"""
(procrastinate_defer_jobs_v1(ARRAY[
    ROW(%(job_queue)s, '{JOB_NAME}', %(job_priority)s::integer, NULL, NULL, %(job_args)s::jsonb, NULL)
]::procrastinate_job_to_defer_v1[]))[1]
"""
    withdraw_sql = "procrastinate_cancel_job_v1(job_id, false, true)"

    def __init__(self, schema_name: str) -> None:
        _silence_loggers()
        self._schema = schema_name

    def parameters(self, task: Task) -> dict[str, Any]:
        tool = task.tool
        args = {"namespace": task.namespace, "tool": tool.name, "version": tool.version}
        return {
            "job_queue": queue_name(task.namespace, tool),
            "job_priority": task.priority,
            # In a database with encoding SQL_ASCII, jsonb accepts no escapes of non-ASCII characters.
            "job_args": json.dumps(args, ensure_ascii=False),
        }

    async def is_migrated(self, transaction: AsyncConnection[Any]) -> bool:
        return await schema.is_migrated(transaction, self._schema)

    async def migrate(self, transaction: AsyncConnection[Any]) -> None:
        await schema.migrate(transaction, self._schema)


def _silence_loggers() -> None:
    """Silence the loggers of the queue and the pool, unless a level has been set for them.

    They write several lines for each job, and a traceback for each moment without a database. We log what concerns
    tasks ourselves.
    """
    for name in ("procrastinate", "psycopg.pool"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
