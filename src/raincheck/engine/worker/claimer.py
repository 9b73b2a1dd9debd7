"""The hands of a process: what a dispatcher has attempts begun with."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import zip_longest
from typing import Any

from raincheck._async import set_going, unhurt
from raincheck.core.records import Journal, Task, TaskId, Tool
from raincheck.engine.execution.runner import Runner
from raincheck.engine.settings import Settings
from raincheck.engine.submit import Means
from raincheck.engine.toolbox import Pool, Toolbox
from raincheck.engine.worker.slots import Job, Places, Room
from raincheck.stores.requests import ClaimRequest


class Hands:
    """Claims tasks as there is room for them, and has them run."""

    def __init__(
        self,
        means: Means,
        namespace: str,
        holder: str,
        toolbox: Toolbox,
        runner: Runner,
        settings: Settings,
        places: Places,
        room: Room,
    ) -> None:
        self.means = means
        self.namespace = namespace
        self.settings = settings
        self.places = places
        self.room = room
        self._holder = holder
        self._toolbox = toolbox
        self._runner = runner
        self._is_closed = False
        self._claiming: set[asyncio.Task[list[Job]]] = set()
        self._followers: list[asyncio.Future[Job | None]] = []
        self._is_serving = False
        self.begun = 0
        """How many attempts these hands have begun."""

    @property
    def concurrency(self) -> int:
        return self.settings.concurrency

    @property
    def pools(self) -> tuple[Pool, ...]:
        return self._toolbox.pools

    @property
    def tools(self) -> frozenset[Tool]:
        return frozenset[Tool]().union(*(pool.tools for pool in self.pools))

    @property
    def free(self) -> frozenset[Tool]:
        if self._is_closed:
            return frozenset()
        return frozenset[Tool]().union(*(pool.tools for pool in self.pools if self.places.room_for(pool) > 0))

    def close(self) -> None:
        """Take nothing new. What is under way goes on."""
        self._is_closed = True

    async def settled(self) -> None:
        """Wait until what is being claimed has its places: it would be left to its lease."""
        while self._claiming:
            await asyncio.wait(self._claiming)

    async def take(self, told: Tool | None) -> Job | None:
        free = self.free
        taken = await self.claim(free, 1, told) if free else []
        return taken[0] if taken else None

    async def follow(self) -> Job | None:
        """Those who ask while a claim is on its way are served by the next, all in one."""
        asking: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        self._followers.append(asking)
        if len(self._followers) == 1 and not self._is_serving:
            self._is_serving = True
            set_going(self._serve_followers())
        return await asking

    async def _serve_followers(self) -> None:
        try:
            while self._followers:
                asking, self._followers = self._followers, []
                await self._serve(asking)
        finally:
            self._is_serving = False

    async def _serve(self, asking: list[asyncio.Future[Job | None]]) -> None:
        free, begun = self.free, list[Job]()
        try:
            if free:
                begun = await self.claim(free, min(len(asking), self.places.room_for_any(free)), withdraws=True)
        except Exception as error:  # noqa: BLE001 - it is told to those who asked
            for one in asking:
                if not one.done():
                    one.set_exception(error)
            return
        # Who has left meanwhile is not missed: what was begun is seen through.
        for one, job in zip_longest(asking, begun):
            if one is not None and not one.done():
                one.set_result(job)

    async def claim(
        self, tools: frozenset[Tool], limit: int, told: Tool | None = None, *, withdraws: bool = False
    ) -> list[Job]:
        """Begin up to so many attempts with these tools. Whoever asks has seen that there is room.

        They may leave: what is claimed is begun all the same. If nothing should be taken any more, it is handed back.
        """
        # At once, and not when the claim gets to run: another who asks before that would count on the same places.
        self.places.keep_free(tools, limit)
        claiming = set_going(self._claim(tools, limit, told, withdraws))
        self._claiming.add(claiming)
        claiming.add_done_callback(self._claiming.discard)
        return await unhurt(claiming)

    async def _claim(self, tools: frozenset[Tool], limit: int, told: Tool | None, withdraws: bool) -> list[Job]:
        lease = timedelta(seconds=self.settings.lease)
        journals: dict[TaskId, Journal] = {}
        request = ClaimRequest(self.namespace, tools, self._holder, lease, limit, told, withdraws, journals)
        try:
            claimed = await self.means.store.claim(request, now=self.means.clock.now())
        finally:
            self.places.let_go(tools, limit)
        self.begun += len(claimed)
        return [self.places.take(task, self._begin(task, journals.get(task.id))) for task in claimed]

    def _begin(self, task: Task, journal: Journal | None) -> Coroutine[Any, Any, Task | None]:
        return self._runner.see_through(task, journal, may_begin=not self._is_closed)

    def when_room_changes(self, tell: Callable[[], None]) -> None:
        self.places.when_changed(tell)
