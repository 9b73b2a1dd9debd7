"""Callers that leave before they have a way back to their task: its work is stopped, since nobody will ask for it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from raincheck.core.records import Task, TaskId
from raincheck.core.retry import pause_after
from raincheck.engine import Engine
from raincheck.errors import RaincheckError, StoreUnavailable
from raincheck.futures import unhurt
from raincheck.server.presence import CallerGone
from raincheck.server.running import Running

T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_TRIES = 10


class Leaving:
    """Knows who waits for which task, and gives up those that nobody waits for any more.

    A task with an idempotency key is never given up: the same call, made again, finds it.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._waiting: Counter[TaskId] = Counter()

    async def create(self, creating: asyncio.Future[Task]) -> Task:
        """Wait for a new task. If the caller leaves meanwhile, it is given up as soon as it is there."""
        engine = self._running.engine
        try:
            return await unhurt(creating)
        except asyncio.CancelledError:
            self._running.hold(creating)
            creating.add_done_callback(partial(self._created_for_nobody, engine))
            raise

    async def while_wanted(self, task: Task, waiting: Awaitable[T]) -> T:
        """Wait, as a caller does for the answer to its call. The last of several that leaves gives the task up."""
        engine = self._running.engine
        self._waiting[task.id] += 1
        is_left = False
        try:
            return await waiting
        except (asyncio.CancelledError, CallerGone):
            is_left = True
            raise
        finally:
            self._waiting[task.id] -= 1
            if not self._waiting[task.id]:
                del self._waiting[task.id]
                if is_left:
                    give_up(self._running, task, engine)

    def _created_for_nobody(self, engine: Engine, job: "asyncio.Future[Task]") -> None:
        if not job.cancelled() and job.exception() is None:
            give_up(self._running, job.result(), engine)


def give_up(running: Running, task: Task, engine: Engine) -> None:
    """Stop the work of a task whose caller has no way back to it."""
    if task.idempotency_key is None:
        # In a job of its own: whoever waited has been cancelled, and can't wait for this either.
        running.hold(asyncio.ensure_future(_cancel(task, engine)))


async def _cancel(task: Task, engine: Engine) -> None:
    for tries in range(1, MOST_TRIES + 1):
        try:
            await engine.cancel(task.id, owner=task.owner, reason="its caller left")
        except StoreUnavailable:
            await asyncio.sleep(pause_after(tries))
        except RaincheckError as error:
            # It has ended first, most likely.
            logger.debug("task %s was not given up: %s", task.shown_id, error)
            return
        else:
            return
