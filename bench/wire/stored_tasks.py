"""The cost of many tasks in a server: its memory, and the time of a poll."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figure import Figure
from bench.process_memory import resident_bytes
from bench.progress import Progress
from bench.rounds import Pair, in_turns
from bench.wire.aims import aim
from bench.wire.client_process import Client
from bench.wire.orders import Operation, Order, OrderResult
from bench.wire.servers import RunningServer

FEW = 100
CALLERS = 16


MANY: Mapping[str, int] = {
    "SQLite FULL": 10_000,
    "PostgreSQL": 10_000,
    "FastMCP 4, memory": 1_250,
    "mcp 1.x tasks": 5_000,
}
"""The number of finished tasks by server: fewer for servers that would take minutes."""

_KIB = 1_024


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    finished: int
    """The highest number of finished tasks."""
    live: int
    rounds: int
    seconds: float


FULL = Extent(finished=10_000, live=1_000, rounds=5, seconds=0.25)


async def measure(
    few: Sequence[RunningServer], many: Sequence[RunningServer], extent: Extent, progress: Progress, asking: Client
) -> list[Figure]:
    """Measure each server in two new processes: one with few tasks, and one that gets many."""
    figures: list[Figure] = []
    for with_few, with_many in zip(few, many, strict=True):
        figures += await _ServerPair(asking, with_few, with_many, extent).measure(progress)
    return figures


class _ServerPair:
    def __init__(self, asking: Client, few: RunningServer, many: RunningServer, extent: Extent) -> None:
        self._client = asking
        self._few = few
        self._many = many
        self._extent = extent
        self._name = many.server.name
        self._count = min(MANY[self._name], extent.finished)

    async def measure(self, progress: Progress) -> list[Figure]:
        progress.stage(f"growing: {self._count:,} finished tasks on {self._name}")
        await self._do(self._few, "fill", FEW)
        # The first half is a warm-up: what it loads, compiles or caches is not the cost of tasks.
        half = self._count // 2
        await self._do(self._many, "fill", self._count - half)
        finished = await self._growth(self._many, "fill", half)
        polls = await in_turns(
            self._extent.rounds, lambda: self._polls(self._many), lambda: self._polls(self._few), progress
        )
        # On the server with few tasks: the other one has freed memory that it would reuse.
        live = await self._growth(self._few, "leave", self._extent.live)
        return [
            *self._memory("finished", finished, half),
            *self._memory("live", live, self._extent.live),
            self._polled(polls),
        ]

    async def _growth(self, running: RunningServer, operation: Operation, count: int) -> float | None:
        """Return the bytes for each task, if the system reports the memory of a process."""
        before = resident_bytes(running.pid)
        await self._do(running, operation, count)
        after = resident_bytes(running.pid)
        return None if before is None or after is None else (after - before) / count

    async def _do(self, running: RunningServer, operation: Operation, count: int, seconds: float = 0) -> OrderResult:
        return await self._client.do(Order(running.port, running.server.generation, operation, CALLERS, seconds, count))

    async def _polls(self, running: RunningServer) -> float:
        return (await self._do(running, "get", 1_000_000, self._extent.seconds)).rate

    def _memory(self, which: str, grown: float | None, count: int) -> list[Figure]:
        if grown is None:
            return []
        name = f"memory, {which}"
        what = f"what the server's process has grown by for each {which} task, over {count:,} of them"
        return [Figure(name, what, "KiB", [grown / _KIB], None, aim(name, self._name), self._name)]

    def _polled(self, polls: Pair) -> Figure:
        what = f"polls a second of a server that has {self._count:,} finished tasks, against one with {FEW}"
        bound = aim("get among many", self._name)
        return Figure("get among many", what, "1/s", polls.measured, polls.against, bound, self._name)
