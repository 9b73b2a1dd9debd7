"""Procrastinate's worker, with its gaps closed: it ends when it is of no use any more, and misses nothing it is told.

What is overridden here is not part of what Procrastinate promises. Each is kept by a test that fails without it.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from procrastinate import App, BaseConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from procrastinate.worker import Worker

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
