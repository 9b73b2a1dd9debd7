"""How attempts get to this process: it claims them itself, or a dispatcher delivers jobs.

`PollingDispatch` serves stores that every worker claims from: it claims tasks that its tools can run, up to the free
slots. Polling is a read, so an idle worker writes nothing.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from raincheck._async import repeat, spawn_background, wait_first
from raincheck.core.records import Task, Tool
from raincheck.engine.toolbox import ConcurrencyGroup
from raincheck.engine.worker.claimer import Claimer
from raincheck.stores.dispatcher import AttemptFuture, Dispatcher
from raincheck.stores.requests import DUE_NOW


class ClaimLoop:
    """Claims and starts attempts, until it is stopped."""

    def __init__(self, claimer: Claimer) -> None:
        self._claimer = claimer
        self._is_stopping = False

    async def run(self) -> None:
        await repeat("claim loop", self._run_round, self._claimer.deps.clock, stop_when=lambda: self._is_stopping)

    def stop(self) -> None:
        """Claim nothing new. Running attempts continue."""
        self._is_stopping = True
        self._claimer.demand.changed.set()

    async def _run_round(self) -> None:
        """Run one round: claim for the free slots, then wait until something may have changed."""
        self._claimer.demand.changed.clear()
        due_at = await self._claim_all()
        if due_at is not None and not self._is_stopping:
            await self._wait_until_due(due_at)

    async def _claim_all(self) -> datetime | None:
        """Claim for the free slots. Returns when to poll next; None after a claim, as there may be more."""
        claimer = self._claimer
        now = claimer.deps.clock.now()
        due_at = now + timedelta(seconds=claimer.settings.poll_interval)
        runnable: list[ConcurrencyGroup] = []
        tools_to_park: set[str] = set()
        for group in claimer.concurrency_groups:
            blocking = self._tools_blocking(group)
            if claimer.slots.free_slots(group) <= 0 and not blocking:
                continue
            next_due = await claimer.deps.store.next_due(claimer.namespace, group.tools)
            if next_due is None or next_due > now:
                due_at = min(due_at, next_due or due_at)
            elif claimer.slots.free_slots(group) > 0:
                runnable.append(group)
            else:
                tools_to_park |= blocking
        if self._is_stopping:
            return due_at
        claimer.demand.request_slots(tools_to_park)
        return None if runnable and await self._claim(runnable) else due_at

    async def _claim(self, runnable: list[ConcurrencyGroup]) -> bool:
        # One claim for all groups, so that the store decides whose turn it is. It asks for no more tasks than fit into
        # each of them.
        # Groups that were filled meanwhile are left out: when one of their attempts ends, there is another poll.
        free_slots = {group: count for group in runnable if (count := self._claimer.slots.free_slots(group)) > 0}
        if not free_slots:
            return False
        tools = frozenset[Tool]().union(*(group.tools for group in free_slots))
        return bool(await self._claimer.claim(tools, min(free_slots.values())))

    def _tools_blocking(self, group: ConcurrencyGroup) -> set[str]:
        """Return the tools whose attempts only wait, and would free a slot for the group if they parked."""
        waiting = {tool for tool, count in self._claimer.demand.waiting.items() if count}
        return waiting if self._claimer.slots.is_full else waiting & {tool.name for tool in group.tools}

    async def _wait_until_due(self, due_at: datetime) -> None:
        clock = self._claimer.deps.clock
        seconds = (due_at - clock.now()).total_seconds()
        await wait_first(self._claimer.demand.changed.wait(), clock.sleep(seconds))


logger = logging.getLogger(__name__)

RECOVER_INTERVAL = 5.0
"""Seconds between two checks for tasks that should run and do not."""

UNSERVED_SECONDS = 10.0
"""Seconds without a start despite free slots, after which queued tasks are treated as having lost their jobs."""


class DispatchStrategy(Protocol):
    """The source of attempts, as the engine starts and stops it."""

    async def run(self) -> None:
        """Deliver attempts until stopped."""
        ...

    def stop(self) -> None:
        """Stop delivering attempts."""
        ...

    def start(self) -> Sequence["asyncio.Task[None]"]:
        """Start the background tasks that every process needs, whether or not it runs attempts."""
        ...

    def on_attempt_settled(self, task: Task) -> None:
        """Handle an attempt of this process whose outcome is written."""
        ...

    def on_task_queued(self) -> None:
        """Note that a task was queued here because no slot was free or other tasks wait."""
        ...

    def fill_freed_slot(self) -> None:
        """Start a waiting task in the slot of an ending attempt that no dispatcher delivered."""
        ...


class PollingDispatch(ClaimLoop):
    """The store is the queue. Claims deliver every task, including due tasks and tasks of dead workers."""

    def start(self) -> Sequence["asyncio.Task[None]"]:
        return ()

    def on_attempt_settled(self, task: Task) -> None:
        """Do nothing: the claim loop knows when the next task is due."""

    def on_task_queued(self) -> None:
        """Do nothing: the claim loop is notified of every queued task."""

    def fill_freed_slot(self) -> None:
        """Do nothing: the claim loop is notified of every freed slot."""


class QueueDispatch:
    """A dispatcher delivers jobs."""

    def __init__(self, claimer: Claimer, dispatcher: Dispatcher) -> None:
        self._claimer = claimer
        self._dispatcher = dispatcher
        self._has_parked = asyncio.Event()
        self._works = False
        self._checked_at = claimer.deps.clock.monotonic()
        self._was_unserved = False
        self._may_have_queued = False
        self._started_count = 0

    async def run(self) -> None:
        self._works = True
        requesting_slots = asyncio.create_task(self._request_waiting_slots(), name="raincheck slot requests")
        try:
            await self._dispatcher.run(self._claimer)
        finally:
            requesting_slots.cancel()

    def stop(self) -> None:
        self._dispatcher.stop()

    def start(self) -> Sequence["asyncio.Task[None]"]:
        recovering = repeat("queue recovery", self._recover, self._claimer.deps.clock)
        return [asyncio.create_task(recovering, name="raincheck recovery")]

    def on_attempt_settled(self, task: Task) -> None:
        if task.due_at is not None:
            self._has_parked.set()

    def on_task_queued(self) -> None:
        self._may_have_queued = True

    def fill_freed_slot(self) -> None:
        if self._may_have_queued:
            spawn_background(self._run_following())

    async def _run_following(self) -> None:
        try:
            while (running := await self._claim_following()) is not None:
                await asyncio.wait([running])
        except Exception as error:  # noqa: BLE001 - waiting tasks have jobs, which deliver them
            logger.debug("could not start a queued task in a freed slot: %s", error)

    async def _claim_following(self) -> AttemptFuture | None:
        # Before the claim: it may miss a task that is queued meanwhile.
        self._may_have_queued = False
        running = await self._claimer.claim_following()
        # If no slot was free, tasks may still be waiting.
        self._may_have_queued |= running is not None or not self._claimer.free_tools
        return running

    async def _request_waiting_slots(self) -> None:
        """Make waiting bodies park when every slot is taken: another task may need one, without any notification."""
        demand = self._claimer.demand
        while True:
            await demand.changed.wait()
            demand.changed.clear()
            demand.request_slots([tool.name for tool in self._claimer.tools] if self._claimer.slots.is_full else [])

    async def _recover(self) -> None:
        clock = self._claimer.deps.clock
        self._has_parked.clear()
        now = clock.now()
        latest = now + timedelta(seconds=RECOVER_INTERVAL)
        due_at = await self._dispatcher.recover(now)
        if self._works:
            await self._claim_tasks_without_jobs()
        seconds = (min(due_at or latest, latest) - clock.now()).total_seconds()
        await wait_first(self._has_parked.wait(), clock.sleep(max(0.0, seconds)))

    async def _claim_tasks_without_jobs(self) -> None:
        """Claim queued tasks that have lost their jobs, for example because the job table was emptied."""
        claimer, elapsed = self._claimer, self._claimer.deps.clock.monotonic()
        if elapsed < self._checked_at + UNSERVED_SECONDS:
            return
        self._checked_at = elapsed
        is_idle, self._started_count = claimer.started_count == self._started_count, claimer.started_count
        can_start = is_idle and bool(claimer.free_tools)
        is_unserved = can_start and await claimer.deps.store.next_due(claimer.namespace, claimer.free_tools) == DUE_NOW
        if is_unserved and self._was_unserved:
            logger.warning("found queued tasks without a dispatcher job; claiming them directly")
            while claimer.free_tools and await claimer.claim_next(None) is not None:
                pass
        self._was_unserved = is_unserved


def create_dispatch(claimer: Claimer) -> DispatchStrategy:
    """Return the dispatch strategy for the claimer's store."""
    make_dispatcher = claimer.deps.store.capabilities.make_dispatcher
    return PollingDispatch(claimer) if make_dispatcher is None else QueueDispatch(claimer, make_dispatcher())
