"""Clocks, timers and new task ids.

Pure code does not read the time or draw ids itself: both are passed in.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from raincheck.core.records import TaskId


class Clock(Protocol):
    """A source of UTC time, with timers."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float:
        """Return seconds that advance evenly, unaffected by clock changes. They stop while the machine sleeps."""
        ...

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Return an awaitable that completes when this many seconds have passed on this clock since the call."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        """Call the callback after this many seconds, and return a function that cancels it."""
        ...


class Timer:
    """Calls a function after a time, in the context that set the timer.

    Once it is cancelled, it holds neither of them: the loop may hold its handle for as long as the time lasts.
    """

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = partial(copy_context().run, callback)
        self._handle = asyncio.get_running_loop().call_later(seconds, self._expire, context=Context())

    def _expire(self) -> None:
        if self._call is not None:
            self._call()

    def cancel(self) -> None:
        self._call = None
        self._handle.cancel()


class SystemClock:
    """The clock of this machine."""

    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        return Timer(seconds, callback).cancel


CLOCK_STEP = timedelta(seconds=1)
"""A clock that differs by more than this from the time that has passed was set forward or back."""


class SteadyClock(SystemClock):
    """A clock that never runs backwards, for a store whose leases and sleeps are moments of this machine's clock.

    If the machine's clock is set back, this one continues from where it was and stays ahead, until the machine's clock
    is set forward again. A store calls `continue_from` when it is opened and at each sweep, so that its processes agree
    and a restart changes nothing.
    """

    def __init__(self, read: Callable[[], datetime] | None = None) -> None:
        self._read = read or partial(datetime.now, UTC)
        self.ahead = timedelta(0)
        """How far it is ahead of the machine's clock."""
        self._last_read = self._read(), self.monotonic()
        self._latest = self._last_read[0]
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            time, elapsed = self._read(), self.monotonic()
            last_time, last_elapsed = self._last_read
            self._last_read = time, elapsed
            set_back = timedelta(seconds=elapsed - last_elapsed) - (time - last_time)
            if abs(set_back) > CLOCK_STEP:
                self.ahead = max(self.ahead + set_back, timedelta(0))
            self._latest = max(self._latest, time + self.ahead)
            return self._latest

    def continue_from(self, moment: datetime) -> None:
        """Continue from this moment if it is later, since it has passed for another process."""
        self.now()
        with self._lock:
            behind = moment - self._latest
            if behind > CLOCK_STEP:
                self.ahead += behind


class StoreClock(SystemClock):
    """The clock of the store in use: this machine's clock until a store with its own clock is opened."""

    def __init__(self) -> None:
        self._source: Clock | None = None

    def now(self) -> datetime:
        return datetime.now(UTC) if self._source is None else self._source.now()

    def use(self, clock: Clock | None) -> None:
        """Read the time from this clock from now on; None means this machine's clock."""
        self._source = clock


def new_task_id(now: datetime) -> TaskId:
    """Return an unguessable id, in characters that are safe in headers, URLs and text that models copy.

    128 random bits follow the milliseconds since 1970. The time reveals nothing, since a task shows when it was
    created, and it keeps tasks of the same time together in a store's index, however many there are.
    """
    return TaskId(f"{int(now.timestamp() * 1_000):012x}{secrets.token_hex(16)}")
