"""The delay from the end of a task until its caller knows it. All servers are measured at once, as they only wait."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figure import Figure
from bench.progress import Progress
from bench.wire.aims import aim
from bench.wire.client_process import client
from bench.wire.orders import Operation, Order, OrderResult
from bench.wire.servers import RunningServer

PUSHES = frozenset({"memory", "SQLite FULL", "SQLite NORMAL", "PostgreSQL", "PostgreSQL, 1 w", "PostgreSQL, 3 w"})
"""Servers that send notifications in 2026-07-28. FastMCP 4 does not."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    told: int
    """Tasks that run one after the other, each with a subscription."""
    polled: int
    """Tasks that run at once, and are polled at the server's interval."""
    seconds: float
    """The average length of a polled task: 7.5 means from 5 to 10. The longest poll interval is 5."""


FULL = Extent(told=20, polled=16, seconds=7.5)
QUICK = Extent(told=5, polled=8, seconds=3)

_TOLD_AFTER = 0.2
"""The length of a task with a subscription, in seconds. The subscription exists by then."""


async def measure(up: Sequence[RunningServer], extent: Extent, progress: Progress) -> list[Figure]:
    progress.stage(f"known: {extent.told} tasks with a subscription each")
    pushes = [running for running in up if running.server.name in PUSHES]
    by_push = await _measure_all(pushes, "told", 1, _TOLD_AFTER, extent.told)
    progress.stage(f"known: {extent.polled} tasks of {extent.seconds:g} s, polled")
    have_tasks = [running for running in up if running.server.has_tasks]
    by_polls = await _measure_all(have_tasks, "polled", extent.polled, extent.seconds, extent.polled)
    return [
        *(_told(running.server.name, result) for running, result in zip(pushes, by_push, strict=True)),
        *(_polled(running.server.name, result) for running, result in zip(have_tasks, by_polls, strict=True)),
    ]


async def _measure_all(
    up: Sequence[RunningServer], operation: Operation, callers: int, seconds: float, count: int
) -> list[OrderResult]:
    """Send an order for each server to its own client process, at the same time."""

    async def run_order(running: RunningServer) -> OrderResult:
        async with client() as asking:
            return await asking.do(Order(running.port, running.server.generation, operation, callers, seconds, count))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_order(running)) for running in up]
    return [task.result() for task in tasks]


def _told(server: str, result: OrderResult) -> Figure:
    what = f"from the end of a task on {server} to the moment that its subscriber knows of it"
    return Figure("told", what, "ms", [1_000 * late for late in result.late], None, aim("told", server), server)


def _polled(server: str, result: OrderResult) -> Figure:
    what = f"from the end of a task on {server} to the poll that tells of it, against its length"
    return Figure("polled", what, "s", result.late, result.lasted, aim("polled", server), server)
