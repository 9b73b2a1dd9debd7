"""One run of the simulation: everything in it follows from its seed."""

import asyncio
import logging
import random
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from unittest import mock

from raincheck.core.owner import Owner
from raincheck.core.policies import Quota
from raincheck.engine.follow import TaskWaiter
from raincheck.engine.settings import Settings
from tests.simulation.callers import Caller
from tests.simulation.checks import Checks
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network, NetworkFaults
from tests.simulation.observations import Observations
from tests.simulation.processes import Chaos, ChaosPlan, Machine, SimulatedProcess
from tests.simulation.scenario import make_toolbox
from tests.simulation.store import Disk, StoreFaults

LEASE = 2.0
ACTIVE = 12.0
"""Seconds for which callers make calls and things go wrong."""

QUIET = 10.0
"""Seconds after the trouble in which late messages arrive and paused processes resume, and may start more tasks."""

SETTLE = 120.0
"""Seconds without trouble in which every task has to end."""

OWNERS = (Owner.token("https://issuer.example", "alice"), Owner.token("https://issuer.example", "bob"))


@dataclass(frozen=True, slots=True)
class Setup:
    """What a seed draws before a run starts."""

    processes: int
    is_prompt: bool
    """Nothing is late or lost, so that waiters are woken promptly."""
    in_order: bool
    cost: float
    settings: Settings
    keep: float
    offers: bool
    store: StoreFaults
    network: NetworkFaults
    chaos: ChaosPlan

    @classmethod
    def draw(cls, rng: random.Random) -> "Setup":
        is_prompt = rng.random() < 0.35
        settings = Settings(
            concurrency=rng.choice([1, 2, 4]),
            lease=LEASE,
            park_after=rng.choice([0.0, 0.05, 0.3, 2.0]),
            grace=rng.choice([0.0, 0.5]),
            progress_interval=0.1,
            poll_interval=5.0 if is_prompt else rng.choice([0.5, 5.0]),
            prune_interval=rng.choice([1.0, 10.0]),
            quota=Quota(live=200),
        )
        trouble = rng.choice([0.0, 0.3, 1.0])
        return cls(
            processes=rng.choice([1, 2, 2, 3]),
            is_prompt=is_prompt,
            in_order=is_prompt or rng.random() < 0.5,
            cost=rng.choice([0.0, 0.0, 0.000_01, 0.000_5]),
            settings=settings,
            keep=rng.choice([0.5, 3.0, 3600.0]),
            offers=rng.random() < 0.8,
            store=StoreFaults() if is_prompt else _draw_store_faults(rng, trouble),
            network=NetworkFaults() if rng.random() < 0.3 else NetworkFaults(0.1, 0.1, 0.5, rng.choice([0.05, 1.0])),
            chaos=ChaosPlan(0.08, 0.04, 0.08, 0.0 if is_prompt else 0.05, rng.choice([0.0, 0.0, 0.1]))
            if rng.random() < 0.8
            else ChaosPlan(),
        )


def _draw_store_faults(rng: random.Random, trouble: float) -> StoreFaults:
    return StoreFaults(
        refused=0.02 * trouble,
        reply_lost=0.02 * trouble,
        delayed=rng.choice([0.2, 0.8]),
        very_late=0.01 * trouble,
        max_delay=1.5 * LEASE,
        hint_lost=rng.choice([0.0, 0.1, 0.5]),
        hint_delay=rng.choice([0.01, 0.3]),
    )


@dataclass(frozen=True, slots=True)
class RunResult:
    """What happened in a run."""

    seed: int
    violations: list[str]
    states: set[int]
    crashes: int
    commits: int
    bodies: int
    callbacks: int
    seconds: float
    trace: int
    """A hash of everything that happened, in its order."""


def run_seed(seed: int) -> RunResult:
    """Run the simulation of a seed."""
    simulation = Simulation(seed)
    with deterministic(seed):
        simulation.loop.run(simulation.run())
    return simulation.result()


@contextmanager
def deterministic(seed: int) -> Generator[None]:
    """Replace all sources of randomness, of this process's identity and of real threads and files."""
    numbers, serial = random.Random(f"{seed} ids"), count()

    def hash_by_serial(held: TaskWaiter | asyncio.Event) -> int:
        # Not by address: these are held in sets, which are then iterated over.
        return held.__dict__.setdefault("simulated_serial", next(serial))

    with ExitStack() as stack:
        for target, value in (
            ("random._urandom", numbers.randbytes),
            ("os.getpid", lambda: 1),
            ("socket.gethostname", lambda: "simulated"),
            ("asyncio.new_event_loop", mock.Mock),
            ("raincheck.engine.follow.TaskWaiter.__hash__", hash_by_serial),
            ("asyncio.Event.__hash__", hash_by_serial),
        ):
            stack.enter_context(mock.patch(target, value))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        yield


class Simulation:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = random.Random(f"{seed} setup")
        self.setup = setup = Setup.draw(rng)
        self.loop = SimulatedLoop(random.Random(f"{seed} loop"), in_order=setup.in_order, cost=setup.cost)
        self.machine = Machine(self.loop)
        self.observed = Observations(clock_is_set=setup.chaos.jumps > 0)
        self.disk = Disk(self.loop, random.Random(f"{seed} store"), setup.store)
        self.checks = Checks(self.loop, self.disk, self.observed, is_prompt=setup.is_prompt, latest=self._latest)
        self.network = Network(self.loop, random.Random(f"{seed} network"), setup.network)
        self.processes = [self._make_process(number) for number in range(setup.processes)]
        self._latest_seen = self.machine.now()

    async def run(self) -> None:
        """Run until all tasks have ended, first with trouble and then without."""
        self.disk.open()
        for process in self.processes:
            process.boot()
        callers = self._make_callers()
        chaos = Chaos(
            random.Random(f"{self.seed} chaos"),
            self.setup.chaos,
            self.machine,
            self.processes,
            self.setup.settings.lease,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(chaos.run(ACTIVE))
            for caller in callers:
                group.create_task(caller.run(ACTIVE, max_tasks=5))
        self.checks.check_store()
        self._end_trouble()
        quiet_at = self.loop.time() + QUIET
        try:
            async with asyncio.timeout(SETTLE), asyncio.TaskGroup() as group:
                for caller in callers:
                    group.create_task(caller.settle(lambda: self.loop.time() < quiet_at or self.checks.has_live_tasks))
        except TimeoutError:
            pass
        await asyncio.sleep(LEASE)
        self.checks.check_end()
        self.disk.is_over = True

    def _end_trouble(self) -> None:
        self.network.faults = NetworkFaults()
        faults = self.disk.faults
        self.disk.faults = replace(faults, refused=0.0, reply_lost=0.0, very_late=0.0)
        for process in self.processes:
            process.lane.fuse = None

    def _make_process(self, number: int) -> SimulatedProcess:
        rng = random.Random(f"{self.seed} process {number}")
        setup = self.setup
        process = SimulatedProcess(self.loop, rng, self.machine, self.disk, setup.settings, offers=setup.offers)
        process.make_toolbox = lambda clock: make_toolbox(self.observed, clock, setup.keep)
        return process

    def _make_callers(self) -> list[Caller]:
        known: list[list[str]] = [[], []]
        callers: list[Caller] = []
        for number in range(3):
            owner = number % 2
            rng = random.Random(f"{self.seed} caller {number}")
            caller = Caller(
                f"caller {number}", OWNERS[owner], known[owner], self.network, self.processes, self.checks, rng
            )
            caller.strangers = known[1 - owner]
            callers.append(caller)
        return callers

    def _latest(self) -> datetime:
        """Return the latest time that any process has read."""
        self._latest_seen = max(self._latest_seen, *(process.clock.now() for process in self.processes))
        return self._latest_seen

    def result(self) -> RunResult:
        violations = [*self.observed.violations, *self.disk.violations, *self.loop.errors]
        return RunResult(
            self.seed,
            violations,
            self.checks.states,
            sum(process.crashes for process in self.processes),
            self.checks.commits,
            self.observed.bodies,
            self.loop.callbacks,
            self.loop.time(),
            self.loop.trace,
        )
