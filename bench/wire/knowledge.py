"""From the end of a task to its caller's knowledge, of all servers at once: they do nothing but wait."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figure import Figure
from bench.progress import Progress
from bench.wire.aims import aim
from bench.wire.clients import client
from bench.wire.orders import Operation, Order, Told
from bench.wire.servers import Running

PUSHES = frozenset({"memory", "SQLite FULL", "SQLite NORMAL", "PostgreSQL", "PostgreSQL, 1 w", "PostgreSQL, 3 w"})
"""Those that tell their callers in 2026-07-28. FastMCP 4 does not."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    told: int
    """Tasks, one after the other, each with a subscription."""
    polled: int
    """Tasks at once that are asked for as often as is said."""
    seconds: float
    """How long a task takes that is polled, on average: from 5 to 10, where that is 7.5. The longest interval is 5."""


FULL = Extent(told=20, polled=16, seconds=7.5)
QUICK = Extent(told=5, polled=8, seconds=3)

_TOLD_AFTER = 0.2
"""Seconds that a task takes that is subscribed to: it is by then."""


async def measure(up: Sequence[Running], extent: Extent, progress: Progress) -> list[Figure]:
    progress.stage(f"known: {extent.told} tasks with a subscription each")
    pushes = [one for one in up if one.server.name in PUSHES]
    by_push = await _ask(pushes, "told", 1, _TOLD_AFTER, extent.told)
    progress.stage(f"known: {extent.polled} tasks of {extent.seconds:g} s, polled")
    have_tasks = [one for one in up if one.server.has_tasks]
    by_polls = await _ask(have_tasks, "polled", extent.polled, extent.seconds, extent.polled)
    return [
        *(_told(one.server.name, told) for one, told in zip(pushes, by_push, strict=True)),
        *(_polled(one.server.name, told) for one, told in zip(have_tasks, by_polls, strict=True)),
    ]


async def _ask(up: Sequence[Running], operation: Operation, callers: int, seconds: float, count: int) -> list[Told]:
    """Each by a client of its own, since all are asked at once."""

    async def ask(one: Running) -> Told:
        async with client() as asking:
            return await asking.do(Order(one.port, one.server.generation, operation, callers, seconds, count))

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(one)) for one in up]
    return [one.result() for one in asked]


def _told(server: str, told: Told) -> Figure:
    what = f"from the end of a task on {server} to the moment that its subscriber knows of it"
    return Figure("told", what, "ms", [1_000 * late for late in told.late], None, aim("told", server), server)


def _polled(server: str, told: Told) -> Figure:
    what = f"from the end of a task on {server} to the poll that tells of it, against its length"
    return Figure("polled", what, "s", told.late, told.lasted, aim("polled", server), server)
