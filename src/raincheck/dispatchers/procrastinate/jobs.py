"""Jobs in Procrastinate's tables, written in the transactions of the store.

Procrastinate's worker, with its gaps closed: it ends when it is of no use any more, and misses nothing it is told.

What is overridden here is not part of what Procrastinate promises. Each is kept by a test that fails without it.

Which queue a tool's jobs are in.

Each version of a tool has a queue of its own, so that a worker gets jobs only for what it can run: an older worker does
not take what a newer one brought, and waits for nothing that only the newer one has.
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


class Told(asyncio.Event):
    """There may be a job to fetch.

    Procrastinate clears this when a fetch has ended. What it was told of while the fetch was on its way, and came too
    late for, would be forgotten. So it is cleared when a fetch begins.
    """

    def clear(self) -> None:
        """Left to `begin_fetch`."""

    def begin_fetch(self) -> None:
        super().clear()


class Manager(JobManager):
    """Fetches jobs for one worker."""

    def __init__(self, connector: BaseConnector, told: Told) -> None:
        super().__init__(connector)
        self._told = told

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        self._told.begin_fetch()
        return await super().fetch_job(queues, worker_id)


class MendedWorker(Worker):
    """A worker that fetches by a manager of its own."""

    def __init__(self, app: App, **options: Any) -> None:  # noqa: ANN401 - whatever a worker takes
        super().__init__(app, **options)
        self._new_job_event = Told()
        app.job_manager = Manager(app.connector, self._new_job_event)

    def look(self) -> None:
        """Look for jobs, though nobody told of one."""
        self._new_job_event.set()

    async def _periodic_deferrer(self) -> None:
        """Wait for ever: there is nothing periodic.

        It is watched together with the listener and the heartbeat, and the first of them to end ends the watching. It
        would end at once, and then nobody would notice if one of the others does.
        """
        await asyncio.Event().wait()

    async def _persist_job_status(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - passed on
        try:
            await super()._persist_job_status(*arguments, **options)
        except ConnectorException as error:
            # It was delivered twice, and another was done with it first; or the database is away, and it comes again.
            logger.debug("a job could not be marked as done: %s", error.__cause__ or error)


READABLE = 14
"""Characters of a tool's name that a queue's shows, for whoever looks at the table."""

DIGEST = 12
"""Bytes. Procrastinate makes a channel of each queue, and a channel's name has 63 characters, 23 of them its own."""


@lru_cache(1_024)
def queue_of(namespace: str, tool: Tool) -> str:
    """The queue's name: of 39 characters at most, and another for every other tool, version or namespace."""
    digest = blake2b(digest_size=DIGEST)
    for part in (namespace, tool.name, tool.version):
        # With their lengths, so that no two of them can be written alike.
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return f"{re.sub('[^A-Za-z0-9_-]', '_', tool.name)[:READABLE]}.{digest.hexdigest()}"


ATTEMPT = "raincheck.attempt"
"""The name of our jobs, among those that others may have in the same tables."""

DEFERRAL = f"""
(procrastinate_defer_jobs_v1(ARRAY[
    ROW(%(job_queue)s, '{ATTEMPT}', %(job_priority)s::integer, NULL, NULL, %(job_args)s::jsonb, NULL)
]::procrastinate_job_to_defer_v1[]))[1]
"""
WITHDRAWAL = "procrastinate_cancel_job_v1(job_id, false, true)"
"""Both are what Procrastinate's own client calls."""


class ProcrastinateJobs:
    """Queues jobs, and takes them back, as parts of the store's own statements."""

    def __init__(self, schema_name: str) -> None:
        _keep_quiet()
        self._schema = schema_name

    deferral = DEFERRAL
    withdrawal = WITHDRAWAL

    def parameters(self, task: Task) -> dict[str, Any]:
        tool = task.tool
        args = {"namespace": task.namespace, "tool": tool.name, "version": tool.version}
        return {
            "job_queue": queue_of(task.namespace, tool),
            "job_priority": task.priority,
            # In a database of encoding SQL_ASCII, jsonb takes no escapes of other characters.
            "job_args": json.dumps(args, ensure_ascii=False),
        }

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
