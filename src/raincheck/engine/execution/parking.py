"""Waiting inside a body: first in place, so that a quick answer is quick, then parked, so that a slow one is free.

An attempt parks when it has waited for a while and nothing else of it goes on: no step is under way, no branch waits
for the store, and none has asked for anything lately. If another task needs the place, a moment is enough, and if the
body has no other branches, it parks at once. Work that a branch does outside of steps can't be seen; it is cut off by
the park, and begun again when the task goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from raincheck._async import first_of
from raincheck.engine.execution.session import Hold
from raincheck.engine.worker.slots import Room

T = TypeVar("T")

MOMENT = 0.05
"""Seconds in which nothing must have happened if somebody else needs the place."""

TICK = 0.001
"""Seconds in which another branch gets its turn."""


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """What a branch of the body waits for."""

    find: Callable[[], object | None]
    until: datetime | None
    beside: asyncio.Task[Any] | None = None
    """The branch that does the work meanwhile. As long as that does not wait too, something goes on."""

    def is_over(self, now: datetime) -> bool:
        return self.find() is not None or (self.until is not None and self.until <= now)


class Patience:
    """How an attempt waits, and when it gives up its place."""

    def __init__(self, hold: Hold, seconds: float, room: Room) -> None:
        self._hold = hold
        self._clock = hold.means.clock
        self._longest = seconds
        self._room = room
        self._tool = hold.task.tool.name
        self._needed = room.needed(self._tool)
        self._under_way: set[tuple[str, int]] = set()
        self._calls = 0
        """How many branches wait for the store to read or write something for them."""
        self._last_active = self._clock.elapsed()
        self._waits: list[_Wait] = []
        self.main_branch: asyncio.Task[None] | None = None
        """The body's own job, if it is one: when that waits, there are no other branches."""

    def begin_work(self, name: str, occurrence: int) -> None:
        """A step is under way: the attempt does not park."""
        self._under_way.add((name, occurrence))

    def end_work(self, name: str, occurrence: int) -> None:
        self._under_way.discard((name, occurrence))
        self._touch()

    async def during(self, call: Awaitable[T]) -> T:
        """Wait for a call to the store, which may take long: the attempt does not park meanwhile.

        Else what the call has just written might be for this attempt to go on with, and nothing would wake the task.
        """
        self._calls += 1
        try:
            return await call
        finally:
            self._calls -= 1
            self._touch()

    async def checkpoint(self) -> None:
        """A place where the body is stopped, if it has to stop or the task is to be paused."""
        await self.during(self._stop_if_due())

    async def wait_for(
        self,
        find: Callable[[], T | None],
        until: datetime | None = None,
        *,
        beside: asyncio.Task[Any] | None = None,
    ) -> T | None:
        """Wait until something is found, or until a moment. What was found, or None."""
        self._touch()
        is_alone = self.main_branch is asyncio.current_task()
        wait = _Wait(find, until, beside)
        self._waits.append(wait)
        try:
            while not wait.is_over(self._clock.now()):
                await self._stop_if_due()
                if wait.is_over(self._clock.now()):
                    break
                left = self._left(is_alone=is_alone)
                if left <= 0:
                    await self._park()
                    continue
                with self._room.wait_in(self._tool):
                    await self._pass_time(until, left)
        finally:
            self._waits.remove(wait)
            self._touch()
        return find()

    def _touch(self) -> None:
        self._last_active = self._clock.elapsed()

    async def _stop_if_due(self) -> None:
        await self._hold.check_going_on()
        if self._hold.lease_until is not None and self._hold.lease_until <= self._clock.now():
            # This process may have been asleep, and somebody else may have the task.
            await self._hold.look()
            await self._hold.check_going_on()
        if self._hold.task.pausing:
            # Somebody may have resumed it, and then it just goes on.
            await self._hold.look()
            if self._hold.task.pausing:
                # A task that is to be paused is paused when its attempt parks. If it is resumed first, it is due.
                self._hold.park(self._clock.now())
            await self._hold.check_going_on()

    def _left(self, *, is_alone: bool) -> float:
        """How many seconds until the attempt has been idle for long enough to park, as far as one can see."""
        if self._under_way or self._calls or self._is_beside_work:
            return MOMENT if self._needed.is_set() else max(self._longest, MOMENT)
        enough = self._longest
        if self._needed.is_set():
            enough = 0.0 if is_alone else MOMENT
        return self._last_active + enough - self._clock.elapsed()

    @property
    def _is_beside_work(self) -> bool:
        return all(wait.beside is not None and not wait.beside.done() for wait in self._waits)

    async def _park(self) -> None:
        now = self._clock.now()
        if any(wait.is_over(now) for wait in self._waits):
            # Another branch is about to go on, and just has not had its turn.
            await asyncio.sleep(TICK)
            return
        # Taken now: what the body waits for may come while it unwinds, and then nobody is there to see it.
        self._hold.park(min((wait.until for wait in self._waits if wait.until is not None), default=None))
        await self._hold.check_going_on()

    async def _pass_time(self, until: datetime | None, left: float) -> None:
        if until is not None:
            left = min(left, (until - self._clock.now()).total_seconds())
        events = [self._hold.heard(), self._hold.stopped.wait(), self._clock.sleep(left)]
        if not self._needed.is_set():
            events.append(self._needed.wait())
        await first_of(*events)
