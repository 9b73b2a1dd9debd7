"""Looking at a task while an attempt on it is under way, whenever there was a hint that something happened to it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from raincheck.clock import Clock
from raincheck.errors import StoreError

logger = logging.getLogger(__name__)

BEGINS_AFTER = 0.02
"""Seconds for which an attempt is left alone. Its own beginning gives a hint too, and many are over by then."""

AFTER_AN_ERROR = 0.5


class Lookout:
    """Looks for one attempt: from when its body waits for something, or soon after it began."""

    def __init__(self, look: Callable[[], Awaitable[None]], task: str, clock: Clock) -> None:
        self._look = look
        self._task = task
        self._clock = clock
        self._call_off: Callable[[], object] | None = None
        self._job: asyncio.Task[None] | None = None
        self._is_over = False
        self.poked = asyncio.Event()
        """Something may have happened to the task."""

    def begin_soon(self, clock: Clock) -> None:
        self._call_off = clock.call_later(BEGINS_AFTER, self.begin)

    def begin(self) -> None:
        if self._job is None and not self._is_over:
            self._job = asyncio.create_task(self._look_when_poked())

    async def end(self) -> None:
        self._is_over = True
        if self._call_off is not None:
            self._call_off()
        if self._job is not None:
            self._job.cancel()
            await asyncio.wait([self._job])

    async def _look_when_poked(self) -> None:
        while not self._is_over:
            await self.poked.wait()
            self.poked.clear()
            try:
                await self._look()
            except StoreError as error:
                logger.warning("task %s: can't be read just now: %s", self._task, error)
                await self._clock.sleep(AFTER_AN_ERROR)
                self.poked.set()
