"""Waiting inside a task body. A body waits in memory for a short time, then parks and frees its slot.

An attempt parks when it has waited for a while and nothing else of it is active: no step is running, no branch waits
for the store, and no branch has made a call lately. If another task needs the slot, a moment is enough, and if the body
has no other branches, it parks at once. Work that a branch does outside of steps can't be detected: a park interrupts
it, and it starts again when the task resumes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from raincheck._async import wait_first
from raincheck.engine.execution.session import AttemptSession
from raincheck.engine.worker.slots import SlotDemand

T = TypeVar("T")

MIN_IDLE_SECONDS = 0.05
"""Minimum idle seconds before a park if another task needs the slot."""

YIELD_SECONDS = 0.001
"""Seconds to let another branch run."""


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """A wait of one branch of the body."""

    poll: Callable[[], object | None]
    until: datetime | None
    action_task: asyncio.Task[Any] | None = None
    """The background task that does the work meanwhile. The attempt is active until that waits too."""

    def is_over(self, now: datetime) -> bool:
        return self.poll() is not None or (self.until is not None and self.until <= now)


class ParkingPolicy:
    """Decides how an attempt waits, and when it parks."""

    def __init__(self, session: AttemptSession, park_after: float, demand: SlotDemand) -> None:
        self._session = session
        self._clock = session.deps.clock
        self._park_after = park_after
        self._demand = demand
        self._tool = session.task.tool.name
        self._slot_wanted = demand.wanted_event(self._tool)
        self._running_steps: set[tuple[str, int]] = set()
        self._calls = 0
        """Number of branches that wait for the store to read or write for them."""
        self._last_active = self._clock.monotonic()
        self._waits: list[_Wait] = []
        self.main_branch: asyncio.Task[None] | None = None
        """The asyncio task of the body, if it has one: when that waits, there are no other branches."""

    def begin_step(self, name: str, occurrence: int) -> None:
        """Note that a step is running. The attempt does not park meanwhile."""
        self._running_steps.add((name, occurrence))

    def end_step(self, name: str, occurrence: int) -> None:
        self._running_steps.discard((name, occurrence))
        self._touch()

    async def run_busy(self, call: Awaitable[T]) -> T:
        """Await a store call, which may take long. The attempt does not park meanwhile.

        Otherwise the call might have just written what this attempt should resume with, and nothing would wake the
        task.
        """
        self._calls += 1
        try:
            return await call
        finally:
            self._calls -= 1
            self._touch()

    async def checkpoint(self) -> None:
        """Interrupt the body here if it has to stop, or if the task is to be paused."""
        await self.run_busy(self._stop_if_due())

    async def wait_for(
        self,
        poll: Callable[[], T | None],
        until: datetime | None = None,
        *,
        action_task: asyncio.Task[Any] | None = None,
    ) -> T | None:
        """Wait until `poll` returns a value or until a time. Returns the value, or None."""
        self._touch()
        is_alone = self.main_branch is asyncio.current_task()
        wait = _Wait(poll, until, action_task)
        self._waits.append(wait)
        try:
            while not wait.is_over(self._clock.now()):
                await self._stop_if_due()
                if wait.is_over(self._clock.now()):
                    break
                seconds = self._seconds_until_park(is_alone=is_alone)
                if seconds <= 0:
                    await self._park()
                    continue
                with self._demand.count_waiting(self._tool):
                    await self._pass_time(until, seconds)
        finally:
            self._waits.remove(wait)
            self._touch()
        return poll()

    def _touch(self) -> None:
        self._last_active = self._clock.monotonic()

    async def _stop_if_due(self) -> None:
        await self._session.raise_if_stopped()
        if self._session.lease_until is not None and self._session.lease_until <= self._clock.now():
            # This process may have been asleep, and another worker may have the task.
            await self._session.refresh()
            await self._session.raise_if_stopped()
        if self._session.task.pausing:
            # The task may have been resumed; then the body just continues.
            await self._session.refresh()
            if self._session.task.pausing:
                # A task that is to be paused is paused when its attempt parks. If it is resumed first, it is due.
                self._session.park(self._clock.now())
            await self._session.raise_if_stopped()

    def _seconds_until_park(self, *, is_alone: bool) -> float:
        """Return the seconds until the attempt has been idle long enough to park, as far as is known now."""
        if self._running_steps or self._calls or self._is_beside_work:
            return MIN_IDLE_SECONDS if self._slot_wanted.is_set() else max(self._park_after, MIN_IDLE_SECONDS)
        idle_seconds = self._park_after
        if self._slot_wanted.is_set():
            idle_seconds = 0.0 if is_alone else MIN_IDLE_SECONDS
        return self._last_active + idle_seconds - self._clock.monotonic()

    @property
    def _is_beside_work(self) -> bool:
        return all(wait.action_task is not None and not wait.action_task.done() for wait in self._waits)

    async def _park(self) -> None:
        now = self._clock.now()
        if any(wait.is_over(now) for wait in self._waits):
            # Another branch is about to continue, and has not had its turn of the loop yet.
            await asyncio.sleep(YIELD_SECONDS)
            return
        # Recorded now: what the body waits for may arrive while it unwinds, and then no code is waiting for it.
        self._session.park(min((wait.until for wait in self._waits if wait.until is not None), default=None))
        await self._session.raise_if_stopped()

    async def _pass_time(self, until: datetime | None, seconds: float) -> None:
        if until is not None:
            seconds = min(seconds, (until - self._clock.now()).total_seconds())
        events = [self._session.wait_for_change(), self._session.stopped.wait(), self._clock.sleep(seconds)]
        if not self._slot_wanted.is_set():
            events.append(self._slot_wanted.wait())
        await wait_first(*events)
