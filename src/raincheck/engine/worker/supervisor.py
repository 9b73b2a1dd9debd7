"""Everything that runs while an engine runs, and the order of its start and stop.

`DirectStarter` starts a submitted task in the transaction that creates it, if it can run in this process. The task need
not be queued, announced, polled for and claimed. That saves a commit and a few reads, which is most of the cost of a
task that takes a millisecond. No task is overtaken: the store starts the new task only if no other task waits.
"""

import asyncio
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from raincheck._async import repeat, wait_first
from raincheck.core.change import Creation
from raincheck.core.records import Attempt, Journal, Task, Tool
from raincheck.engine.durations import Durations
from raincheck.engine.execution.attempt import AttemptRunner
from raincheck.engine.execution.session import AttemptSession, StopReason
from raincheck.engine.follow import WaiterRegistry
from raincheck.engine.tool import EngineDeps
from raincheck.engine.worker.dispatch import Claimer, ClaimLoop, QueueDispatch
from raincheck.engine.worker.heartbeat import Heartbeat, Sweeper
from raincheck.engine.worker.slots import SlotPool
from raincheck.errors import StoreError
from raincheck.stores.change_feed import ChangeHint
from raincheck.stores.requests import ClaimRequest, HeldAttempt
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)


class DirectStarter:
    """Starts tasks that are submitted in this process, until it is stopped."""

    def __init__(self, claimer: Claimer, queue: QueueDispatch | None) -> None:
        self._deps = claimer.deps
        # Not the worker's name, so that this process can tell who started a task whose confirmation was lost.
        holder, lease = f"{claimer.holder}:direct", timedelta(seconds=claimer.deps.settings.lease)
        self._claim_request = ClaimRequest(claimer.deps.namespace, frozenset[Tool](), holder, lease, 1)
        self._runner = claimer.runner
        self._slots = claimer.slots
        self._queue = queue
        self._pending_count = 0
        self._has_arrived = asyncio.Event()
        self._is_stopping = False

    def try_start(self, creation: Creation) -> asyncio.Future[Task] | None:
        """Create a task, and run it if it is next. Returns None if no slot is free: then it should only be created.

        Cancelling the waiter does not stop a task that was started.
        """
        if self._is_stopping or not self._deps.store.capabilities.supports_direct_start:
            return None
        # Every tool with free slots, and not only the task's own: another task may wait for the same slot.
        tools = self._slots.free_tools
        if creation.task.tool not in tools:
            if self._queue is not None and creation.task.tool in self._slots.tools:
                self._queue.on_task_queued()
            return None
        created: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        if self._claim_request.tools != tools:
            self._claim_request = replace(self._claim_request, tools=tools)
        self._pending_count += 1
        self._slots.start(creation.task, self._create_and_run(creation, self._claim_request, created))
        return created

    def stop_starting(self) -> None:
        """Start nothing new."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Start nothing new, and wait until tasks in flight are stored.

        Otherwise they would wait for their leases to expire.
        """
        self._is_stopping = True
        while self._pending_count:
            self._has_arrived.clear()
            await self._has_arrived.wait()

    async def _create_and_run(
        self, creation: Creation, claim: ClaimRequest, created: asyncio.Future[Task]
    ) -> Task | None:
        now = creation.task.created_at
        try:
            task = await self._deps.store.create(creation, quota=self._deps.settings.quota, now=now, claim=claim)
            if self._deps.observer is not None:
                self._deps.observer.on_create(creation, task)
        except BaseException as error:
            self._resolve_created(created, error)
            if not isinstance(error, Exception):
                raise
            # The task may have been stored, and only the confirmation was lost.
            return await self._run_if_started(creation.task) if isinstance(error, StoreError) else None
        self._resolve_created(created, task)
        if task.id != creation.task.id:
            return None
        if not self._started_here(task.attempt):
            if task.attempt is None and self._queue is not None:
                self._queue.on_task_queued()
            return None
        await self._renew_if_late(task, now)
        return await self._run(task, _first_journal(task, creation))

    async def _renew_if_late(self, task: Task, asked_at: datetime) -> None:
        """Renew the lease of a task whose creation waited for other writers: its lease started before that."""
        now = self._deps.clock.now()
        if now - asked_at > self._claim_request.lease_for / 3:
            with suppress(StoreError):
                attempt = HeldAttempt(task.id, task.attempt_number)
                await self._deps.store.extend_leases([attempt], until=now + self._claim_request.lease_for)

    def _resolve_created(self, created: asyncio.Future[Task], outcome: Task | BaseException) -> None:
        """Resolve the future of the submitter, unless it was cancelled."""
        self._pending_count -= 1
        self._has_arrived.set()
        if created.done():
            return
        if isinstance(outcome, Task):
            created.set_result(outcome)
        elif isinstance(outcome, Exception):
            created.set_exception(outcome)
        else:
            created.cancel()

    async def _run_if_started(self, task: Task) -> Task | None:
        """Run the task if it was started after all: no other process knows of it, and its lease would expire."""
        journal = await self._runner.read_journal(task)
        if journal is None or not self._started_here(journal.task.attempt):
            return None
        return await self._run(journal.task, journal)

    def _started_here(self, attempt: Attempt | None) -> bool:
        """Return whether this process started the attempt.

        Another process may have it by now, if the task was queued and the reply was late.
        """
        return attempt is not None and attempt.lease.holder == self._claim_request.holder

    async def _run(self, task: Task, journal: Journal) -> Task | None:
        # Not if the engine was stopped meanwhile: another process can run it, and it need not be interrupted.
        task_after = await self._runner.run_and_log_errors(task, journal, may_start=not self._is_stopping)
        # The attempt holds its slot until this returns. The next claim checks for free slots a few turns of the loop
        # later.
        if self._queue is not None:
            self._queue.fill_freed_slot()
        return task_after


def _first_journal(task: Task, creation: Creation) -> Journal:
    """Return the journal of a task that was just created, without reading it."""
    return Journal(task, creation.arguments, creation.caller, variables=None, steps=(), inputs=(), artifacts=())


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

    def __init__(self, deps: EngineDeps, waiters: WaiterRegistry, durations: Durations, *, works: bool) -> None:
        self._deps = deps
        self._waiters = waiters
        self._durations = durations
        self._works = works
        self._slots = SlotPool(deps.toolbox.subset(deps.settings.queues), deps.settings.concurrency)
        self._runner = AttemptRunner(deps, self._slots, self._on_attempt_settled)
        self._heartbeat = Heartbeat(deps, self._runner)
        self._sweeper = Sweeper(deps, self._heartbeat, self._runner)
        holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._claimer = Claimer(deps, holder, self._runner, self._slots)
        make_dispatcher = deps.store.capabilities.make_dispatcher
        self._queue = None if make_dispatcher is None else QueueDispatch(self._claimer, make_dispatcher())
        self._dispatch = self._queue or ClaimLoop(self._claimer)
        self._direct_starter = DirectStarter(self._claimer, self._queue)
        self._hurry = asyncio.Event()
        self._background_tasks: list[asyncio.Task[None]] = []
        self._working: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._waiters.start(self._runner.has_current)
        self._heartbeat.start()
        clock = self._deps.clock
        # The listener is first, so that it receives every change that the other loops have not read yet.
        self._background_tasks = [
            asyncio.create_task(repeat("change listener", self._listen, clock), name="raincheck change listener"),
            asyncio.create_task(repeat("sweeper", self._sweeper.run_round, clock), name="raincheck sweeper"),
            asyncio.create_task(repeat("polling", self._wake_due_waiters, clock), name="raincheck polling"),
            asyncio.create_task(repeat("task durations", self._sync_durations, clock), name="raincheck durations"),
        ]
        if self._queue is not None:
            recovering = repeat("queue recovery", self._queue.recover, clock)
            self._background_tasks.append(asyncio.create_task(recovering, name="raincheck recovery"))
        if self._works:
            self._working = asyncio.create_task(self._dispatch.run(), name="raincheck worker")

    def try_start(self, creation: Creation) -> asyncio.Future[Task] | None:
        """Create a task and run it here if it is next. None if this process can't run it, or not now."""
        return self._direct_starter.try_start(creation) if self._works else None

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
        self._slots.request_all_slots()
        if self._slots.waiting.total():
            await asyncio.sleep(PARK_SECONDS)
        await wait_first(self._wait_for_attempts(), asyncio.sleep(self._deps.settings.grace), self._hurry.wait())
        unwind_seconds = max((session.tool.grace for session in self._runner.sessions), default=0.0) + UNWIND_TIMEOUT
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
        self._waiters.stop()

    async def _listen(self) -> None:
        with self._deps.store.listen() as feed:
            await feed.for_each(self._on_hint)

    async def _wait_for_attempts(self) -> None:
        while running := self._slots.running:
            await asyncio.wait(running)

    def _on_hint(self, hint: ChangeHint) -> None:
        self._runner.notify_changed(hint)
        self._slots.on_hint(hint)
        self._waiters.on_hint(hint)

    def _on_attempt_settled(self, session: AttemptSession) -> None:
        """Handle an attempt whose outcome is written. Its followers need not wait for the store's notification."""
        self._slots.on_attempt_settled(session.task)
        if self._queue is not None and session.task.due_at is not None:
            self._queue.on_task_parked()
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
        clock, seconds = self._deps.clock, self._deps.settings.poll_interval
        await clock.sleep(seconds / CHECKS_PER_INTERVAL)
        self._waiters.wake_due(clock.monotonic(), seconds)
