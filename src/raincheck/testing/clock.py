"""A clock that goes when told."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any


class FakeClock:
    """Stands still until it is moved. Going backwards is allowed: real clocks do it.

    Whoever sleeps on it wakes up when it is moved to that moment or beyond.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._elapsed = 0.0
        self._sleepers: dict[asyncio.Future[None], datetime] = {}

    def now(self) -> datetime:
        return self._now

    def elapsed(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Something to await, which returns when the clock has been moved by so many seconds since the call."""
        return self._sleep_until(self._now + timedelta(seconds=seconds))

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Have something called when the clock has been moved by so many seconds, and return what prevents that."""
        waking = self._alarm(self._now + timedelta(seconds=seconds))
        waking.add_done_callback(lambda _: None if waking.cancelled() else call())
        return waking.cancel

    async def _sleep_until(self, moment: datetime) -> None:
        if moment <= self._now:
            await asyncio.sleep(0)
            return
        await self._alarm(moment)

    def _alarm(self, moment: datetime) -> asyncio.Future[None]:
        """Something that is done when the clock has been moved to that moment."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if moment <= self._now:
            woken.set_result(None)
        else:
            self._sleepers[woken] = moment
            woken.add_done_callback(lambda _: self._sleepers.pop(woken, None))
        return woken

    def advance(self, seconds: float) -> datetime:
        """Let so many seconds pass, and return the time then."""
        self._elapsed += seconds
        return self.jump_to(self._now + timedelta(seconds=seconds))

    def jump_to(self, moment: datetime) -> datetime:
        """Set it to a moment, as somebody might set a real clock, or as it is when a machine wakes up."""
        self._now = moment
        for woken, until in self._sleepers.items():
            if until <= moment and not woken.done():
                woken.set_result(None)
        return self._now
