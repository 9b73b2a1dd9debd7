"""The starter: a task that is asked for where it can run is begun in the transaction that keeps it.

It need not be queued, heard of, looked for and claimed. That is a commit less and a few reads, which is most of what a
task costs that takes a millisecond. Nobody is overtaken: the store begins it only if nothing else waits.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from raincheck.core.change import Creation
from raincheck.core.records import Attempt, Journal, Task, Tool
from raincheck.engine.execution.runner import Runner
from raincheck.engine.settings import Settings
from raincheck.engine.submit import Means
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.worker.dispatch import Dispatching
from raincheck.engine.worker.slots import Places
from raincheck.errors import StoreError
from raincheck.stores.requests import ClaimRequest, HeldAttempt


class Starter:
    """Begins tasks for whoever asks for them in this process, until it is told to stop."""

    def __init__(
        self,
        means: Means,
        namespace: str,
        holder: str,
        toolbox: Toolbox,
        runner: Runner,
        settings: Settings,
        places: Places,
        dispatching: Dispatching,
    ) -> None:
        self._means = means
        # Not what the worker is called: so it can be told who began a task of which the receipt was lost.
        lease = timedelta(seconds=settings.lease)
        self._offer = ClaimRequest(namespace, frozenset[Tool](), f"{holder}:direct", lease, 1)
        self._toolbox = toolbox
        self._runner = runner
        self._quota = settings.quota
        self._places = places
        self._dispatching = dispatching
        self._on_their_way = 0
        self._has_arrived = asyncio.Event()
        self._is_stopping = False

    def begin(self, creation: Creation, now: datetime) -> asyncio.Future[Task] | None:
        """Keep a new task, and run it if it is next. None if there is no room for it, and it should just be kept.

        Whoever waits for the answer may leave: what was begun is run.
        """
        if self._is_stopping or not self._means.store.capabilities.takes_offers:
            return None
        # Whatever has room, and not only its own kind: somebody else may wait for the same place.
        pools = [pool for pool in self._toolbox.pools if self._places.room_for(pool) > 0]
        tools = pools[0].tools if len(pools) == 1 else frozenset[Tool]().union(*(pool.tools for pool in pools))
        if creation.task.tool not in tools:
            if any(creation.task.tool in pool.tools for pool in self._toolbox.pools):
                self._dispatching.expect()
            return None
        kept: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        if self._offer.tools != tools:
            self._offer = replace(self._offer, tools=tools)
        self._on_their_way += 1
        self._places.take(creation.task, self._keep_and_run(creation, self._offer, now, kept))
        return kept

    def stop_beginning(self) -> None:
        """Begin nothing new."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Begin nothing new, and wait until what is on its way has been kept: it would be left to its lease."""
        self._is_stopping = True
        while self._on_their_way:
            self._has_arrived.clear()
            await self._has_arrived.wait()

    async def _keep_and_run(
        self, creation: Creation, offer: ClaimRequest, now: datetime, kept: asyncio.Future[Task]
    ) -> Task | None:
        try:
            task = await self._means.store.create(creation, quota=self._quota, now=now, claim=offer)
        except BaseException as error:
            self._arrive(kept, error)
            if not isinstance(error, Exception):
                raise
            # Perhaps it was kept, and only the receipt was lost.
            return await self._take_up(creation.task) if isinstance(error, StoreError) else None
        self._arrive(kept, task)
        if task.id != creation.task.id:
            return None
        if not self._is_ours(task.attempt):
            if task.attempt is None:
                self._dispatching.expect()
            return None
        await self._renew_if_late(task, now)
        return await self._run(task, _first_journal(task, creation))

    async def _renew_if_late(self, task: Task, asked_at: datetime) -> None:
        """Have a whole lease for a task that had to wait until others had written: its lease began before that."""
        now = self._means.clock.now()
        if now - asked_at > self._offer.lease_for / 3:
            with suppress(StoreError):
                held = HeldAttempt(task.id, task.fence)
                await self._means.store.extend_leases([held], until=now + self._offer.lease_for)

    def _arrive(self, kept: asyncio.Future[Task], what: Task | BaseException) -> None:
        """Tell whoever asked, if they are still there."""
        self._on_their_way -= 1
        self._has_arrived.set()
        if kept.done():
            return
        if isinstance(what, Task):
            kept.set_result(what)
        elif isinstance(what, Exception):
            kept.set_exception(what)
        else:
            kept.cancel()

    async def _take_up(self, task: Task) -> Task | None:
        """Run it if it was begun all the same: nobody else knows of it, and its lease would run out."""
        journal = await self._runner.journal(task)
        if journal is None or not self._is_ours(journal.task.attempt):
            return None
        return await self._run(journal.task, journal)

    def _is_ours(self, attempt: Attempt | None) -> bool:
        """Whether it was begun for us. It may be another's by now, if it was queued and that was told late."""
        return attempt is not None and attempt.lease.holder == self._offer.holder

    async def _run(self, task: Task, journal: Journal) -> Task | None:
        # Not if the engine has been told to stop meanwhile: others can do it, and it need not be cut off.
        left = await self._runner.see_through(task, journal, may_begin=not self._is_stopping)
        # It has its place till this returns. What goes on looks for one a few turns of the loop later.
        self._dispatching.go_on()
        return left


def _first_journal(task: Task, creation: Creation) -> Journal:
    """What is known of a task that has just been created need not be read."""
    return Journal(task, creation.arguments, creation.caller, variables=None, steps=(), inputs=(), artifacts=())
