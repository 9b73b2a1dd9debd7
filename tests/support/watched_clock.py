"""A manually advanced clock that reports its sleepers, so that a test advances it while the code under test waits."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from raincheck.testing import FakeClock


class WatchedClock(FakeClock):
    """A clock that counts its sleepers by duration."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        super().__init__(start)
        self._asleep: Counter[float] = Counter()
        self._changed = asyncio.Event()

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._sleep_watched(seconds, self.now() + timedelta(seconds=seconds))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        """A scheduled callback counts as a sleeper until it is called or cancelled."""
        self._fall_asleep(seconds)
        is_waiting = True

        def wake() -> None:
            nonlocal is_waiting
            self._asleep[seconds] -= is_waiting
            is_waiting = False

        def called() -> None:
            wake()
            callback()

        prevent = super().call_later(seconds, called)

        def give_up() -> None:
            wake()
            prevent()

        return give_up

    async def _sleep_watched(self, seconds: float, moment: datetime) -> None:
        self._fall_asleep(seconds)
        try:
            await self._sleep_until(moment)
        finally:
            self._asleep[seconds] -= 1

    def _fall_asleep(self, seconds: float) -> None:
        self._asleep[seconds] += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def asleep(self, seconds: float, sleepers: int = 1) -> None:
        """Wait until this many sleepers sleep for this many seconds."""
        while self._asleep[seconds] < sleepers:
            await self._changed.wait()
