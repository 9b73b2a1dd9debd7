"""How attempts get to this process: it claims them itself, or a dispatcher brings them."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from raincheck.core.records import Task
from raincheck.engine.hands import Hands
from raincheck.engine.service import repeat
from raincheck.engine.timing import first_of
from raincheck.engine.worker import Worker
from raincheck.futures import set_going
from raincheck.stores.dispatch import Dispatcher, Running
from raincheck.stores.requests import ANY_TIME

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
