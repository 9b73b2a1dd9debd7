"""The worker: claims tasks that its tools can run, as many as there is room for, and has them run.

It is the dispatcher of the embedded engine. Looking for work is a read, so an idle worker writes nothing.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from raincheck.core.records import Task, Tool
from raincheck.engine.hold import Means
from raincheck.engine.room import Room
from raincheck.engine.runner import Runner
from raincheck.engine.settings import Settings
from raincheck.engine.timing import first_of
from raincheck.engine.toolbox import Toolbox
from raincheck.stores.requests import ClaimRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Pool:
    """Tools that share a bound on how many of their attempts run at once; None is that of the process alone."""

    tools: frozenset[Tool]
    bound: int | None


class Worker:
    """Claims and runs, until it is told to stop."""

    def __init__(
        self,
        means: Means,
        namespace: str,
        holder: str,
        toolbox: Toolbox,
        runner: Runner,
        settings: Settings,
        room: Room,
    ) -> None:
        self._means = means
        self._namespace = namespace
        self._holder = holder
        self._toolbox = toolbox
        self._runner = runner
        self._settings = settings
        self._room = room
        self._running: dict[asyncio.Task[None], Task] = {}
        self._is_stopping = False

    @property
    def running(self) -> frozenset[asyncio.Task[None]]:
        """The attempts under way."""
        return frozenset(self._running)

    def is_stopping(self) -> bool:
        return self._is_stopping

    def stop_claiming(self) -> None:
        """Take nothing new. What is under way goes on."""
        self._is_stopping = True
        self._room.changed.set()

    async def work(self) -> None:
        """One round: claim what there is room for, then wait until something may be different."""
        self._room.changed.clear()
        due_at = await self._claim_all()
        if due_at is not None and not self._is_stopping:
            await self._rest(due_at)

    async def _claim_all(self) -> datetime | None:
        """Claim what there is room for. None if something was claimed, so that there may be more; else when to look."""
        now = self._means.clock.now()
        due_at = now + timedelta(seconds=self._settings.look_every)
        can_run: list[tuple[_Pool, int]] = []
        asked: set[str] = set()
        for pool in self._pools():
            room = self._room_for(pool)
            in_the_way = self._waiting_in_the_way_of(pool)
            if not (room or in_the_way):
                continue
            next_due = await self._means.store.next_due(self._namespace, pool.tools)
            if next_due is None or next_due > now:
                due_at = min(due_at, next_due or due_at)
            elif room:
                can_run.append((pool, room))
            else:
                asked |= in_the_way
        if self._is_stopping:
            return due_at
        self._room.ask_for_places(asked)
        return None if can_run and await self._claim(can_run) else due_at

    async def _claim(self, can_run: list[tuple[_Pool, int]]) -> bool:
        # For all of them at once, so that the store decides whose turn it is; and no more than fit into any of them.
        tools = frozenset[Tool]().union(*(pool.tools for pool, _ in can_run))
        limit = min(room for _, room in can_run)
        lease = timedelta(seconds=self._settings.lease)
        request = ClaimRequest(self._namespace, tools, self._holder, lease, limit)
        claimed = await self._means.store.claim(request, now=self._means.clock.now())
        for task in claimed:
            job = asyncio.create_task(self._run(task), name=f"attempt on {task.id}")
            self._running[job] = task
            job.add_done_callback(self._forget)
        return bool(claimed)

    def _waiting_in_the_way_of(self, pool: _Pool) -> set[str]:
        """The tools whose attempts only wait, and would make room for the pool if they did that elsewhere."""
        waiting = {tool for tool, count in self._room.waiting.items() if count}
        is_full = len(self._running) >= self._settings.concurrency
        return waiting if is_full else waiting & {tool.name for tool in pool.tools}

    async def _run(self, task: Task) -> None:
        try:
            await self._runner.run(task)
        except Exception:
            # The lease runs out, and somebody takes it from there.
            logger.exception("task %s: attempt %d could not be run", task.shown_id, task.fence)

    def _forget(self, job: asyncio.Task[None]) -> None:
        del self._running[job]
        self._room.changed.set()

    async def _rest(self, due_at: datetime) -> None:
        seconds = (due_at - self._means.clock.now()).total_seconds()
        await first_of(self._room.changed.wait(), self._means.clock.sleep(seconds))

    def _pools(self) -> Iterator[_Pool]:
        """Tools with a bound of their own one by one, all others together."""
        shared = frozenset(tool for one in self._toolbox if one.concurrency is None for tool in one.runs)
        if shared:
            yield _Pool(shared, None)
        yield from (_Pool(one.runs, one.concurrency) for one in self._toolbox if one.concurrency is not None)

    def _room_for(self, pool: _Pool) -> int:
        room = self._settings.concurrency - len(self._running)
        if pool.bound is None:
            return room
        return min(room, pool.bound - sum(task.tool in pool.tools for task in self._running.values()))
