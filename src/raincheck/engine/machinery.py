"""Everything that runs while an engine runs, and in which order it starts and stops."""

import asyncio
import os
import secrets
import socket
from contextlib import ExitStack

from raincheck.engine.hold import Means, Stop
from raincheck.engine.keeper import Keeper
from raincheck.engine.room import Room
from raincheck.engine.runner import Runner
from raincheck.engine.service import repeat
from raincheck.engine.settings import Settings
from raincheck.engine.sweeper import Sweeper
from raincheck.engine.timing import first_of
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.wakeups import Wakeups
from raincheck.engine.worker import Worker
from raincheck.stores.feed import Hint

UNWIND = 3.0
"""Seconds beyond its tool's grace that a body gets to be handed back when the engine stops."""

GIVING_WAY = 0.1
"""Seconds for bodies that wait to notice that they should not."""


class Machinery:
    """The loops of one engine. Lives from a start to a stop."""

    def __init__(
        self, means: Means, namespace: str, toolbox: Toolbox, settings: Settings, wakeups: Wakeups, *, works: bool
    ) -> None:
        self._means = means
        self._settings = settings
        self._wakeups = wakeups
        self._works = works
        self._room = Room()
        self._runner = Runner(means, toolbox, settings, self._room)
        self._keeper = Keeper(means, settings.lease, lambda: self._runner.holds)
        self._sweeper = Sweeper(means, settings, self._keeper, self._runner)
        holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._worker = Worker(means, namespace, holder, toolbox, self._runner, settings, self._room)
        self._hurry = asyncio.Event()
        self._listening = ExitStack()
        self._jobs: list[asyncio.Task[None]] = []
        self._working: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listening.enter_context(self._wakeups.hearing(self._hear))
        self._keeper.start()
        clock = self._means.clock
        # Listening first: what happens from here on is heard of, whatever the other loops have read before.
        self._jobs = [
            asyncio.create_task(repeat("listening", self._listen, clock), name="raincheck wakeups"),
            asyncio.create_task(repeat("sweeping", self._sweeper.tidy_up, clock), name="raincheck sweeper"),
        ]
        if self._works:
            working = repeat("claiming", self._worker.work, clock, until=self._worker.is_stopping)
            self._working = asyncio.create_task(working, name="raincheck worker")

    def hurry(self) -> None:
        """Don't wait any longer for bodies to end by themselves."""
        self._hurry.set()

    async def stop(self) -> None:
        """Take nothing new, let bodies end, hand back those that have not, and let everything go."""
        self._worker.stop_claiming()
        if self._working is not None:
            # Not cancelled: a claim that is on its way would be lost, and its task left to its lease.
            await asyncio.wait([self._working])
        # Those that only wait give up their places, so that they are parked and not cut off.
        self._room.ask_for_all_places()
        if self._room.waiting.total():
            await asyncio.sleep(GIVING_WAY)
        await first_of(self._all_ended(), asyncio.sleep(self._settings.grace), self._hurry.wait())
        patience = max((hold.grace for hold in self._runner.holds), default=0.0) + UNWIND
        self._runner.stop_all(Stop.RELEASE)
        # A body that does not stop may go on: once it is handed back, it has nothing more to say.
        await first_of(self._runner.settled(), asyncio.sleep(patience))
        ending = (*self._jobs, *self._worker.running)
        for job in ending:
            job.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._keeper.stop()
        self._listening.close()
        self._wakeups.wake_all()

    async def _listen(self) -> None:
        with self._means.store.listen() as feed:
            await self._wakeups.run(feed)

    async def _all_ended(self) -> None:
        while running := self._worker.running:
            await asyncio.wait(running)

    def _hear(self, hint: Hint) -> None:
        self._runner.poke(hint)
        self._room.changed.set()
