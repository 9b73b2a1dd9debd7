"""How fast servers are: all are up at once and asked in turns, so that whatever else the machine does falls on all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.figure import Figure
from bench.postgres import analyse
from bench.progress import Progress
from bench.wire.aims import aim
from bench.wire.clients import Client
from bench.wire.orders import Operation, Order
from bench.wire.servers import SDK, Running, Server

MOST = 64
"""Callers at once."""

VARIANTS: Mapping[str, frozenset[Operation]] = {
    "SQLite NORMAL": frozenset({"create", "get", "result"}),
    "SQLite FULL, 2025": frozenset({"create", "get", "result"}),
    "PostgreSQL, 1 w": frozenset({"create", "get", "result", "all done"}),
    "PostgreSQL, 3 w": frozenset({"create", "get", "result", "all done"}),
}
"""Servers that differ from another of ours in one thing, and what they are asked, by 1 and 16: it saves minutes."""

_ONLY_2026: frozenset[Operation] = frozenset({"update"})


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float
    """Of each round; half as much again by 64 callers, so that each has its turn more than once."""
    at_once: int
    """Tasks that are created and completed in one go."""
    operations: Mapping[int, Sequence[Operation]]
    """By how many callers at once."""


FULL = Extent(
    rounds=3,
    seconds=0.25,
    at_once=1_000,
    operations={
        16: ("create", "get", "get working", "cancel", "update", "result", "all done"),
        1: ("create", "get", "result"),
        MOST: ("create", "get"),
    },
)
QUICK = Extent(rounds=1, seconds=0.3, at_once=200, operations={16: ("create", "get", "all done"), 1: ("result",)})


async def measure(client: Client, up: Sequence[Running], extent: Extent, progress: Progress) -> list[Figure]:
    """What each server did, next to the plain call that it is measured against."""
    figures: list[Figure] = []
    for callers, operations in extent.operations.items():
        # Before it counts: what is compiled, prepared or connected at first is not what is measured.
        await _block(client, up, "create", callers, replace(extent, rounds=1), progress)
        for one in up:
            if one.server.database is not None:
                await analyse(one.server.database)
        for operation in ("call", *operations):
            rates = await _block(client, up, operation, callers, extent, progress)
            figures += [
                _figure(one, f"{operation} x{callers}", rates) for one in up if is_asked(one.server, operation, callers)
            ]
    return figures


def _figure(one: Running, name: str, rates: Mapping[str, Sequence[float]]) -> Figure:
    server = one.server.name
    what = f"{name.replace(' x', ' by ')} at once on {server}, against a plain call of {SDK}"
    return Figure(name, what, "1/s", rates[server], rates[SDK], aim(name, server), server)


async def _block(
    client: Client, up: Sequence[Running], operation: Operation, callers: int, extent: Extent, progress: Progress
) -> dict[str, list[float]]:
    """One operation in all rounds, by the names of servers. Those without tasks are called plainly in each."""
    progress.stage(f"wire: {operation}, {callers} at once")
    asked = [one for one in up if one.server.name == SDK or is_asked(one.server, operation, callers)]
    rates: dict[str, list[float]] = {one.server.name: [] for one in asked}
    for number in range(extent.rounds):
        for one in asked:
            told = await client.do(_order(one, operation, callers, extent))
            rates[one.server.name].append(told.rate)
        progress.tick(number + 1, extent.rounds)
    return rates


def is_asked(server: Server, operation: Operation, callers: int) -> bool:
    """Whether a server is asked something for its own sake."""
    if operation == "call" or not server.has_tasks:
        return operation == "call" and not server.has_tasks
    if server.name in VARIANTS and (operation not in VARIANTS[server.name] or callers == MOST):
        return False
    return operation not in _ONLY_2026 or server.generation == "2026-07-28"


def _order(one: Running, operation: Operation, callers: int, extent: Extent) -> Order:
    done = operation if one.server.has_tasks else "call"
    count = extent.at_once if done == "all done" else 1_000_000
    seconds = extent.seconds * (1.5 if callers == MOST else 1)
    return Order(one.port, one.server.generation, done, callers, seconds, count)
