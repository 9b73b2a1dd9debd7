"""What time it is, and new ids: the two things that pure code has to be given.

Things to be done later that mostly need not be done in the end, because what they are for is over first.

The event loop's own timers are made to ring. One for every call and one for every attempt, each called off a
millisecond later, take as long as much of what they watch over. Here there is one for all, and calling off is free.
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

FEW = 1_000
"""So many that were called off are not worth tidying up."""


class Alarm:
    """Something that is done later, unless it is called off."""

    __slots__ = ("_timers", "call", "context")

    def __init__(self, call: Callable[[], object], timers: "Timers") -> None:
        self.call: Callable[[], object] | None = call
        self.context: Context | None = copy_context()
        self._timers = timers

    def cancel(self) -> None:
        if self.call is not None:
            self.forget()
            self._timers.note_called_off()

    def forget(self) -> None:
        """Let go of what it holds: it may be remembered for a while."""
        self.call = self.context = None


class Timers:
    """The alarms of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._called_off = 0
        self._numbers = count()
        self._rings_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        # So that nothing of whoever sets an alarm is held on to. Its own, since only one thread can be in a context.
        self._context = Context()

    def __len__(self) -> int:
        """How many are remembered, with those of the called off that have not been forgotten yet."""
        return len(self._alarms)

    def after(self, seconds: float, call: Callable[[], object]) -> Alarm:
        """Have something done after so many seconds."""
        at, alarm = self.loop.time() + seconds, Alarm(call, self)
        # The number keeps those of one moment in order, and alarms from being compared.
        heappush(self._alarms, (at, next(self._numbers), alarm))
        if at < self._rings_at:
            self._arm(at)
        return alarm

    def note_called_off(self) -> None:
        self._called_off += 1
        if self._called_off > FEW and self._called_off > len(self._alarms) / 2:
            self._alarms = [one for one in self._alarms if one[2].call is not None]
            heapify(self._alarms)
            self._called_off = 0

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        self._timer = self.loop.call_at(at, self._ring, context=self._context)

    def _ring(self) -> None:
        # The loop rings a little early rather than late.
        now, self._rings_at, self._timer = max(self.loop.time(), self._rings_at), math.inf, None
        # What is set meanwhile rings at the next turn, also if it is due at once: others want theirs.
        last = next(self._numbers)
        try:
            while self._alarms and self._is_to_go(self._alarms[0], now, last):
                alarm = heappop(self._alarms)[2]
                call, context = alarm.call, alarm.context
                if call is None or context is None:
                    self._called_off -= 1
                else:
                    alarm.forget()
                    context.run(call)
        finally:
            # Whatever one of them raises, the others ring.
            if self._alarms and self._alarms[0][0] < self._rings_at:
                self._arm(self._alarms[0][0])

    @staticmethod
    def _is_to_go(first: tuple[float, int, Alarm], now: float, last: int) -> bool:
        at, number, alarm = first
        return alarm.call is None or (at <= now and number < last)


class Clock(Protocol):
    """Something that knows what time it is, in UTC, and that can be waited on."""

    def now(self) -> datetime: ...

    def elapsed(self) -> float:
        """Seconds that go on evenly, whoever sets the clock, and that stand still while the machine sleeps."""
        ...

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Something to await, which returns when so many seconds have passed on this clock since the call."""
        ...

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Have something called when so many seconds have passed, and return what prevents that."""
        ...


class SystemClock:
    """The clock of this machine."""

    _timers: Timers | None = None

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        loop, timers = asyncio.get_running_loop(), self._timers
        if timers is None or timers.loop is not loop:
            # What was set in another loop rings there all the same.
            timers = self._timers = Timers(loop)
        return timers.after(seconds, call).cancel


class StoresClock(SystemClock):
    """The clock of whatever store is in use: that of this machine, until a store has been opened that has another."""

    def __init__(self) -> None:
        self._followed: Clock | None = None

    def now(self) -> datetime:
        return super().now() if self._followed is None else self._followed.now()

    def follow(self, clock: Clock | None) -> None:
        """Tell the time of this clock from now on; None is this machine's."""
        self._followed = clock


def new_task_id(now: datetime) -> TaskId:
    """An id that nobody can guess, in characters that headers, URLs and models copy safely.

    128 random bits, after the milliseconds since 1970. The time gives nothing away, since a task tells when it was
    created; and it keeps tasks of one time together in a store's index, however many there are.
    """
    return TaskId(f"{int(now.timestamp() * 1_000):012x}{secrets.token_hex(16)}")
