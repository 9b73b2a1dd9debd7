"""A clock that goes when told, and that tells who sleeps on it: so a test moves it when the server waits."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from raincheck.testing import FakeClock
from tests.support.server.example import QUICK

LEASED = replace(QUICK, lease=86_400, progress_interval=0, park_after=86_400)
"""Neither a lease nor a body's place runs out when a test moves the clock, and reports don't wait for it to move."""


class WatchedClock(FakeClock):
    """Knows for how long each of its sleepers sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._asleep: Counter[float] = Counter()
        self._news = asyncio.Event()

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._sleep_watched(seconds, self.now() + timedelta(seconds=seconds))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        """Who is called later waits as well as who sleeps, until it is called or does not want to be any more."""
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
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def asleep(self, seconds: float, sleepers: int = 1) -> None:
        """Return when so many sleep for so many seconds."""
        while self._asleep[seconds] < sleepers:
            await self._news.wait()
