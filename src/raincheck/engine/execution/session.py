"""An attempt in hand: its task as last seen, what it writes, and whether it has to stop.

Looking at a task while an attempt on it is under way, whenever there was a hint that something happened to it.
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
from raincheck.core.policies import pause_after
from raincheck.core.records import Journal, Task, View
from raincheck.engine.submit import Means
from raincheck.errors import AlreadyRecorded, InvalidValue, LeaseLost, StaleChange, StoreError, TaskNotFound
from raincheck.stores.requests import HeldAttempt

logger = logging.getLogger(__name__)

BEGINS_AFTER = 0.02
"""Seconds for which an attempt is left alone. Its own beginning gives a hint too, and many are over by then."""

AFTER_AN_ERROR = 0.5


class Lookout:
    """Looks for one attempt: from when its body waits for something, or soon after it began."""

    def __init__(self, look: Callable[[], Awaitable[None]], task: str, clock: Clock) -> None:
        self._look = look
        self._task = task
        self._clock = clock
        self._call_off: Callable[[], object] | None = None
        self._job: asyncio.Task[None] | None = None
        self._is_over = False
        self.poked = asyncio.Event()
        """Something may have happened to the task."""

    def begin_soon(self, clock: Clock) -> None:
        self._call_off = clock.call_later(BEGINS_AFTER, self.begin)

    def begin(self) -> None:
        if self._job is None and not self._is_over:
            self._job = asyncio.create_task(self._look_when_poked())

    async def end(self) -> None:
        self._is_over = True
        if self._call_off is not None:
            self._call_off()
        if self._job is not None:
            self._job.cancel()
            await asyncio.wait([self._job])

    async def _look_when_poked(self) -> None:
        while not self._is_over:
            await self.poked.wait()
            self.poked.clear()
            try:
                await self._look()
            except StoreError as error:
                logger.warning("task %s: can't be read just now: %s", self._task, error)
                await self._clock.sleep(AFTER_AN_ERROR)
                self.poked.set()


REFUSAL = 0.02
"""Seconds that it takes to be refused."""

TRIES = 5
"""How often a write is tried that the database refuses for a reason of its own, which may be what is written."""


class Stop(Enum):
    """Why an attempt has to stop before its body has ended."""

    LOST = auto()
    """The task was cancelled, has ended or is another attempt's: there is nothing left to write."""
    PARK = auto()
    """It waits, or is to be paused, and gives up its place meanwhile."""
    RELEASE = auto()
    """The worker shuts down."""
    TIMEOUT = auto()
    """The attempt took too long."""
    DEADLINE = auto()
    """The task did."""


class Hold:
    """The one place through which an attempt writes, so that its writes never get in each other's way."""

    def __init__(
        self, means: Means, journal: Journal, grace: float, over: asyncio.Event, *, is_coroutine: bool
    ) -> None:
        self.means = means
        self.grace = grace
        self.is_coroutine = is_coroutine
        self.task: Task = journal.task
        self.journal = journal
        self.fence = journal.task.fence
        self.why_stopped: Stop | None = None
        self.parking: Park | None = None
        self.stay: int | None = None  # The number of the state that the body of a process is in, as far as it knows.
        self.lasts_until: datetime | None = None
        """When the attempt should long be over, so that its lease is not extended any more."""
        self.is_noticed = False
        """Whether the body knows that it has to stop. From then on, what it returns is not its result."""
        self.lease_until = journal.task.attempt.lease.expires_at if journal.task.attempt else None
        """How long the lease lasts, as far as this process knows."""
        self.stopped = asyncio.Event()
        self.refused = 0
        """How many calls of the body wait to be taken out of it."""
        self.over = over
        """What comes of the attempt is written, or nothing does."""
        self.ending: View | None = None
        """The end of the task, if this attempt wrote it."""
        self.is_cut_off = False
        """Whether that end is none of the body's: it was stopped, and must not be run again."""
        self.lookout = Lookout(self.look, self.task.shown_id, means.clock)
        self._heard = asyncio.Event()
        self._scope = Scope.within(journal.task.namespace)
        self._writing = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._tell_stopped: Callable[[], None] | None = None

    @property
    def held(self) -> HeldAttempt:
        return HeldAttempt(self.task.id, self.fence)

    @property
    def is_stopped(self) -> bool:
        return self.why_stopped is not None

    def stop(self, why: Stop) -> None:
        """Have the attempt stop. The first reason counts, except that what is lost is lost."""
        if self.why_stopped is None or why is Stop.LOST:
            self.why_stopped = why
        self.stopped.set()
        if self._tell_stopped is not None:
            self._tell_stopped()

    def when_stopped(self, tell: Callable[[], None]) -> None:
        """Call this when the attempt has to stop."""
        self._tell_stopped = tell

    def park(self, until: datetime | None) -> None:
        """Have the attempt stop, to go on at a moment or when something has happened that it does not know of now."""
        self.parking = Park(self.fence, self.journal.task.signals, until)
        self.stop(Stop.PARK)

    def notice(self) -> bool:
        """Whether the attempt has to stop, asked by the body."""
        self.is_noticed |= self.is_stopped
        return self.is_stopped

    async def check_going_on(self) -> None:
        """Take whoever asks out of the body, if the attempt has to stop.

        A coroutine is taken out by the cancelling of its main branch, which takes the others along. Were a branch to
        end by itself, the main one might go on as if that branch had done its work.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidValue("a context belongs to the event loop that its body runs in: don't use it in another")
        if not self.notice():
            return
        self.refused += 1
        try:
            if self.is_coroutine:
                await self.over.wait()
            # A body that does not take no for an answer asks again and again, and others want to run, too.
            await asyncio.sleep(REFUSAL)
        finally:
            self.refused -= 1
        raise asyncio.CancelledError

    def heard(self) -> Coroutine[Any, Any, object]:
        """Something to await: news for the body, from now on. An answer, a child that ended, a pause."""
        self.lookout.begin()
        return self._heard.wait()

    async def write(self, command: Command) -> Task:
        """Do what the command asks, and return the task as it is then.

        Raises:
            LeaseLost: the attempt does not hold the task any more. It is stopped.
        """
        async with self._writing:
            try:
                return await self._write(command)
            except (LeaseLost, TaskNotFound) as error:
                self.stop(Stop.LOST)
                raise LeaseLost(self.task.id, self.fence) from error

    async def note(self, command: Command) -> Task:
        """`write`, for a body: one whose attempt does not hold the task any more is taken out of its call."""
        await self.check_going_on()
        try:
            return await self.write(command)
        except LeaseLost:
            await self.check_going_on()
            raise asyncio.CancelledError from None

    async def _write(self, command: Command) -> Task:
        tries = 0
        # Not given up: what the body has done is not to be lost because the store was away for a while. It ends when
        # the store is back, or when somebody cancels the waiting.
        while True:
            change = decide(self.task, command, self.means.clock.now(), self.means.limits)
            if change is None:
                return self.task
            try:
                await self.means.store.commit([change])
            except StaleChange:
                self.task = await self._load()
                self.lookout.poked.set()
            except AlreadyRecorded:
                if tries == 0:
                    raise
                # An earlier try was kept after all, and only its receipt was lost: nobody else writes for this attempt.
                self.task = await self._load()
                return self.task
            except StoreError as error:
                tries += 1
                if type(error) is StoreError and tries == TRIES:
                    raise
                logger.warning("task %s: will try again to write, since %s", self.task.shown_id, error)
                await self.means.clock.sleep(pause_after(tries))
                if self.why_stopped is Stop.LOST:
                    raise LeaseLost(self.task.id, self.fence) from error
            else:
                self.task = change.after
                if self.task.is_terminal:
                    self.ending = View(self.task, change.outcome, ())
                    self.is_cut_off = isinstance(command, Release)
                return self.task

    async def reread(self) -> None:
        """Read the task anew, with all that belongs to it."""
        async with self._writing:
            try:
                self.journal = await self.means.store.journal(self.task.id, self._scope, now=self.means.clock.now())
            except TaskNotFound:
                self.stop(Stop.LOST)
            self.task = self.journal.task
            if self.task.attempt is None or self.task.attempt.number != self.fence:
                self.stop(Stop.LOST)
        await self.check_going_on()

    async def look(self) -> None:
        """See what has become of the task, and let the body know what it waits for."""
        async with self._writing:
            try:
                self.task = await self._load()
            except TaskNotFound:
                self.stop(Stop.LOST)
                return
            if self.task.attempt is None or self.task.attempt.number != self.fence:
                self.stop(Stop.LOST)
            elif self.task.signals != self.journal.task.signals:
                now = self.means.clock.now()
                self.journal = await self.means.store.journal(self.task.id, self._scope, now=now)
                self.task = self.journal.task
            elif not self.task.pausing:
                return
        self._heard.set()
        self._heard = asyncio.Event()

    async def _load(self) -> Task:
        return await self.means.store.load(self.task.id, self._scope, now=self.means.clock.now())
