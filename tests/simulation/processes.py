"""Simulated processes: each is a real engine with its own clock and its own connection to the disk.

A process can be killed at any of its callbacks, stopped, paused, cut off from the disk, and started again. All
processes are on one machine, whose clock can be set.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from raincheck.clock import SteadyClock
from raincheck.engine.engine import Engine
from raincheck.engine.settings import Settings
from raincheck.engine.toolbox import Toolbox
from raincheck.errors import StoreError
from tests.simulation.loop import LANE, Lane, SimulatedLoop
from tests.simulation.store import Disk, DiskHandle

START = datetime(2026, 1, 1, tzinfo=UTC)

MAX_SKEW = 0.02
"""Seconds by which the processes' readings of the time may differ, as those of a database's clock do."""

RESTART_DELAY = 2.0
"""The longest time, in seconds, for which a process that has ended is not started again."""


class Machine:
    """The clock of the machine that the processes run on."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._ahead = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.time() + self._ahead)

    def jump(self, seconds: float) -> None:
        """Set the clock."""
        self._ahead += seconds


class ProcessClock(SteadyClock):
    """The clock of one process: the shipped one, on the machine's clock and the loop's time."""

    def __init__(self, loop: SimulatedLoop, machine: Machine, skew: float) -> None:
        self._loop = loop
        super().__init__(lambda: machine.now() + timedelta(seconds=skew))

    def monotonic(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride] - the base class has a static method
        return self._loop.time()


class SimulatedProcess:
    """A process that is started again whenever it has ended."""

    def __init__(
        self, loop: SimulatedLoop, rng: random.Random, machine: Machine, disk: Disk, settings: Settings, *, offers: bool
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._machine = machine
        self._disk = disk
        self._settings = settings
        self._offers = offers
        self.make_toolbox: Callable[[ProcessClock], Toolbox] = lambda _: Toolbox()
        self.engine: Engine | None = None
        """The engine, while the process serves callers."""
        self.clock: ProcessClock
        self.lane: Lane
        self.handle: DiskHandle
        self.crashes = 0

    def boot(self) -> None:
        """Start a new process."""
        skew = (self._rng.random() * 2 - 1) * MAX_SKEW
        self.lane = self._loop.add_lane("process")
        self.lane.on_death = self._on_death
        self.clock = ProcessClock(self._loop, self._machine, skew)
        self.clock.continue_from(self._disk.latest)
        self.handle = self._disk.new_handle(self.lane, takes_offers=self._offers)
        self.spawn(self._serve())

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run the coroutine in this process."""
        context = Context()
        context.run(LANE.set, self.lane)
        return self._loop.create_task(coroutine, context=context)

    async def _serve(self) -> None:
        engine = Engine(self.handle, self.make_toolbox(self.clock), settings=self._settings, clock=self.clock)
        while True:
            try:
                await engine.sync_definitions()
            except StoreError:
                await asyncio.sleep(0.5)
            else:
                break
        engine.start()
        self.engine = engine

    def crash_after(self, callbacks: int) -> None:
        """Kill the process when it has run this many more callbacks."""
        self.lane.fuse = callbacks

    def stop(self) -> None:
        """Stop the process as a new deployment does."""
        if self.engine is not None:
            engine, self.engine = self.engine, None
            self.spawn(self._stop(engine))

    async def _stop(self, engine: Engine) -> None:
        await engine.stop()
        await self.handle.close()
        self.lane.fuse = 0

    def pause(self, seconds: float) -> None:
        """Run nothing of the process for this many seconds."""
        lane = self.lane
        lane.is_paused = lane.was_paused = True
        self._later(seconds, self._resume, lane)

    def _resume(self, lane: Lane) -> None:
        lane.is_paused = False

    def cut_off(self, seconds: float) -> None:
        """Refuse every request of the process to the disk for this many seconds."""
        self.handle.is_cut = self.lane.was_paused = True
        self._later(seconds, self.handle.reconnect)

    def _on_death(self) -> None:
        self.crashes += 1
        self.engine = None
        self._disk.detach(self.handle)
        self._later(self._rng.random() * RESTART_DELAY, self.boot)

    def _later(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        context = Context()
        context.run(LANE.set, self._loop.base)
        self._loop.call_later(seconds, callback, *args, context=context)


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """How often things go wrong: events per process and second."""

    crashes: float = 0.0
    stops: float = 0.0
    pauses: float = 0.0
    cuts: float = 0.0
    jumps: float = 0.0
    """Changes of the machine's clock, per second."""


class Chaos:
    """Crashes, stops, pauses and cuts off processes, and sets the clock, until it is ended."""

    def __init__(
        self, rng: random.Random, plan: ChaosPlan, machine: Machine, processes: list[SimulatedProcess], lease: float
    ) -> None:
        self._rng = rng
        self._machine = machine
        self._processes = processes
        self._lease = lease
        count = len(processes)
        self._events: list[tuple[Callable[[], object], float]] = [
            (self._crash, plan.crashes * count),
            (self._stop, plan.stops * count),
            (self._pause, plan.pauses * count),
            (self._cut, plan.cuts * count),
            (self._jump, plan.jumps),
        ]

    async def run(self, seconds: float) -> None:
        """Let things go wrong for this many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        rate = sum(each for _, each in self._events)
        while rate > 0 and loop.time() < end:
            await asyncio.sleep(min(self._rng.expovariate(rate), end - loop.time() + 0.001))
            if loop.time() < end:
                (event,) = self._rng.choices([event for event, _ in self._events], [each for _, each in self._events])
                event()
        await asyncio.sleep(max(0.0, end - loop.time()))

    def _any(self) -> SimulatedProcess:
        return self._rng.choice(self._processes)

    def _crash(self) -> None:
        self._any().crash_after(1 + int(self._rng.expovariate(1 / 60)))

    def _stop(self) -> None:
        self._any().stop()

    def _pause(self) -> None:
        self._any().pause(self._rng.random() * 2.5 * self._lease)

    def _cut(self) -> None:
        self._any().cut_off(self._rng.random() * 2.5 * self._lease)

    def _jump(self) -> None:
        self._machine.jump((self._rng.random() * 6 - 2) * self._lease)
