"""What tasks cost a server that has many: its memory, and the time of a poll."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figure import Figure
from bench.progress import Progress
from bench.resident import resident
from bench.rounds import Pair, in_turns
from bench.wire.aims import aim
from bench.wire.clients import Client
from bench.wire.orders import Operation, Order, Told
from bench.wire.servers import Running

FEW = 100
CALLERS = 16


MANY: Mapping[str, int] = {
    "SQLite FULL": 10_000,
    "PostgreSQL": 10_000,
    "FastMCP 4, memory": 1_250,
    "mcp 1.x tasks": 5_000,
}
"""Finished tasks, by servers: fewer of those that would take minutes."""

_KIB = 1_024


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    finished: int
    """At most."""
    live: int
    rounds: int
    seconds: float


FULL = Extent(finished=10_000, live=1_000, rounds=5, seconds=0.25)


async def measure(
    few: Sequence[Running], many: Sequence[Running], extent: Extent, progress: Progress, asking: Client
) -> list[Figure]:
    """Each server twice, both of them new: one with few tasks, and one that gets many."""
    figures: list[Figure] = []
    for with_few, with_many in zip(few, many, strict=True):
        figures += await _Pair(asking, with_few, with_many, extent).measure(progress)
    return figures


class _Pair:
    def __init__(self, asking: Client, few: Running, many: Running, extent: Extent) -> None:
        self._asking = asking
        self._few = few
        self._many = many
        self._extent = extent
        self._name = many.server.name
        self._count = min(MANY[self._name], extent.finished)

    async def measure(self, progress: Progress) -> list[Figure]:
        progress.stage(f"growing: {self._count:,} finished tasks on {self._name}")
        await self._do(self._few, "fill", FEW)
        # The first half is not counted: what is loaded, compiled or cached by then is no task's.
        half = self._count // 2
        await self._do(self._many, "fill", self._count - half)
        finished = await self._growth(self._many, "fill", half)
        polls = await in_turns(
            self._extent.rounds, lambda: self._polls(self._many), lambda: self._polls(self._few), progress
        )
        # Of the one that has done little: another has memory to use again.
        live = await self._growth(self._few, "leave", self._extent.live)
        return [
            *self._memory("finished", finished, half),
            *self._memory("live", live, self._extent.live),
            self._polled(polls),
        ]

    async def _growth(self, one: Running, operation: Operation, count: int) -> float | None:
        """Bytes for each task, if the system says how much memory a process has."""
        before = resident(one.pid)
        await self._do(one, operation, count)
        after = resident(one.pid)
        return None if before is None or after is None else (after - before) / count

    async def _do(self, one: Running, operation: Operation, count: int, seconds: float = 0) -> Told:
        return await self._asking.do(Order(one.port, one.server.generation, operation, CALLERS, seconds, count))

    async def _polls(self, one: Running) -> float:
        return (await self._do(one, "get", 1_000_000, self._extent.seconds)).rate

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
