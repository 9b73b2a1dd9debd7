"""What time it is, and new ids: the two things that pure code has to be given."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol

from raincheck.core.records import TaskId
from raincheck.timers import Timers


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
