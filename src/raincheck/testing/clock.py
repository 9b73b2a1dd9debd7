"""A clock for tests that moves only when it is advanced."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any


class FakeClock:
    """A clock that stands still until it is moved. It may move backwards, as real clocks do.

    A sleeper wakes up when the clock is moved to its moment or beyond.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._elapsed = 0.0
        self._sleepers: dict[asyncio.Future[None], datetime] = {}

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Return an awaitable that completes once the clock has moved by `seconds` since the call."""
        return self._sleep_until(self._now + timedelta(seconds=seconds))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        """Call `callback` once the clock has moved by `seconds`, and return a function that cancels the call."""
        alarm = self._alarm(self._now + timedelta(seconds=seconds))
        alarm.add_done_callback(lambda _: None if alarm.cancelled() else callback())
        return alarm.cancel

    async def _sleep_until(self, moment: datetime) -> None:
        if moment <= self._now:
            await asyncio.sleep(0)
            return
        await self._alarm(moment)

    def _alarm(self, moment: datetime) -> asyncio.Future[None]:
        """Return a future that completes when the clock is moved to `moment` or beyond."""
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if moment <= self._now:
            alarm.set_result(None)
        else:
            self._sleepers[alarm] = moment
            alarm.add_done_callback(lambda _: self._sleepers.pop(alarm, None))
        return alarm

    def advance(self, seconds: float) -> datetime:
        """Advance the clock by `seconds` and return the new time."""
        self._elapsed += seconds
        return self.jump_to(self._now + timedelta(seconds=seconds))

    def jump_to(self, moment: datetime) -> datetime:
        """Set the clock to `moment`, as when a real clock is set or a machine wakes from sleep, and return it."""
        self._now = moment
        for alarm, until in self._sleepers.items():
            if until <= moment and not alarm.done():
                alarm.set_result(None)
        return self._now
