"""The attack on resources: one way after the other, beside callers that must be served throughout."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from statistics import median

from tests.adversary.fuzz.checks import log_faults
from tests.adversary.outcome import Outcome
from tests.adversary.resources.phases import PHASES, Phase
from tests.adversary.served.caller import PoliteCaller, Refused, Unanswered
from tests.adversary.served.process import ServerProcess, started

TOOLS_FILE = Path(__file__).parents[1] / "served/tools.py"

LIMITS = "ulimit -n 256 -v 4194304"
"""File descriptors, of which half are for connections; and kilobytes of address space."""

PATIENCE = 300.0
"""Seconds after which a server counts as stopped. It closes what it has to close after 60 seconds at the latest."""

MIN_ANSWERS = 3
"""Requests of a caller that must be answered during an attack."""

SPARE_DESCRIPTORS = 24
"""Descriptors that a server may have opened for itself since its start: threads, files of the store."""

MAX_GROWTH = 200 * 2**20

TERMINAL = ("completed", "failed", "cancelled")


class Witness:
    """A caller beside the attackers, which makes one request after the other."""

    def __init__(self, request: Callable[[], Awaitable[object]]) -> None:
        self._request = request
        self.durations: list[float] = []
        self.unanswered = 0
        self.refusals: list[str] = []
        self._progress = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started_at = loop.time()
            try:
                await self._request()
            except Unanswered:
                # A connection that waits for room may be refused or closed. Another one follows.
                self.unanswered += 1
            except Refused as error:
                self.refusals.append(str(error))
            else:
                self.durations.append(loop.time() - started_at)
                self._progress.set()
            await asyncio.sleep(0.1)

    async def answered(self, count: int) -> bool:
        """Wait until so many more requests have been answered. Return False if that never happens."""
        wanted = len(self.durations) + count
        try:
            async with asyncio.timeout(PATIENCE):
                while len(self.durations) < wanted:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True


async def run(random: Random, seconds: float) -> Outcome:
    """Attack in every way for about this many seconds together."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="adversary-") as name:
        folder = Path(name)
        env = {"RAINCHECK_STORE": str(folder / "tasks.db"), "PLANTED_SECRET": "planted"}
        async with started(folder, TOOLS_FILE, ["--http", "127.0.0.1:0"], env=env, limits=LIMITS) as server:
            await _warm_up(server)
            sizes = server.descriptors, server.resident_bytes
            for phase in random.sample(PHASES, len(PHASES)):
                await attack_once(server, phase, random, seconds / len(PHASES), sizes, outcome)
                if not server.is_alive:
                    break
            _check_end(server, sizes, outcome)
    return outcome


async def _warm_up(server: ServerProcess) -> None:
    """Use each part of the server once, so that it has what it needs."""
    caller = PoliteCaller(server.port, None)
    for _ in range(20):
        await asyncio.gather(*(caller.call("echo", {"value": "x" * 10_000}) for _ in range(10)))


async def attack_once(
    server: ServerProcess, phase: Phase, random: Random, seconds: float, sizes: tuple[int, int], outcome: Outcome
) -> None:
    """Attack in one way, and check that callers are served meanwhile, and the server is as before afterwards."""
    name = getattr(phase, "__name__", "attack").replace("_", " ")
    reader, worker = Witness(reading(server.port)), Witness(working(server.port))
    stop = asyncio.Event()
    witnesses = [asyncio.create_task(witness.run()) for witness in (reader, worker)]
    attack: asyncio.Future[Counter[str]] = asyncio.ensure_future(phase(server.port, random, stop))
    await asyncio.wait([attack], timeout=seconds)
    served = await asyncio.gather(reader.answered(MIN_ANSWERS), worker.answered(1))
    stop.set()
    outcome.counts += await attack
    is_served_after = await reader.answered(MIN_ANSWERS)
    for witness in witnesses:
        witness.cancel()
    await asyncio.wait(witnesses)
    _record(name, reader, worker, outcome)
    faults = [] if all(served) else [f"callers were not served: reading {served[0]}, creating tasks {served[1]}"]
    faults += [] if is_served_after else ["the server does not serve afterwards"]
    faults += [f"a caller was refused: {refusal}" for refusal in {*reader.refusals, *worker.refusals}]
    if server.is_alive:
        faults += await _descriptor_faults(server, sizes[0])
    else:
        faults.append(f"the server ended with {server.process.returncode}: {server.log_bytes()[-1_500:]!r}")
    outcome.violations += [f"{name}: {fault}" for fault in faults]


def reading(port: int) -> Callable[[], Awaitable[object]]:
    """Return a request that reads."""
    caller = PoliteCaller(port, "Bearer verified-reader.x", PATIENCE)
    return lambda: caller.request("tools/list")


def working(port: int) -> Callable[[], Awaitable[object]]:
    """Return what creates a task and waits for its result."""
    caller = PoliteCaller(port, "Bearer verified-worker.x", PATIENCE)

    async def work() -> None:
        task_id = await caller.start("remember", {"text": "t"})
        while (await caller.get(task_id))["status"] not in TERMINAL:  # noqa: ASYNC110 - over a connection
            await asyncio.sleep(0.2)

    return work


def _record(name: str, reader: Witness, worker: Witness, outcome: Outcome) -> None:
    outcome.counts["requests beside the attacks"] += len(reader.durations) + len(worker.durations)
    outcome.counts["requests beside the attacks without an answer"] += reader.unanswered + worker.unanswered
    if reader.durations:
        outcome.counts[f"ms of a request, median, {name}"] = round(1_000 * median(reader.durations))


async def _descriptor_faults(server: ServerProcess, before: int) -> list[str]:
    """Wait until the server has closed the connections of the attack."""
    for _ in range(round(PATIENCE)):
        if server.descriptors <= before + SPARE_DESCRIPTORS:
            return []
        await asyncio.sleep(1.0)
    return [f"the server has {server.descriptors} file descriptors open, and had {before}"]


def _check_end(server: ServerProcess, sizes: tuple[int, int], outcome: Outcome) -> None:
    if server.is_alive:
        grown = server.resident_bytes
        outcome.counts["MB at the start"], outcome.counts["MB at the end"] = sizes[1] // 2**20, grown // 2**20
        outcome.counts["descriptors at the start"], outcome.counts["descriptors at the end"] = (
            sizes[0],
            server.descriptors,
        )
        if grown > 2 * sizes[1] + MAX_GROWTH:
            outcome.violations.append(f"the server grew from {sizes[1]} to {grown} bytes, and stayed so")
    outcome.violations += log_faults(server.log_records())
