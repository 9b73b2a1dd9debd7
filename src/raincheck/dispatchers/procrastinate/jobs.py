"""Jobs in Procrastinate's tables, written in the transactions of the store."""

import json
import logging
from typing import Any

from psycopg import AsyncConnection

from raincheck.core.records import Task
from raincheck.dispatchers.procrastinate import schema
from raincheck.dispatchers.procrastinate.queues import queue_of

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
