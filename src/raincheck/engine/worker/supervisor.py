"""Everything that runs while an engine runs, and in which order it starts and stops."""

import asyncio
import os
import secrets
import socket
from contextlib import ExitStack
from datetime import datetime

from raincheck._async import first_of, repeat
from raincheck.core.change import Creation
from raincheck.core.records import Task
from raincheck.engine.durations import Durations
from raincheck.engine.execution.runner import Runner
from raincheck.engine.execution.session import Hold, Stop
from raincheck.engine.follow import Wakeups
from raincheck.engine.settings import Settings
from raincheck.engine.submit import Means
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.worker.claimer import Hands
from raincheck.engine.worker.direct_start import Starter
from raincheck.engine.worker.dispatch import dispatching
from raincheck.engine.worker.heartbeat import Keeper
from raincheck.engine.worker.slots import Places, Room
from raincheck.engine.worker.sweeper import Sweeper
from raincheck.stores.change_feed import Hint
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

UNWIND = 3.0
"""Seconds beyond its tool's grace that a body gets to be handed back when the engine stops."""

LOOKS = 4
"""How many times in the time after which to look again somebody looks who is due for it."""

LEARN_EVERY = 5.0
"""Seconds between two looks at how long tasks take elsewhere, and after which what was measured here is kept."""

LAST_JOBS = 5.0
"""Seconds for whatever brings attempts to let go. It may talk to a database that is away."""

LAST_WORDS = 1.0
"""Seconds for that when the engine stops."""

GIVING_WAY = 0.1
"""Seconds for bodies that wait to notice that they should not."""


class Machinery:
    """The loops of one engine. Lives from a start to a stop."""

    def __init__(
        self,
        means: Means,
        namespace: str,
        toolbox: Toolbox,
        settings: Settings,
        wakeups: Wakeups,
        durations: Durations,
        *,
        works: bool,
    ) -> None:
        self._means = means
        self._settings = settings
        self._wakeups = wakeups
        self._durations = durations
        self._works = works
        self._room = Room()
        own = toolbox.only(settings.queues)
        self._places = Places(own, settings.concurrency, self._room)
        self._runner = Runner(means, toolbox, settings, self._room, self._settled)
        self._keeper = Keeper(means, settings.lease, lambda: self._runner.holds)
        self._sweeper = Sweeper(means, settings, self._keeper, self._runner)
        holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._hands = Hands(means, namespace, holder, own, self._runner, settings, self._places, self._room)
        self._dispatching = dispatching(self._hands)
        self._starter = Starter(means, namespace, holder, own, self._runner, settings, self._places, self._dispatching)
        self._hurry = asyncio.Event()
        self._listening = ExitStack()
        self._jobs: list[asyncio.Task[None]] = []
        self._working: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listening.enter_context(self._wakeups.hearing(self._hear, self._runner.has))
        self._keeper.start()
        clock = self._means.clock
        # Listening first: what happens from here on is heard of, whatever the other loops have read before.
        self._jobs = [
            asyncio.create_task(repeat("listening", self._listen, clock), name="raincheck wakeups"),
            asyncio.create_task(repeat("sweeping", self._sweeper.tidy_up, clock), name="raincheck sweeper"),
            asyncio.create_task(repeat("looking", self._look_again, clock), name="raincheck looks"),
            asyncio.create_task(repeat("learning", self._learn, clock), name="raincheck durations"),
        ]
        self._jobs += self._dispatching.start()
        if self._works:
            self._working = asyncio.create_task(self._dispatching.run(), name="raincheck worker")

    def begin(self, creation: Creation, now: datetime) -> asyncio.Future[Task] | None:
        """Keep a new task and run it here, if it is next; None if it is not for this process to run, or not now."""
        return self._starter.begin(creation, now) if self._works else None

    def hurry(self) -> None:
        """Don't wait any longer for bodies to end by themselves."""
        self._hurry.set()

    async def stop(self) -> None:
        """Take nothing new, let bodies end, hand back those that have not, and let everything go."""
        self._hands.close()
        self._dispatching.stop()
        self._starter.stop_beginning()
        if self._working is not None:
            await first_of(asyncio.wait([self._working]), asyncio.sleep(LAST_JOBS), self._hurry.wait())
            # What is being claimed would be lost, and its task left to its lease.
            await first_of(self._hands.settled(), self._hurry.wait())
        await self._starter.stop()
        # Those that only wait give up their places, so that they are parked and not cut off.
        self._room.ask_for_all_places()
        if self._room.waiting.total():
            await asyncio.sleep(GIVING_WAY)
        await first_of(self._all_ended(), asyncio.sleep(self._settings.grace), self._hurry.wait())
        patience = max((hold.grace for hold in self._runner.holds), default=0.0) + UNWIND
        self._runner.stop_all(Stop.RELEASE)
        # A body that does not stop may go on: once it is handed back, it has nothing more to say.
        await first_of(self._runner.settled(), asyncio.sleep(patience))
        working = () if self._working is None else (self._working,)
        ending = (*self._jobs, *self._places.taken, *working)
        for job in ending:
            job.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._durations.has_news:
            await self._learn_the_last()
        await self._keeper.stop()
        self._listening.close()
        self._wakeups.wake_all()

    async def _listen(self) -> None:
        with self._means.store.listen() as feed:
            await feed.each(self._wakeups.pass_on)

    async def _all_ended(self) -> None:
        while running := self._places.taken:
            await asyncio.wait(running)

    def _hear(self, hint: Hint) -> None:
        self._runner.poke(hint)
        self._places.hear(hint)

    def _settled(self, hold: Hold) -> None:
        """An attempt is over, as far as its task goes. Whoever follows that need not wait for the store to tell."""
        self._places.settle(hold.task)
        self._dispatching.settle(hold.task)
        if hold.ending is None:
            self._wakeups.tell([hold.task.id])
            return
        self._wakeups.tell_end(hold.ending)
        # One that was cut off because this process stops would have taken longer.
        if not hold.is_cut_off:
            self._durations.note(hold.task)

    async def _learn(self) -> None:
        await self._durations.refresh()
        await self._means.clock.sleep(LEARN_EVERY)

    async def _learn_the_last(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._durations.refresh()
        except Exception as error:  # noqa: BLE001 - whatever the store says: it is no reason not to stop
            logger.warning("how long the last tasks took was not kept: %s", error)

    async def _look_again(self) -> None:
        clock, seconds = self._means.clock, self._settings.look_every
        await clock.sleep(seconds / LOOKS)
        self._wakeups.wake_due(clock.elapsed(), seconds)
