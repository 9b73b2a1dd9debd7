"""Claims tasks for this process, on behalf of a dispatcher."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import zip_longest
from typing import Any

from raincheck._async import shield, spawn_background
from raincheck.core.records import Journal, Task, TaskId, Tool
from raincheck.engine.execution.runner import AttemptRunner
from raincheck.engine.settings import Settings
from raincheck.engine.submit import EngineDeps
from raincheck.engine.toolbox import ConcurrencyGroup, Toolbox
from raincheck.engine.worker.slots import AttemptTask, SlotDemand, SlotPool
from raincheck.stores.requests import ClaimRequest


class Claimer:
    """Claims tasks while slots are free, and starts their attempts."""

    def __init__(
        self,
        deps: EngineDeps,
        namespace: str,
        holder: str,
        toolbox: Toolbox,
        runner: AttemptRunner,
        settings: Settings,
        slots: SlotPool,
        demand: SlotDemand,
    ) -> None:
        self.deps = deps
        self.namespace = namespace
        self.settings = settings
        self.slots = slots
        self.demand = demand
        self._holder = holder
        self._toolbox = toolbox
        self._runner = runner
        self._is_closed = False
        self._claiming: set[asyncio.Task[list[AttemptTask]]] = set()
        self._pending_requests: list[asyncio.Future[AttemptTask | None]] = []
        self._is_serving = False
        self.started_count = 0
        """Number of attempts that this claimer has started."""

    @property
    def concurrency(self) -> int:
        return self.settings.concurrency

    @property
    def concurrency_groups(self) -> tuple[ConcurrencyGroup, ...]:
        return self._toolbox.concurrency_groups

    @property
    def tools(self) -> frozenset[Tool]:
        return frozenset[Tool]().union(*(group.tools for group in self.concurrency_groups))

    @property
    def free_tools(self) -> frozenset[Tool]:
        if self._is_closed:
            return frozenset()
        return frozenset[Tool]().union(
            *(group.tools for group in self.concurrency_groups if self.slots.free_slots(group) > 0)
        )

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
        lease = timedelta(seconds=self.settings.lease)
        journals: dict[TaskId, Journal] = {}
        request = ClaimRequest(self.namespace, tools, self._holder, lease, limit, job_tool, withdraw_job, journals)
        try:
            claimed = await self.deps.store.claim(request, now=self.deps.clock.now())
        finally:
            self.slots.cancel_reservation(tools, limit)
        self.started_count += len(claimed)
        return [self.slots.start(task, self._run_attempt(task, journals.get(task.id))) for task in claimed]

    def _run_attempt(self, task: Task, journal: Journal | None) -> Coroutine[Any, Any, Task | None]:
        return self._runner.run_and_log_errors(task, journal, may_start=not self._is_closed)

    def on_free_change(self, callback: Callable[[], None]) -> None:
        self.slots.on_change(callback)
