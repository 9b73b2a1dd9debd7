"""The worker: claims tasks that its tools can run, as many as there is room for, and has them run.

It is the dispatcher of stores that everybody claims from. Looking for work is a read, so an idle worker writes nothing.
"""

from datetime import datetime, timedelta

from raincheck.core.records import Tool
from raincheck.engine.hands import Hands
from raincheck.engine.service import repeat
from raincheck.engine.timing import first_of
from raincheck.engine.toolbox import Pool


class Worker:
    """Claims and runs, until it is told to stop."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._is_stopping = False

    async def run(self) -> None:
        await repeat("claiming", self._work, self._hands.means.clock, until=lambda: self._is_stopping)

    def stop(self) -> None:
        """Take nothing new. What is under way goes on."""
        self._is_stopping = True
        self._hands.room.changed.set()

    async def _work(self) -> None:
        """One round: claim what there is room for, then wait until something may be different."""
        self._hands.room.changed.clear()
        due_at = await self._claim_all()
        if due_at is not None and not self._is_stopping:
            await self._rest(due_at)

    async def _claim_all(self) -> datetime | None:
        """Claim what there is room for. None if something was claimed, so that there may be more; else when to look."""
        hands = self._hands
        now = hands.means.clock.now()
        due_at = now + timedelta(seconds=hands.settings.look_every)
        can_run: list[Pool] = []
        asked: set[str] = set()
        for pool in hands.pools:
            in_the_way = self._waiting_in_the_way_of(pool)
            if hands.places.room_for(pool) <= 0 and not in_the_way:
                continue
            next_due = await hands.means.store.next_due(hands.namespace, pool.tools)
            if next_due is None or next_due > now:
                due_at = min(due_at, next_due or due_at)
            elif hands.places.room_for(pool) > 0:
                can_run.append(pool)
            else:
                asked |= in_the_way
        if self._is_stopping:
            return due_at
        hands.room.ask_for_places(asked)
        return None if can_run and await self._claim(can_run) else due_at

    async def _claim(self, can_run: list[Pool]) -> bool:
        # For all of them at once, so that the store decides whose turn it is; and no more than fit into any of them.
        # Not into those that were filled meanwhile: when something of them ends, there is another look.
        rooms = {pool: room for pool in can_run if (room := self._hands.places.room_for(pool)) > 0}
        if not rooms:
            return False
        tools = frozenset[Tool]().union(*(pool.tools for pool in rooms))
        return bool(await self._hands.claim(tools, min(rooms.values())))

    def _waiting_in_the_way_of(self, pool: Pool) -> set[str]:
        """The tools whose attempts only wait, and would make room for the pool if they did that elsewhere."""
        waiting = {tool for tool, count in self._hands.room.waiting.items() if count}
        return waiting if self._hands.places.is_full else waiting & {tool.name for tool in pool.tools}

    async def _rest(self, due_at: datetime) -> None:
        clock = self._hands.means.clock
        seconds = (due_at - clock.now()).total_seconds()
        await first_of(self._hands.room.changed.wait(), clock.sleep(seconds))
