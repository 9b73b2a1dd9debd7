"""The session of one attempt: its task as last read, its writes, and when it has to stop, waits or parks.

`AttemptSession` is the attempt's only writer. It reads the task again after each hint that the task may have changed.

`ParkingPolicy` decides how a body waits: in memory for a short time, then parked, which frees its slot. An attempt
parks when it has waited for a while and nothing else of it is active: no step is running, no branch waits for the
store, and no branch has made a call lately. If another task needs the slot, a moment is enough, and if the body has no
other branches, it parks at once. Work that a branch does outside of steps can't be detected: a park interrupts it, and
it starts again when the task resumes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, TypeVar

from raincheck._async import retry_while_unavailable, wait_first
from raincheck.clock import SystemClock
from raincheck.core.commands import Command, Park, Release
from raincheck.core.decide import decide
from raincheck.core.policies import backoff_seconds
from raincheck.core.records import Journal, Task, View
from raincheck.engine.tool import EngineDeps, ExecutionMode, TaskTool
from raincheck.engine.worker.slots import SlotPool
from raincheck.errors import AlreadyRecorded, InvalidValue, LeaseLost, StaleChange, StoreError, TaskNotFound
from raincheck.stores.requests import HeldAttempt

T = TypeVar("T")

logger = logging.getLogger(__name__)

REFRESH_RETRY_DELAY = 0.5
"""Seconds until a read that failed is tried again. The task may have been cancelled meanwhile."""

WATCH_DELAY = 0.02
"""Seconds before the first read. The attempt's own start gives a hint too, and many attempts are over by then."""

STOPPED_CALL_DELAY = 0.02
"""Seconds that a refused call takes."""

MAX_WRITE_TRIES = 5
"""Maximum tries of a write that the database refuses for its own reason, which may be the written data."""


class StopReason(Enum):
    """The reason why an attempt has to stop before its body has ended."""

    LOST = auto()
    """The task was cancelled, has ended or belongs to another attempt: there is nothing left to write."""
    PARK = auto()
    """The attempt waits, or the task is to be paused, and the slot is released meanwhile."""
    RELEASE = auto()
    """The worker is shutting down."""
    TIMEOUT = auto()
    """The attempt took too long."""
    DEADLINE = auto()
    """The task took too long."""


class AttemptSession:
    """The single writer of an attempt, so that its writes are serialized.

    It refreshes its task after hints, from when the body first waits or soon after the attempt starts.
    """

    def __init__(self, deps: EngineDeps, journal: Journal, tool: TaskTool, settled: asyncio.Event) -> None:
        self.deps = deps
        self.tool = tool
        self.task: Task = journal.task
        self.journal = journal
        self.loop = asyncio.get_running_loop()
        """The loop that the body's context belongs to."""
        self.fence = journal.task.attempt_number
        self.stop_reason: StopReason | None = None
        self.park_command: Park | None = None
        self.state_number: int | None = None
        """The number of the state that the body of an instance is in, as far as the body knows."""
        self.renew_until = (
            None
            if tool.attempt_timeout is None
            else deps.clock.now() + timedelta(seconds=tool.attempt_timeout + tool.grace)
        )
        """When the attempt should have ended long ago, so that its lease is no longer extended."""
        self.is_stop_seen = False
        """Whether the body knows that it has to stop. From then on, what it returns is not its result."""
        self.lease_until = journal.task.attempt.lease.expires_at if journal.task.attempt else None
        """When the lease expires, as far as this process knows."""
        self.stopped = asyncio.Event()
        self.blocked_calls = 0
        """Number of calls of the body that wait to be cancelled."""
        self.settled = settled
        """Set when the attempt's outcome is written, or when none will be."""
        self.final_view: View | None = None
        """The final view of the task, if this attempt ended it."""
        self.is_interrupted = False
        """Whether the task ended because the body was interrupted and must not run again."""
        self.may_have_changed = asyncio.Event()
        """Set by hints that the task may have changed."""
        self._changed = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._cancel_refreshing: Callable[[], object] | None = None
        self._writing = asyncio.Lock()
        self._stop_callback: Callable[[], None] | None = None

    @property
    def held_attempt(self) -> HeldAttempt:
        return HeldAttempt(self.task.id, self.fence)

    @property
    def is_stopped(self) -> bool:
        return self.stop_reason is not None

    def refresh_soon(self) -> None:
        """Start to refresh the task after hints, a moment from now."""
        # On this machine's clock, whichever clock the task uses.
        self._cancel_refreshing = SystemClock().call_later(WATCH_DELAY, self._start_refreshing)

    def _start_refreshing(self) -> None:
        if self._refreshing is None and self._cancel_refreshing is not None:
            self._refreshing = asyncio.create_task(self._refresh_after_hints())

    async def stop_refreshing(self) -> None:
        if self._cancel_refreshing is not None:
            self._cancel_refreshing()
            self._cancel_refreshing = None
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])

    async def _refresh_after_hints(self) -> None:
        while True:
            await self.may_have_changed.wait()
            self.may_have_changed.clear()
            await retry_while_unavailable(
                self.refresh,
                retry_on=StoreError,
                on_failure=lambda error: logger.warning(
                    "task %s: could not be read, will try again: %s", self.task.log_id, error
                ),
                sleep=lambda _: self.deps.clock.sleep(REFRESH_RETRY_DELAY),
            )

    def stop(self, reason: StopReason) -> None:
        """Stop the attempt. The first reason counts, except that LOST overrides any other."""
        if self.stop_reason is None or reason is StopReason.LOST:
            self.stop_reason = reason
        self.stopped.set()
        if self._stop_callback is not None:
            self._stop_callback()

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call this when the attempt has to stop."""
        self._stop_callback = callback

    def park(self, until: datetime | None) -> None:
        """Stop the attempt, to resume at this time or when the task has changed in a way that it does not know yet."""
        self.park_command = Park(self.fence, self.journal.task.signals, until)
        self.stop(StopReason.PARK)

    def observe_stop(self) -> bool:
        """Return whether the attempt has to stop, and note that the body now knows."""
        self.is_stop_seen |= self.is_stopped
        return self.is_stopped

    async def raise_if_stopped(self) -> None:
        """Interrupt the calling body if the attempt has to stop.

        A coroutine is interrupted by cancelling its main branch, which takes the other branches along. If a single
        branch ended by itself, the main branch might continue as if that branch had done its work.
        """
        if asyncio.get_running_loop() is not self.loop:
            raise InvalidValue(
                "a context belongs to the event loop that its body runs in: do not use it in another one"
            )
        if not self.observe_stop():
            return
        self.blocked_calls += 1
        try:
            if self.tool.execution_mode is ExecutionMode.LOOP:
                await self.settled.wait()
            # A body that ignores the refusal calls again and again, and other tasks need the event loop.
            await asyncio.sleep(STOPPED_CALL_DELAY)
        finally:
            self.blocked_calls -= 1
        raise asyncio.CancelledError

    def wait_for_change(self) -> Coroutine[Any, Any, object]:
        """Return an awaitable for the next change that concerns the body: an answer, an ended child, a pause."""
        self._start_refreshing()
        return self._changed.wait()

    async def write(self, command: Command) -> Task:
        """Execute the command, and return the task after it.

        Raises:
            LeaseLost: the attempt no longer holds the task. The attempt is stopped.
        """
        async with self._writing:
            try:
                await self._write(command)
            except (LeaseLost, TaskNotFound) as error:
                self.stop(StopReason.LOST)
                raise LeaseLost(self.task.id, self.fence) from error
            return self.task

    async def write_from_body(self, command: Command) -> Task:
        """Write for a body: if the attempt no longer holds the task, the call is interrupted."""
        if self.stop_reason is not None or asyncio.get_running_loop() is not self.loop:
            await self.raise_if_stopped()
        try:
            return await self.write(command)
        except LeaseLost:
            await self.raise_if_stopped()
            raise asyncio.CancelledError from None

    async def _write(self, command: Command) -> Task:
        tries = 0
        # Retried without limit: the body's work must not be lost because the store is unavailable for a while. The loop
        # ends when the store is back, or when the waiter is cancelled.
        while True:
            change = decide(self.task, command, self.deps.clock.now(), self.deps.settings.limits)
            if change is None:
                return self.task
            try:
                await self.deps.store.commit([change])
            except StaleChange:
                self.task = await self._load()
                self.may_have_changed.set()
            except AlreadyRecorded:
                if tries == 0:
                    raise
                # An earlier try was stored after all, and only its confirmation was lost: this attempt has no other
                # writer.
                self.task = await self._load()
                return self.task
            except StoreError as error:
                tries += 1
                if type(error) is StoreError and tries == MAX_WRITE_TRIES:
                    raise
                logger.warning("task %s: a write failed, will try again: %s", self.task.log_id, error)
                await self.deps.clock.sleep(backoff_seconds(tries))
                if self.stop_reason is StopReason.LOST:
                    raise LeaseLost(self.task.id, self.fence) from error
            else:
                if self.deps.observer is not None:
                    await self.deps.observer.on_commit(change)
                self.task = change.after
                if self.task.is_terminal:
                    self.final_view = View(self.task, change.outcome, ())
                    self.is_interrupted = isinstance(command, Release)
                return self.task

    async def reload(self) -> None:
        """Read the task again, with everything that belongs to it."""
        async with self._writing:
            try:
                await self._read_journal()
            except TaskNotFound:
                self.stop(StopReason.LOST)
            if self.task.attempt is None or self.task.attempt.number != self.fence:
                self.stop(StopReason.LOST)
        await self.raise_if_stopped()

    async def refresh(self) -> None:
        """Read the task again, and wake the body if something that it waits for has changed."""
        async with self._writing:
            try:
                self.task = await self._load()
            except TaskNotFound:
                self.stop(StopReason.LOST)
                return
            if self.task.attempt is None or self.task.attempt.number != self.fence:
                self.stop(StopReason.LOST)
            elif self.task.signals != self.journal.task.signals:
                await self._read_journal()
            elif not self.task.pausing:
                return
        self._changed.set()
        self._changed = asyncio.Event()

    async def _read_journal(self) -> None:
        self.journal = await self.deps.store.journal(self.task.id, self.deps.scope, now=self.deps.clock.now())
        self.task = self.journal.task

    async def _load(self) -> Task:
        return await self.deps.store.load(self.task.id, self.deps.scope, now=self.deps.clock.now())


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

    def __init__(self, session: AttemptSession, slots: SlotPool) -> None:
        self._session = session
        self._clock = session.deps.clock
        self._park_after = session.deps.settings.park_after
        self._slots = slots
        self._tool = session.task.tool.name
        self._slot_wanted = slots.wanted_event(self._tool)
        self.running_steps: set[tuple[str, int]] = set()
        """The names and occurrences of the steps that are running. The attempt does not park meanwhile."""
        self._calls = 0
        """Number of branches that wait for the store to read or write for them."""
        self._last_active = self._clock.monotonic()
        self._waits: list[_Wait] = []
        self.main_branch: asyncio.Task[None] | None = None
        """The asyncio task of the body, if it has one: when that waits, there are no other branches."""

    def end_step(self, name: str, occurrence: int) -> None:
        self.running_steps.discard((name, occurrence))
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
        session = self._session
        is_fine = (
            session.stop_reason is None and not session.task.pausing and session.loop is asyncio.get_running_loop()
        )
        if is_fine and (session.lease_until is None or session.lease_until > self._clock.now()):
            self._last_active = self._clock.monotonic()
        else:
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
                with self._slots.count_waiting(self._tool):
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
        if self.running_steps or self._calls or self._is_beside_work:
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
