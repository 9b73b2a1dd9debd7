"""The sections of a run, and how much each measures."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bench import dispatch, entrances, growth, inline_window, resources, throughput
from bench.figure import Figure
from bench.progress import Progress
from bench.wire import measure as wire


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a run measures."""

    name: str
    wire: wire.Extent
    entrance_rounds: int
    entrance_seconds: float
    """Seconds of each round. Short, so that the servers alternate faster than the load of the machine changes."""
    throughput_tasks: int
    throughput_rounds: int
    many: int
    growth_rounds: int
    idle_seconds: int
    """The idle time of one store."""
    idle_worker_seconds: int
    """The idle time of workers on PostgreSQL. 0 skips the measurement."""
    cycles: int
    grace_rounds: int
    dispatch_rounds: int


FULL = Scale(
    "full",
    wire.FULL,
    entrance_rounds=12,
    entrance_seconds=0.06,
    throughput_tasks=3_000,
    throughput_rounds=3,
    many=1_000_000,
    growth_rounds=5,
    idle_seconds=4,
    idle_worker_seconds=12,
    cycles=5_000,
    grace_rounds=30,
    dispatch_rounds=4,
)
QUICK = Scale(
    "quick",
    wire.QUICK,
    entrance_rounds=5,
    entrance_seconds=0.04,
    throughput_tasks=1_500,
    throughput_rounds=3,
    many=20_000,
    growth_rounds=3,
    idle_seconds=2,
    idle_worker_seconds=0,
    cycles=1_000,
    grace_rounds=15,
    dispatch_rounds=2,
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: how much it measures, the folder of its files, and its progress display."""

    scale: Scale
    folder: Path
    progress: Progress


Section: TypeAlias = Callable[[Run], Awaitable[list[Figure]]]


async def _wire(run: Run) -> list[Figure]:
    return await wire.measure(run.folder, run.scale.wire, run.progress)


async def _entrances(run: Run) -> list[Figure]:
    rounds, seconds = run.scale.entrance_rounds, run.scale.entrance_seconds
    return await entrances.measure(rounds=rounds, seconds=seconds, progress=run.progress)


async def _throughput(run: Run) -> list[Figure]:
    tasks, rounds = run.scale.throughput_tasks, run.scale.throughput_rounds
    return await throughput.measure(run.folder, tasks=tasks, rounds=rounds, progress=run.progress)


async def _growth(run: Run) -> list[Figure]:
    return await growth.measure(run.folder, many=run.scale.many, rounds=run.scale.growth_rounds, progress=run.progress)


async def _rest(run: Run) -> list[Figure]:
    seconds, cycles = run.scale.idle_seconds, run.scale.cycles
    return await resources.measure(run.folder, seconds=seconds, cycles=cycles, progress=run.progress)


async def _grace(run: Run) -> list[Figure]:
    return await inline_window.measure(run.folder, rounds=run.scale.grace_rounds, progress=run.progress)


async def _dispatch(run: Run) -> list[Figure]:
    rounds, seconds = run.scale.dispatch_rounds, run.scale.idle_worker_seconds
    return await dispatch.measure(rounds=rounds, idle_seconds=seconds, progress=run.progress)


SECTIONS: Mapping[str, Section] = {
    "wire": _wire,
    "entrances": _entrances,
    "throughput": _throughput,
    "growth": _growth,
    "rest": _rest,
    "grace": _grace,
    "dispatch": _dispatch,
}
"""In the order in which they are measured."""
