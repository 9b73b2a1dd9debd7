"""A clock that goes when told, and that tells who sleeps on it: so a test moves it when the server waits."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from shop import QUICK

from raincheck.testing import FakeClock

LEASED = replace(QUICK, lease=86_400, report_every=0, patience=86_400)
"""Neither a lease nor a body's place runs out when a test moves the clock, and reports don't wait for it to move."""


class WatchedClock(FakeClock):
    """Knows for how long each of its sleepers sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._asleep: Counter[float] = Counter()
        self._news = asyncio.Event()

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._sleep_watched(seconds, self.now() + timedelta(seconds=seconds))

    async def _sleep_watched(self, seconds: float, moment: datetime) -> None:
        self._asleep[seconds] += 1
        news, self._news = self._news, asyncio.Event()
        news.set()
        try:
            await self._sleep_until(moment)
        finally:
            self._asleep[seconds] -= 1

    async def asleep(self, seconds: float, sleepers: int = 1) -> None:
        """Return when so many sleep for so many seconds."""
        while self._asleep[seconds] < sleepers:
            await self._news.wait()
