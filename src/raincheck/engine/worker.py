"""The worker: claims tasks that its tools can run, as many as there is room for, and has them run.

It is the dispatcher of the embedded engine. Looking for work is a read, so an idle worker writes nothing.
"""

from datetime import datetime, timedelta

from raincheck.core.records import Tool
from raincheck.engine.means import Means
from raincheck.engine.places import Places
from raincheck.engine.room import Room
from raincheck.engine.runner import Runner
from raincheck.engine.settings import Settings
from raincheck.engine.timing import first_of
from raincheck.engine.toolbox import Pool, Toolbox
from raincheck.stores.requests import ClaimRequest


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
        places: Places,
        room: Room,
    ) -> None:
        self._means = means
        self._namespace = namespace
        self._holder = holder
        self._toolbox = toolbox
        self._runner = runner
        self._settings = settings
        self._places = places
        self._room = room
        self._is_stopping = False

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
        can_run: list[Pool] = []
        asked: set[str] = set()
        for pool in self._toolbox.pools:
            in_the_way = self._waiting_in_the_way_of(pool)
            if self._places.room_for(pool) <= 0 and not in_the_way:
                continue
            next_due = await self._means.store.next_due(self._namespace, pool.tools)
            if next_due is None or next_due > now:
                due_at = min(due_at, next_due or due_at)
            elif self._places.room_for(pool) > 0:
                can_run.append(pool)
            else:
                asked |= in_the_way
        if self._is_stopping:
            return due_at
        self._room.ask_for_places(asked)
        return None if can_run and await self._claim(can_run) else due_at

    async def _claim(self, can_run: list[Pool]) -> bool:
        # For all of them at once, so that the store decides whose turn it is; and no more than fit into any of them.
        # Not into those that were filled meanwhile: when something of them ends, there is another look.
        rooms = {pool: room for pool in can_run if (room := self._places.room_for(pool)) > 0}
        if not rooms:
            return False
        tools, limit = frozenset[Tool]().union(*(pool.tools for pool in rooms)), min(rooms.values())
        lease = timedelta(seconds=self._settings.lease)
        request = ClaimRequest(self._namespace, tools, self._holder, lease, limit)
        with self._places.kept_free(tools, limit):
            claimed = await self._means.store.claim(request, now=self._means.clock.now())
        for task in claimed:
            self._places.take(task, self._runner.see_through(task))
        return bool(claimed)

    def _waiting_in_the_way_of(self, pool: Pool) -> set[str]:
        """The tools whose attempts only wait, and would make room for the pool if they did that elsewhere."""
        waiting = {tool for tool, count in self._room.waiting.items() if count}
        return waiting if self._places.is_full else waiting & {tool.name for tool in pool.tools}

    async def _rest(self, due_at: datetime) -> None:
        seconds = (due_at - self._means.clock.now()).total_seconds()
        await first_of(self._room.changed.wait(), self._means.clock.sleep(seconds))
