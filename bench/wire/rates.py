"""The throughput of servers, measured in alternation, so that other load on the machine affects all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.figure import Figure
from bench.postgres import analyse
from bench.progress import Progress
from bench.wire.aims import aim
from bench.wire.client_process import Client
from bench.wire.orders import Operation, Order
from bench.wire.servers import SDK, RunningServer, Server

MAX_CALLERS = 64
"""The highest number of concurrent callers."""

VARIANTS: Mapping[str, frozenset[Operation]] = {
    "SQLite NORMAL": frozenset({"create", "get", "result"}),
    "SQLite FULL, 2025": frozenset({"create", "get", "result"}),
    "PostgreSQL, 1 w": frozenset({"create", "get", "result", "all done"}),
    "PostgreSQL, 3 w": frozenset({"create", "get", "result", "all done"}),
}
"""Servers that differ from another of ours in one thing, and the operations that this affects, by 1 and 16 callers."""

_ONLY_2026: frozenset[Operation] = frozenset({"update"})


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float
    """Seconds of each round; half as much again with 64 callers, so that each sends several requests."""
    at_once: int
    """Tasks of the operation `all done`."""
    operations: Mapping[int, Sequence[Operation]]
    """The operations by the number of concurrent callers."""


FULL = Extent(
    rounds=3,
    seconds=0.25,
    at_once=1_000,
    operations={
        16: ("create", "get", "get working", "cancel", "update", "result", "all done"),
        1: ("create", "get", "result"),
        MAX_CALLERS: ("create", "get"),
    },
)
QUICK = Extent(rounds=1, seconds=0.3, at_once=200, operations={16: ("create", "get", "all done"), 1: ("result",)})


async def measure(client: Client, up: Sequence[RunningServer], extent: Extent, progress: Progress) -> list[Figure]:
    """Measure the rates of each server, compared with the plain call."""
    figures: list[Figure] = []
    for callers, operations in extent.operations.items():
        # A warm-up, so that one-time compilation, preparation and connections are not measured.
        await _block(client, up, "create", callers, replace(extent, rounds=1), progress)
        for running in up:
            if running.server.database is not None:
                await analyse(running.server.database)
        for operation in ("call", *operations):
            rates = await _block(client, up, operation, callers, extent, progress)
            figures += [
                _figure(running, f"{operation} x{callers}", rates)
                for running in up
                if is_measured(running.server, operation, callers)
            ]
    return figures


def _figure(running: RunningServer, name: str, rates: Mapping[str, Sequence[float]]) -> Figure:
    server = running.server.name
    what = f"{name.replace(' x', ' by ')} at once on {server}, against a plain call of {SDK}"
    return Figure(name, what, "1/s", rates[server], rates[SDK], aim(name, server), server)


async def _block(
    client: Client, up: Sequence[RunningServer], operation: Operation, callers: int, extent: Extent, progress: Progress
) -> dict[str, list[float]]:
    """Measure one operation in all rounds, by server. Servers without tasks run the plain call instead."""
    progress.stage(f"wire: {operation}, {callers} at once")
    measured = [
        running for running in up if running.server.name == SDK or is_measured(running.server, operation, callers)
    ]
    rates: dict[str, list[float]] = {running.server.name: [] for running in measured}
    for number in range(extent.rounds):
        for running in measured:
            result = await client.do(_order(running, operation, callers, extent))
            rates[running.server.name].append(result.rate)
        progress.tick(number + 1, extent.rounds)
    return rates


def is_measured(server: Server, operation: Operation, callers: int) -> bool:
    """Return whether a server's operation is a figure, and not only a comparison."""
    if operation == "call" or not server.has_tasks:
        return operation == "call" and not server.has_tasks
    if server.name in VARIANTS and (operation not in VARIANTS[server.name] or callers == MAX_CALLERS):
        return False
    return operation not in _ONLY_2026 or server.generation == "2026-07-28"


def _order(running: RunningServer, operation: Operation, callers: int, extent: Extent) -> Order:
    actual = operation if running.server.has_tasks else "call"
    count = extent.at_once if actual == "all done" else 1_000_000
    seconds = extent.seconds * (1.5 if callers == MAX_CALLERS else 1)
    return Order(running.port, running.server.generation, actual, callers, seconds, count)
