"""Measuring: all servers are up at once and asked in turns, so that whatever else the machine does falls on all."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.figure import Bound, Figure
from bench.progress import Progress
from bench.serving import served
from bench.wire.client import Operation, Order

WARM_UP = 300


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that is asked of a server, and how it should compare to the plain call of the SDK."""

    server: str
    operation: Operation
    bound: Bound

    @property
    def name(self) -> str:
        return self.server if self.operation == "call" else f"{self.operation}, {self.server}"


SDK = "sdk"
ASKED = (
    Asked("floor", "call", Bound("at least", 1.0)),
    Asked("memory", "create", Bound("at least", 0.6)),
    Asked("memory", "get", Bound("at least", 1.0)),
    Asked("SQLite", "create", Bound("at least", 0.6)),
    Asked("SQLite", "get", Bound("at least", 1.0)),
)
"""In this order: what is polled was created just before."""


class Line:
    """A client with a server of its own."""

    def __init__(self, client: Process) -> None:
        self._client = client

    async def rate(self, order: Order) -> float:
        """How many a second."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        told = json.loads(await self._client.stdout.readline())
        return order.count / told["seconds"]


async def measure(folder: Path, *, count: int, callers: int, rounds: int, progress: Progress) -> list[Figure]:
    """The figures, with so many requests in each round, by so many callers at once."""
    servers = {
        "floor": ["floor"],
        SDK: ["sdk"],
        "memory": ["raincheck", "memory:"],
        "SQLite": ["raincheck", str(folder / "wire.db")],
    }
    progress.stage(f"wire: {rounds} rounds of {count} requests by {callers} callers")
    async with AsyncExitStack() as stack:
        lines = {name: await stack.enter_async_context(_line(words)) for name, words in servers.items()}
        for asked in (Asked(SDK, "call", Bound("at least", 1)), *ASKED):
            await lines[asked.server].rate(Order(asked.operation, WARM_UP, callers))
        against: list[float] = []
        measured: dict[Asked, list[float]] = {asked: [] for asked in ASKED}
        for number in range(rounds):
            against.append(await lines[SDK].rate(Order("call", count, callers)))
            for asked in ASKED:
                measured[asked].append(await lines[asked.server].rate(Order(asked.operation, count, callers)))
            progress.tick(number + 1, rounds)
    return [_figure(asked, rates, against, callers) for asked, rates in measured.items()]


def _figure(asked: Asked, rates: Sequence[float], against: Sequence[float], callers: int) -> Figure:
    what = f"{asked.operation} by {callers} callers at once, against the plain call of the SDK"
    return Figure(asked.name, what, "1/s", rates, against, asked.bound)


@asynccontextmanager
async def _line(words: Sequence[str]) -> AsyncGenerator[Line]:
    async with served("bench.wire.server", *words) as port:
        command = (sys.executable, "-m", "bench.wire.client", str(port))
        client = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        try:
            yield Line(client)
        finally:
            client.kill()
            await client.wait()
