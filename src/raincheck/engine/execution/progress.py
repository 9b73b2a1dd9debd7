"""What a body says of its progress: as often as it likes, and written a few times a second."""

import asyncio
import logging

from raincheck.core.attempt_rules import forward
from raincheck.core.commands import Note
from raincheck.core.records import Progress
from raincheck.engine.execution.session import Hold
from raincheck.errors import LeaseLost, StoreError

logger = logging.getLogger(__name__)


class Reports:
    """Keeps the latest report, and writes it when enough time has passed since the last one."""

    def __init__(self, hold: Hold, seconds: float) -> None:
        self._hold = hold
        self._seconds = seconds
        self._progress: Progress | None = None
        self._message: str | None = None
        self._writer: asyncio.Task[None] | None = None
        self._has_warned = False

    def take(self, done: float | None, total: float | None, message: str | None) -> None:
        """Note it, to be written soon. One that makes no sense is left out: it is no reason to lose the work."""
        try:
            self._progress = self._progress if done is None else forward(self._progress, Progress(done, total))
            self._message = self._message if message is None else str(message)
        except Exception as error:  # noqa: BLE001 - a number that is none, words that can't be said: whatever it is
            if not self._has_warned:
                logger.warning("task %s: a report was left out: %s", self._hold.task.shown_id, error)
            self._has_warned = True
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_now_and_then())

    def hand_over(self) -> tuple[Progress | None, str | None]:
        """What was not written yet, for whoever writes next."""
        latest = self._progress, self._message
        self._progress = self._message = None
        return latest

    def take_back(self, progress: Progress | None, message: str | None) -> None:
        """It was not written, as far as one can tell: it is still the latest, unless there has been another."""
        self._progress = self._progress or progress
        self._message = message if self._message is None else self._message

    async def _flush(self) -> None:
        progress, message = self.hand_over()
        if progress is None and message is None:
            return
        try:
            await self._hold.write(Note(self._hold.fence, progress, message))
        except BaseException:
            self.take_back(progress, message)
            raise

    async def close(self) -> None:
        """Write the last report, and stop."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        await self._flush_if_possible()

    async def _flush_if_possible(self) -> None:
        try:
            await self._flush()
        except LeaseLost:
            return
        except StoreError as error:
            logger.warning("task %s: a progress report was not written: %s", self._hold.task.shown_id, error)

    async def _write_now_and_then(self) -> None:
        # The first one at once, so that what takes long is seen to have begun.
        while (self._progress is not None or self._message is not None) and not self._hold.is_stopped:
            await self._flush_if_possible()
            await self._hold.means.clock.sleep(self._seconds)
        self._writer = None
