"""Progress reports: a body reports at any rate, and a few reports per second are written."""

import asyncio
import logging

from raincheck.core.attempt_rules import merge_progress
from raincheck.core.commands import Note
from raincheck.core.records import Progress
from raincheck.engine.execution.session import AttemptSession
from raincheck.errors import LeaseLost, StoreError

logger = logging.getLogger(__name__)


class ProgressReporter:
    """Holds the latest report, and writes it when enough time has passed since the last write."""

    def __init__(self, session: AttemptSession, interval: float) -> None:
        self._session = session
        self._interval = interval
        self._progress: Progress | None = None
        self._message: str | None = None
        self._writer: asyncio.Task[None] | None = None
        self._has_warned = False

    def record(self, done: float | None, total: float | None, message: str | None) -> None:
        """Record a report, to be written soon. An invalid report is dropped: it is no reason to lose the work."""
        try:
            self._progress = self._progress if done is None else merge_progress(self._progress, Progress(done, total))
            self._message = self._message if message is None else str(message)
        except Exception as error:  # noqa: BLE001 - an invalid number, a message that can't be converted: any error
            if not self._has_warned:
                logger.warning("task %s: dropped an invalid progress report: %s", self._session.task.log_id, error)
            self._has_warned = True
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_at_intervals())

    def take_pending(self) -> tuple[Progress | None, str | None]:
        """Return and clear what is not written yet, for the next write."""
        latest = self._progress, self._message
        self._progress = self._message = None
        return latest

    def restore_pending(self, progress: Progress | None, message: str | None) -> None:
        """Restore reports whose write seems to have failed. Newer reports take precedence."""
        self._progress = self._progress or progress
        self._message = message if self._message is None else self._message

    async def _flush(self) -> None:
        progress, message = self.take_pending()
        if progress is None and message is None:
            return
        try:
            await self._session.write(Note(self._session.fence, progress, message))
        except BaseException:
            self.restore_pending(progress, message)
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
            logger.warning("task %s: a progress report was not written: %s", self._session.task.log_id, error)

    async def _write_at_intervals(self) -> None:
        # The first report is written at once, so that a slow task is seen to have started.
        while (self._progress is not None or self._message is not None) and not self._session.is_stopped:
            await self._flush_if_possible()
            await self._session.deps.clock.sleep(self._interval)
        self._writer = None
