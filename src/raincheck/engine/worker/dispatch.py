"""How attempts get to this process: it claims them itself, or a dispatcher brings them.

The worker: claims tasks that its tools can run, as many as there is room for, and has them run.

It is the dispatcher of stores that everybody claims from. Looking for work is a read, so an idle worker writes nothing.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from raincheck._async import first_of, repeat, set_going
from raincheck.core.records import Task, Tool
from raincheck.engine.toolbox import Pool
from raincheck.engine.worker.claimer import Hands
from raincheck.stores.dispatcher import Dispatcher, Running
from raincheck.stores.requests import ANY_TIME


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


logger = logging.getLogger(__name__)

RECOVER_EVERY = 5.0
"""Seconds between two looks for what should run and does not."""

UNSERVED_AFTER = 10.0
"""Seconds for which nothing is begun here, though there is room, after which what is queued has lost its job."""


class Dispatching(Protocol):
    """What brings attempts, as the engine starts and stops it."""

    async def run(self) -> None:
        """Bring attempts until told to stop."""
        ...

    def stop(self) -> None:
        """Bring nothing more."""
        ...

    def start(self) -> Sequence["asyncio.Task[None]"]:
        """What has to run in every process, whether or not attempts run there."""
        ...

    def settle(self, task: Task) -> None:
        """Hear of what came of an attempt here."""
        ...

    def expect(self) -> None:
        """Hear that a task was queued here, for want of a place or because others wait."""
        ...

    def go_on(self) -> None:
        """Begin what waits, in the place of an attempt that ends and that nobody brought."""
        ...


class Embedded(Worker):
    """The store is the queue, and a claim is all that it takes: also for what is due, or was left by the dead."""

    def start(self) -> Sequence["asyncio.Task[None]"]:
        return ()

    def settle(self, task: Task) -> None:
        """Whoever claims knows when the next task is due."""

    def expect(self) -> None:
        """Whoever claims hears of every task that is queued."""

    def go_on(self) -> None:
        """Whoever claims hears of every place that is left."""


class Carried:
    """A dispatcher brings jobs."""

    def __init__(self, hands: Hands, dispatcher: Dispatcher) -> None:
        self._hands = hands
        self._dispatcher = dispatcher
        self._has_parked = asyncio.Event()
        self._works = False
        self._looked_at = hands.means.clock.elapsed()
        self._was_unserved = False
        self._is_expecting = False
        self._begun = 0

    async def run(self) -> None:
        self._works = True
        making_room = asyncio.create_task(self._make_room(), name="raincheck room")
        try:
            await self._dispatcher.run(self._hands)
        finally:
            making_room.cancel()

    def stop(self) -> None:
        self._dispatcher.stop()

    def start(self) -> Sequence["asyncio.Task[None]"]:
        recovering = repeat("recovering", self._recover, self._hands.means.clock)
        return [asyncio.create_task(recovering, name="raincheck recovery")]

    def settle(self, task: Task) -> None:
        if task.due_at is not None:
            self._has_parked.set()

    def expect(self) -> None:
        self._is_expecting = True

    def go_on(self) -> None:
        if self._is_expecting:
            set_going(self._go_on())

    async def _go_on(self) -> None:
        try:
            while (running := await self._follow()) is not None:
                await asyncio.wait([running])
        except Exception as error:  # noqa: BLE001 - what waits has jobs, which bring it
            logger.debug("no other task was begun after one of this process: %s", error)

    async def _follow(self) -> Running | None:
        # Before it is asked: what is queued meanwhile may come too late for it.
        self._is_expecting = False
        running = await self._hands.follow()
        # If there was no room, something may still wait.
        self._is_expecting |= running is not None or not self._hands.free
        return running

    async def _make_room(self) -> None:
        """Have bodies that wait give way when every place is taken: somebody may want one, whom nobody tells of."""
        room = self._hands.room
        while True:
            await room.changed.wait()
            room.changed.clear()
            room.ask_for_places([tool.name for tool in self._hands.tools] if self._hands.places.is_full else [])

    async def _recover(self) -> None:
        clock = self._hands.means.clock
        self._has_parked.clear()
        now = clock.now()
        latest = now + timedelta(seconds=RECOVER_EVERY)
        due_at = await self._dispatcher.recover(now)
        if self._works:
            await self._serve_the_unserved()
        seconds = (min(due_at or latest, latest) - clock.now()).total_seconds()
        await first_of(self._has_parked.wait(), clock.sleep(max(0.0, seconds)))

    async def _serve_the_unserved(self) -> None:
        """Nothing is left to luck: not even if somebody emptied the table of jobs."""
        hands, elapsed = self._hands, self._hands.means.clock.elapsed()
        if elapsed < self._looked_at + UNSERVED_AFTER:
            return
        self._looked_at = elapsed
        is_idle, self._begun = hands.begun == self._begun, hands.begun
        has_room = is_idle and bool(hands.free)
        is_unserved = has_room and await hands.means.store.next_due(hands.namespace, hands.free) == ANY_TIME
        if is_unserved and self._was_unserved:
            logger.warning("tasks are queued that no job came for: they are begun without")
            while hands.free and await hands.take(None) is not None:
                pass
        self._was_unserved = is_unserved


def dispatching(hands: Hands) -> Dispatching:
    """What brings attempts from the store of these hands."""
    make_dispatcher = hands.means.store.capabilities.make_dispatcher
    return Embedded(hands) if make_dispatcher is None else Carried(hands, make_dispatcher())
