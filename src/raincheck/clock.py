"""Clocks, timers and new task ids.

Pure code does not read the time or draw ids itself: both are passed in.

`TimerHeap` serves timers that are mostly cancelled before they expire: one for every call and one for every attempt,
each cancelled a millisecond later. As timers of the event loop, which are built to expire, they would cost a large part
of the work that they guard. A heap needs one loop timer for all of them, and cancelling is free.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Protocol

from raincheck.core.records import TaskId

COMPACTION_THRESHOLD = 1_000
"""The number of cancelled timers up to which the heap is not compacted."""


class ScheduledCall:
    """A scheduled callback that can be cancelled."""

    __slots__ = ("_timers", "callback", "context")

    def __init__(self, callback: Callable[[], object], timers: "TimerHeap") -> None:
        self.callback: Callable[[], object] | None = callback
        self.context: Context | None = copy_context()
        self._timers = timers

    def cancel(self) -> None:
        if self.callback is not None:
            self.release()
            self._timers.note_cancelled()

    def release(self) -> None:
        """Drop the references to the callback and its context: the entry may stay in the heap for a while."""
        self.callback = self.context = None


class TimerHeap:
    """The timers of one event loop, behind one loop timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._entries: list[tuple[float, int, ScheduledCall]] = []
        self._cancelled_count = 0
        self._numbers = count()
        self._fires_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        # A context that holds no references of the code that sets a timer. Separate, since only one thread can be in a
        # context.
        self._context = Context()

    def __len__(self) -> int:
        """Return the number of entries, including cancelled ones that are not yet removed."""
        return len(self._entries)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> ScheduledCall:
        """Call the callback after this many seconds."""
        at, scheduled = self.loop.time() + seconds, ScheduledCall(callback, self)
        # The number keeps entries with equal times in order, and the calls themselves from being compared.
        heappush(self._entries, (at, next(self._numbers), scheduled))
        if at < self._fires_at:
            self._arm(at)
        return scheduled

    def note_cancelled(self) -> None:
        self._cancelled_count += 1
        if self._cancelled_count > COMPACTION_THRESHOLD and self._cancelled_count > len(self._entries) / 2:
            self._entries = [entry for entry in self._entries if entry[2].callback is not None]
            heapify(self._entries)
            self._cancelled_count = 0

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = at
        self._timer = self.loop.call_at(at, self._fire, context=self._context)

    def _fire(self) -> None:
        # The loop may run a timer slightly early, but not late.
        now, self._fires_at, self._timer = max(self.loop.time(), self._fires_at), math.inf, None
        # Timers set during this run wait for the next iteration of the loop, even if they are already due: other tasks
        # must run.
        last = next(self._numbers)
        try:
            while self._entries and self._may_pop(self._entries[0], now, last):
                scheduled = heappop(self._entries)[2]
                callback, context = scheduled.callback, scheduled.context
                if callback is None or context is None:
                    self._cancelled_count -= 1
                else:
                    scheduled.release()
                    context.run(callback)
        finally:
            # If a callback raises, the remaining timers still run.
            if self._entries and self._entries[0][0] < self._fires_at:
                self._arm(self._entries[0][0])

    @staticmethod
    def _may_pop(first: tuple[float, int, ScheduledCall], now: float, last: int) -> bool:
        at, number, scheduled = first
        return scheduled.callback is None or (at <= now and number < last)


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


class SystemClock:
    """The clock of this machine."""

    _timers: TimerHeap | None = None

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        loop, timers = asyncio.get_running_loop(), self._timers
        if timers is None or timers.loop is not loop:
            # Timers set in another loop still run there.
            timers = self._timers = TimerHeap(loop)
        return timers.call_later(seconds, callback).cancel


class StoreClock(SystemClock):
    """The clock of the store in use: this machine's clock until a store with its own clock is opened."""

    def __init__(self) -> None:
        self._source: Clock | None = None

    def now(self) -> datetime:
        return super().now() if self._source is None else self._source.now()

    def use(self, clock: Clock | None) -> None:
        """Read the time from this clock from now on; None means this machine's clock."""
        self._source = clock


def new_task_id(now: datetime) -> TaskId:
    """Return an unguessable id, in characters that are safe in headers, URLs and text that models copy.

    128 random bits follow the milliseconds since 1970. The time reveals nothing, since a task shows when it was
    created, and it keeps tasks of the same time together in a store's index, however many there are.
    """
    return TaskId(f"{int(now.timestamp() * 1_000):012x}{secrets.token_hex(16)}")
