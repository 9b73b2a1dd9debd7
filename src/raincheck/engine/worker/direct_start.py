"""Direct start: start a submitted task in the transaction that creates it, if it can run in this process.

The task need not be queued, announced, polled for and claimed. That saves a commit and a few reads, which is most of
the cost of a task that takes a millisecond. No task is overtaken: the store starts the new task only if no other task
waits.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from raincheck.core.change import Creation
from raincheck.core.records import Attempt, Journal, Task, Tool
from raincheck.engine.execution.runner import AttemptRunner
from raincheck.engine.settings import Settings
from raincheck.engine.submit import EngineDeps
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.worker.dispatch import DispatchStrategy
from raincheck.engine.worker.slots import SlotPool
from raincheck.errors import StoreError
from raincheck.stores.requests import ClaimRequest, HeldAttempt


class DirectStarter:
    """Starts tasks that are submitted in this process, until it is stopped."""

    def __init__(
        self,
        deps: EngineDeps,
        namespace: str,
        holder: str,
        toolbox: Toolbox,
        runner: AttemptRunner,
        settings: Settings,
        slots: SlotPool,
        dispatch: DispatchStrategy,
    ) -> None:
        self._deps = deps
        # Not the worker's name, so that this process can tell who started a task whose confirmation was lost.
        lease = timedelta(seconds=settings.lease)
        self._claim_request = ClaimRequest(namespace, frozenset[Tool](), f"{holder}:direct", lease, 1)
        self._toolbox = toolbox
        self._runner = runner
        self._quota = settings.quota
        self._slots = slots
        self._dispatch = dispatch
        self._pending_count = 0
        self._has_arrived = asyncio.Event()
        self._is_stopping = False

    def try_start(self, creation: Creation, now: datetime) -> asyncio.Future[Task] | None:
        """Create a task, and run it if it is next. Returns None if no slot is free: then it should only be created.

        Cancelling the waiter does not stop a task that was started.
        """
        if self._is_stopping or not self._deps.store.capabilities.supports_direct_start:
            return None
        # Every group with free slots, and not only the task's own: another task may wait for the same slot.
        groups = [group for group in self._toolbox.concurrency_groups if self._slots.free_slots(group) > 0]
        tools = groups[0].tools if len(groups) == 1 else frozenset[Tool]().union(*(group.tools for group in groups))
        if creation.task.tool not in tools:
            if any(creation.task.tool in group.tools for group in self._toolbox.concurrency_groups):
                self._dispatch.on_task_queued()
            return None
        created: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        if self._claim_request.tools != tools:
            self._claim_request = replace(self._claim_request, tools=tools)
        self._pending_count += 1
        self._slots.start(creation.task, self._create_and_run(creation, self._claim_request, now, created))
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
        self, creation: Creation, claim: ClaimRequest, now: datetime, created: asyncio.Future[Task]
    ) -> Task | None:
        try:
            task = await self._deps.store.create(creation, quota=self._quota, now=now, claim=claim)
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
            if task.attempt is None:
                self._dispatch.on_task_queued()
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
        self._dispatch.fill_freed_slot()
        return task_after


def _first_journal(task: Task, creation: Creation) -> Journal:
    """Return the journal of a task that was just created, without reading it."""
    return Journal(task, creation.arguments, creation.caller, variables=None, steps=(), inputs=(), artifacts=())
