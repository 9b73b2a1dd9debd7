"""The session of one attempt: its task as last read, its writes, and whether it has to stop.

`ChangeWatcher` reads the task again during the attempt, after each hint that the task may have changed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from enum import Enum, auto
from typing import Any

from raincheck.clock import Clock
from raincheck.core.commands import Command, Park, Release
from raincheck.core.decide import decide
from raincheck.core.owner import Scope
from raincheck.core.policies import backoff_seconds
from raincheck.core.records import Journal, Task, View
from raincheck.engine.submit import EngineDeps
from raincheck.errors import AlreadyRecorded, InvalidValue, LeaseLost, StaleChange, StoreError, TaskNotFound
from raincheck.stores.requests import HeldAttempt

logger = logging.getLogger(__name__)

WATCH_DELAY = 0.02
"""Seconds before the first read. The attempt's own start gives a hint too, and many attempts are over by then."""

RETRY_DELAY = 0.5


class ChangeWatcher:
    """Refreshes a session after hints, from when the body first waits or soon after the attempt starts."""

    def __init__(self, refresh: Callable[[], Awaitable[None]], task: str, clock: Clock) -> None:
        self._refresh = refresh
        self._task = task
        self._clock = clock
        self._cancel_start: Callable[[], object] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._is_over = False
        self.wake_event = asyncio.Event()
        """Set when the task may have changed."""

    def start_soon(self, clock: Clock) -> None:
        self._cancel_start = clock.call_later(WATCH_DELAY, self.start)

    def start(self) -> None:
        if self._refreshing is None and not self._is_over:
            self._refreshing = asyncio.create_task(self._refresh_on_wake())

    async def stop(self) -> None:
        self._is_over = True
        if self._cancel_start is not None:
            self._cancel_start()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])

    async def _refresh_on_wake(self) -> None:
        while not self._is_over:
            await self.wake_event.wait()
            self.wake_event.clear()
            try:
                await self._refresh()
            except StoreError as error:
                logger.warning("task %s: could not be read, will try again: %s", self._task, error)
                await self._clock.sleep(RETRY_DELAY)
                self.wake_event.set()


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
    """The single writer of an attempt, so that its writes are serialized."""

    def __init__(
        self, deps: EngineDeps, journal: Journal, grace: float, settled: asyncio.Event, *, is_coroutine: bool
    ) -> None:
        self.deps = deps
        self.grace = grace
        self.is_coroutine = is_coroutine
        self.task: Task = journal.task
        self.journal = journal
        self.fence = journal.task.attempt_number
        self.stop_reason: StopReason | None = None
        self.park_command: Park | None = None
        self.state_number: int | None = None
        """The number of the state that the body of an instance is in, as far as the body knows."""
        self.renew_until: datetime | None = None
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
        self.watcher = ChangeWatcher(self.refresh, self.task.log_id, deps.clock)
        self._changed = asyncio.Event()
        self._scope = Scope.for_namespace(journal.task.namespace)
        self._writing = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._stop_callback: Callable[[], None] | None = None

    @property
    def held_attempt(self) -> HeldAttempt:
        return HeldAttempt(self.task.id, self.fence)

    @property
    def is_stopped(self) -> bool:
        return self.stop_reason is not None

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
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidValue(
                "a context belongs to the event loop that its body runs in: do not use it in another one"
            )
        if not self.observe_stop():
            return
        self.blocked_calls += 1
        try:
            if self.is_coroutine:
                await self.settled.wait()
            # A body that ignores the refusal calls again and again, and other tasks need the event loop.
            await asyncio.sleep(STOPPED_CALL_DELAY)
        finally:
            self.blocked_calls -= 1
        raise asyncio.CancelledError

    def wait_for_change(self) -> Coroutine[Any, Any, object]:
        """Return an awaitable for the next change that concerns the body: an answer, an ended child, a pause."""
        self.watcher.start()
        return self._changed.wait()

    async def write(self, command: Command) -> Task:
        """Execute the command, and return the task after it.

        Raises:
            LeaseLost: the attempt no longer holds the task. The attempt is stopped.
        """
        async with self._writing:
            try:
                return await self._write(command)
            except (LeaseLost, TaskNotFound) as error:
                self.stop(StopReason.LOST)
                raise LeaseLost(self.task.id, self.fence) from error

    async def write_from_body(self, command: Command) -> Task:
        """Write for a body: if the attempt no longer holds the task, the call is interrupted."""
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
            change = decide(self.task, command, self.deps.clock.now(), self.deps.limits)
            if change is None:
                return self.task
            try:
                await self.deps.store.commit([change])
            except StaleChange:
                self.task = await self._load()
                self.watcher.wake_event.set()
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
                self.task = change.after
                if self.task.is_terminal:
                    self.final_view = View(self.task, change.outcome, ())
                    self.is_interrupted = isinstance(command, Release)
                return self.task

    async def reload(self) -> None:
        """Read the task again, with everything that belongs to it."""
        async with self._writing:
            try:
                self.journal = await self.deps.store.journal(self.task.id, self._scope, now=self.deps.clock.now())
            except TaskNotFound:
                self.stop(StopReason.LOST)
            self.task = self.journal.task
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
                now = self.deps.clock.now()
                self.journal = await self.deps.store.journal(self.task.id, self._scope, now=now)
                self.task = self.journal.task
            elif not self.task.pausing:
                return
        self._changed.set()
        self._changed = asyncio.Event()

    async def _load(self) -> Task:
        return await self.deps.store.load(self.task.id, self._scope, now=self.deps.clock.now())
