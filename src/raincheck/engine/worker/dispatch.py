"""How attempts get to this process: it claims them itself, or a dispatcher delivers jobs.

`Claimer` claims tasks while slots are free, and starts their attempts. `ClaimLoop` serves stores that every
worker claims from: it claims tasks that its tools can run, up to the free slots. Polling is a read, so an idle worker
writes nothing. `QueueDispatch` serves a dispatcher, which brings jobs.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import zip_longest

from raincheck._async import repeat, shield, spawn_background, wait_first
from raincheck.core.records import Journal, TaskId, Tool
from raincheck.engine.execution.attempt import AttemptRunner
from raincheck.engine.tool import EngineDeps
from raincheck.engine.toolbox import ConcurrencyGroup
from raincheck.engine.worker.slots import AttemptTask, SlotPool
from raincheck.stores.dispatcher import AttemptFuture, Dispatcher
from raincheck.stores.requests import DUE_NOW, ClaimRequest


class Claimer:
    """Claims tasks while slots are free, and starts their attempts."""

    def __init__(self, deps: EngineDeps, holder: str, runner: AttemptRunner, slots: SlotPool) -> None:
        self.deps = deps
        self.namespace = deps.namespace
        self.slots = slots
        self.holder = holder
        self.runner = runner
        self._is_closed = False
        self._claiming: set[asyncio.Task[list[AttemptTask]]] = set()
        self._pending_requests: list[asyncio.Future[AttemptTask | None]] = []
        self._is_serving = False
        self.started_count = 0
        """Number of attempts that this claimer has started."""

    @property
    def concurrency(self) -> int:
        return self.deps.settings.concurrency

    @property
    def tools(self) -> frozenset[Tool]:
        return self.slots.tools

    @property
    def free_tools(self) -> frozenset[Tool]:
        return frozenset() if self._is_closed else self.slots.free_tools

    def close(self) -> None:
        """Claim nothing new. Running attempts continue."""
        self._is_closed = True

    async def wait_for_claims(self) -> None:
        """Wait until claims in flight have slots. Otherwise their tasks would wait for their leases to expire."""
        while self._claiming:
            await asyncio.wait(self._claiming)

    async def claim_next(self, job_tool: Tool | None) -> AttemptTask | None:
        free = self.free_tools
        claimed = await self.claim(free, 1, job_tool) if free else []
        return claimed[0] if claimed else None

    async def claim_following(self) -> AttemptTask | None:
        """Coalesce concurrent requests: callers that arrive while a claim is in flight share the next one."""
        request: asyncio.Future[AttemptTask | None] = asyncio.get_running_loop().create_future()
        self._pending_requests.append(request)
        if len(self._pending_requests) == 1 and not self._is_serving:
            self._is_serving = True
            spawn_background(self._serve_requests())
        return await request

    async def _serve_requests(self) -> None:
        try:
            while self._pending_requests:
                requests, self._pending_requests = self._pending_requests, []
                await self._claim_for(requests)
        finally:
            self._is_serving = False

    async def _claim_for(self, requests: list[asyncio.Future[AttemptTask | None]]) -> None:
        free, attempts = self.free_tools, list[AttemptTask]()
        try:
            if free:
                attempts = await self.claim(
                    free, min(len(requests), self.slots.free_slots_for_any(free)), withdraw_job=True
                )
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            for request in requests:
                if not request.done():
                    request.set_exception(error)
            return
        # A cancelled request needs no result: claimed attempts run to their end anyway.
        for request, attempt in zip_longest(requests, attempts):
            if request is not None and not request.done():
                request.set_result(attempt)

    async def claim(
        self, tools: frozenset[Tool], limit: int, job_tool: Tool | None = None, *, withdraw_job: bool = False
    ) -> list[AttemptTask]:
        """Claim and start up to `limit` attempts with these tools. The caller has checked that slots are free.

        Cancelling the caller does not stop the claim: what is claimed is started, or handed back if the claimer is
        closed.
        """
        # Reserved now and not when the claim runs: otherwise another caller could count on the same slots.
        self.slots.reserve(tools, limit)
        claiming = spawn_background(self._claim(tools, limit, job_tool, withdraw_job))
        self._claiming.add(claiming)
        claiming.add_done_callback(self._claiming.discard)
        return await shield(claiming)

    async def _claim(
        self, tools: frozenset[Tool], limit: int, job_tool: Tool | None, withdraw_job: bool
    ) -> list[AttemptTask]:
        lease = timedelta(seconds=self.deps.settings.lease)
        journals: dict[TaskId, Journal] = {}
        request = ClaimRequest(self.namespace, tools, self.holder, lease, limit, job_tool, withdraw_job, journals)
        try:
            claimed = await self.deps.store.claim(request, now=self.deps.clock.now())
        finally:
            self.slots.cancel_reservation(tools, limit)
        self.started_count += len(claimed)
        may_start = not self._is_closed
        return [
            self.slots.start(task, self.runner.run_and_log_errors(task, journals.get(task.id), may_start=may_start))
            for task in claimed
        ]

    def on_free_change(self, callback: Callable[[], None]) -> None:
        self.slots.on_change(callback)


class ClaimLoop:
    """Claims and starts attempts, until it is stopped. The store is the queue.

    Claims deliver every task, including due tasks and tasks of dead workers.
    """

    def __init__(self, claimer: Claimer) -> None:
        self._claimer = claimer
        self._is_stopping = False

    async def run(self) -> None:
        await repeat("claim loop", self._run_round, self._claimer.deps.clock, stop_when=lambda: self._is_stopping)

    def stop(self) -> None:
        """Claim nothing new. Running attempts continue."""
        self._is_stopping = True
        self._claimer.slots.changed.set()

    async def _run_round(self) -> None:
        """Run one round: claim for the free slots, then wait until something may have changed."""
        self._claimer.slots.changed.clear()
        due_at = await self._claim_all()
        if due_at is not None and not self._is_stopping:
            await self._wait_until_due(due_at)

    async def _claim_all(self) -> datetime | None:
        """Claim for the free slots. Returns when to poll next; None after a claim, as there may be more."""
        claimer = self._claimer
        now = claimer.deps.clock.now()
        due_at = now + timedelta(seconds=claimer.deps.settings.poll_interval)
        runnable: list[ConcurrencyGroup] = []
        tools_to_park: set[str] = set()
        for group in claimer.slots.groups:
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
        claimer.slots.request_slots(tools_to_park)
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
        waiting = {tool for tool, count in self._claimer.slots.waiting.items() if count}
        return waiting if self._claimer.slots.is_full else waiting & {tool.name for tool in group.tools}

    async def _wait_until_due(self, due_at: datetime) -> None:
        clock = self._claimer.deps.clock
        seconds = (due_at - clock.now()).total_seconds()
        await wait_first(self._claimer.slots.changed.wait(), clock.sleep(seconds))


logger = logging.getLogger(__name__)

RECOVER_INTERVAL = 5.0
"""Seconds between two checks for tasks that should run and do not."""

UNSERVED_SECONDS = 10.0
"""Seconds without a start despite free slots, after which queued tasks are treated as having lost their jobs."""


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

    def on_task_parked(self) -> None:
        """Note that a task of this process was parked until a time."""
        self._has_parked.set()

    def on_task_queued(self) -> None:
        """Note that a task was queued here because no slot was free or other tasks wait."""
        self._may_have_queued = True

    def fill_freed_slot(self) -> None:
        """Start a waiting task in the slot of an ending attempt that no dispatcher delivered."""
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
        slots = self._claimer.slots
        while True:
            await slots.changed.wait()
            slots.changed.clear()
            slots.request_slots([tool.name for tool in slots.tools] if slots.is_full else [])

    async def recover(self) -> None:
        """Run one round: wake due tasks and recover lost jobs, then wait. Every process does, also without a worker."""
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
        claimer, deps = self._claimer, self._claimer.deps
        elapsed = deps.clock.monotonic()
        if elapsed < self._checked_at + UNSERVED_SECONDS:
            return
        self._checked_at = elapsed
        is_idle, self._started_count = claimer.started_count == self._started_count, claimer.started_count
        can_start = is_idle and bool(claimer.free_tools)
        is_unserved = can_start and await deps.store.next_due(deps.namespace, claimer.free_tools) == DUE_NOW
        if is_unserved and self._was_unserved:
            logger.warning("found queued tasks without a dispatcher job; claiming them directly")
            while claimer.free_tools and await claimer.claim_next(None) is not None:
                pass
        self._was_unserved = is_unserved
