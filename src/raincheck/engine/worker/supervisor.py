"""Everything that runs while an engine runs, and the order of its start and stop."""

import asyncio
import os
import secrets
import socket
from contextlib import ExitStack
from datetime import datetime

from raincheck._async import repeat, wait_first
from raincheck.core.change import Creation
from raincheck.core.records import Task
from raincheck.engine.durations import Durations
from raincheck.engine.execution.runner import AttemptRunner
from raincheck.engine.execution.session import AttemptSession, StopReason
from raincheck.engine.follow import WaiterRegistry
from raincheck.engine.settings import Settings
from raincheck.engine.submit import EngineDeps
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.worker.claimer import Claimer
from raincheck.engine.worker.direct_start import DirectStarter
from raincheck.engine.worker.dispatch import create_dispatch
from raincheck.engine.worker.heartbeat import Heartbeat
from raincheck.engine.worker.slots import SlotDemand, SlotPool
from raincheck.engine.worker.sweeper import Sweeper
from raincheck.stores.change_feed import ChangeHint
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

UNWIND_TIMEOUT = 3.0
"""Seconds beyond its tool's grace that a body gets to be handed back when the engine stops."""

CHECKS_PER_INTERVAL = 4
"""Number of checks for waiters due to poll, per poll interval."""

DURATIONS_INTERVAL = 5.0
"""Seconds between two syncs of task durations with the store, which merges them with those of other processes."""

DISPATCHER_STOP_TIMEOUT = 5.0
"""Seconds for the dispatcher to stop. It may be talking to a database that is unavailable."""

DURATIONS_SAVE_TIMEOUT = 1.0
"""Seconds to save durations when the engine stops."""

PARK_SECONDS = 0.1
"""Seconds for waiting bodies to notice that they should park."""


class Supervisor:
    """The background tasks of one engine, from its start to its stop."""

    def __init__(
        self,
        deps: EngineDeps,
        namespace: str,
        toolbox: Toolbox,
        settings: Settings,
        waiters: WaiterRegistry,
        durations: Durations,
        *,
        works: bool,
    ) -> None:
        self._deps = deps
        self._settings = settings
        self._waiters = waiters
        self._durations = durations
        self._works = works
        self._demand = SlotDemand()
        own = toolbox.subset(settings.queues)
        self._slots = SlotPool(own, settings.concurrency, self._demand)
        self._runner = AttemptRunner(deps, toolbox, settings, self._demand, self._on_attempt_settled)
        self._heartbeat = Heartbeat(deps, settings.lease, lambda: self._runner.sessions)
        self._sweeper = Sweeper(deps, settings, self._heartbeat, self._runner)
        holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._claimer = Claimer(deps, namespace, holder, own, self._runner, settings, self._slots, self._demand)
        self._dispatch = create_dispatch(self._claimer)
        self._direct_starter = DirectStarter(
            deps, namespace, holder, own, self._runner, settings, self._slots, self._dispatch
        )
        self._hurry = asyncio.Event()
        self._listener_stack = ExitStack()
        self._background_tasks: list[asyncio.Task[None]] = []
        self._working: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listener_stack.enter_context(self._waiters.register_listener(self._on_hint, self._runner.has_current))
        self._heartbeat.start()
        clock = self._deps.clock
        # The listener is first, so that it receives every change that the other loops have not read yet.
        self._background_tasks = [
            asyncio.create_task(repeat("change listener", self._listen, clock), name="raincheck change listener"),
            asyncio.create_task(repeat("sweeper", self._sweeper.run_round, clock), name="raincheck sweeper"),
            asyncio.create_task(repeat("polling", self._wake_due_waiters, clock), name="raincheck polling"),
            asyncio.create_task(repeat("task durations", self._sync_durations, clock), name="raincheck durations"),
        ]
        self._background_tasks += self._dispatch.start()
        if self._works:
            self._working = asyncio.create_task(self._dispatch.run(), name="raincheck worker")

    def try_start(self, creation: Creation, now: datetime) -> asyncio.Future[Task] | None:
        """Create a task and run it here if it is next. None if this process can't run it, or not now."""
        return self._direct_starter.try_start(creation, now) if self._works else None

    def skip_grace(self) -> None:
        """Do not wait any longer for bodies to end by themselves."""
        self._hurry.set()

    async def stop(self) -> None:
        """Claim nothing new, let bodies end, hand back those that have not ended, and stop everything."""
        self._claimer.close()
        self._dispatch.stop()
        self._direct_starter.stop_starting()
        if self._working is not None:
            await wait_first(asyncio.wait([self._working]), asyncio.sleep(DISPATCHER_STOP_TIMEOUT), self._hurry.wait())
            # The tasks of claims in flight would be lost until their leases expire.
            await wait_first(self._claimer.wait_for_claims(), self._hurry.wait())
        await self._direct_starter.stop()
        # Attempts that only wait give up their slots, so that they park and are not interrupted.
        self._demand.request_all_slots()
        if self._demand.waiting.total():
            await asyncio.sleep(PARK_SECONDS)
        await wait_first(self._wait_for_attempts(), asyncio.sleep(self._settings.grace), self._hurry.wait())
        unwind_seconds = max((session.grace for session in self._runner.sessions), default=0.0) + UNWIND_TIMEOUT
        self._runner.stop_all(StopReason.RELEASE)
        # A body that does not stop may continue: once it is handed back, it can't write any more.
        await wait_first(self._runner.wait_until_settled(), asyncio.sleep(unwind_seconds))
        working = () if self._working is None else (self._working,)
        remaining = (*self._background_tasks, *self._slots.running, *working)
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)
        if self._durations.has_unsaved:
            await self._save_last_durations()
        await self._heartbeat.stop()
        self._listener_stack.close()
        self._waiters.wake_all()

    async def _listen(self) -> None:
        with self._deps.store.listen() as feed:
            await feed.for_each(self._waiters.dispatch_hint)

    async def _wait_for_attempts(self) -> None:
        while running := self._slots.running:
            await asyncio.wait(running)

    def _on_hint(self, hint: ChangeHint) -> None:
        self._runner.notify_changed(hint)
        self._slots.on_hint(hint)

    def _on_attempt_settled(self, session: AttemptSession) -> None:
        """Handle an attempt whose outcome is written. Its followers need not wait for the store's notification."""
        self._slots.on_attempt_settled(session.task)
        self._dispatch.on_attempt_settled(session.task)
        if session.final_view is None:
            self._waiters.notify([session.task.id])
            return
        self._waiters.notify_ended(session.final_view)
        # A task that was interrupted by this stop would have taken longer.
        if not session.is_interrupted:
            self._durations.record(session.task)

    async def _sync_durations(self) -> None:
        await self._durations.refresh()
        await self._deps.clock.sleep(DURATIONS_INTERVAL)

    async def _save_last_durations(self) -> None:
        try:
            async with asyncio.timeout(DURATIONS_SAVE_TIMEOUT):
                await self._durations.refresh()
        except Exception as error:  # noqa: BLE001 - no error of the store is a reason not to stop
            logger.warning("the durations of the last tasks were not saved: %s", error)

    async def _wake_due_waiters(self) -> None:
        clock, seconds = self._deps.clock, self._settings.poll_interval
        await clock.sleep(seconds / CHECKS_PER_INTERVAL)
        self._waiters.wake_due(clock.monotonic(), seconds)
