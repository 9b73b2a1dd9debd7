"""The command: `scripts/bench [--quick] [--strict] [--json FILE]`."""

import argparse
import asyncio
import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import dispatch, grace, growth, rest, throughput
from bench.figure import Figure, table
from bench.progress import Progress
from bench.wire import measure as wire
from bench.wire.measure import Extent
from raincheck.clock import SystemClock

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    name: str
    wire: Extent
    throughput_tasks: int
    throughput_rounds: int
    many: int
    growth_rounds: int
    idle_seconds: int
    cycles: int
    grace_rounds: int
    dispatch_rounds: int


FULL = Scale(
    "full",
    wire.FULL,
    throughput_tasks=5_000,
    throughput_rounds=7,
    many=1_000_000,
    growth_rounds=31,
    idle_seconds=10,
    cycles=5_000,
    grace_rounds=125,
    dispatch_rounds=15,
)
QUICK = Scale(
    "quick",
    wire.QUICK,
    throughput_tasks=1_500,
    throughput_rounds=3,
    many=20_000,
    growth_rounds=5,
    idle_seconds=2,
    cycles=1_000,
    grace_rounds=15,
    dispatch_rounds=2,
)


async def measure(scale: Scale, folder: Path, progress: Progress) -> list[Figure]:
    tasks, rounds = scale.throughput_tasks, scale.throughput_rounds
    return [
        *(cell.figure for cell in await wire.measure(folder, scale.wire, progress)),
        *await throughput.measure(folder, tasks=tasks, rounds=rounds, progress=progress),
        *await growth.measure(folder, many=scale.many, rounds=scale.growth_rounds, progress=progress),
        *await rest.measure(folder, seconds=scale.idle_seconds, cycles=scale.cycles, progress=progress),
        *await grace.measure(folder, rounds=scale.grace_rounds, progress=progress),
        *await dispatch.measure(rounds=scale.dispatch_rounds, idle_seconds=4 * scale.idle_seconds, progress=progress),
    ]


def crowd() -> str | None:
    """A warning, if others use this machine so much that its figures are rough."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores / 2:
        return None
    return f"bench: this machine is busy (load {load:.1f} on {cores} cores): expect rough figures, look at their spread"


def machine() -> Mapping[str, object]:
    """Where it was measured: not to compare with, but to know what the ratios were made of."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "cores": os.cpu_count(),
    }


def report(scale: Scale, figures: Sequence[Figure]) -> str:
    where = ", ".join(f"{name} {value}" for name, value in machine().items())
    missed = sum(not figure.is_met for figure in figures)
    bounds = sum(figure.bound is not None for figure in figures)
    last = f"{missed} of {bounds} bounds MISSED" if missed else f"all {bounds} bounds met"
    head = f"raincheck bench, {scale.name} (many = {scale.many:,} tasks, few = {growth.FEW:,}; {where})"
    return "\n".join([head, "", table(figures), "", last])


def save(path: Path, scale: Scale, figures: Sequence[Figure]) -> None:
    content = {
        "at": SystemClock().now().isoformat(),
        "scale": scale.name,
        "machine": machine(),
        "figures": [figure.as_json() for figure in figures],
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure what raincheck promises about speed.")
    parser.add_argument("--quick", action="store_true", help="less of everything, in a minute and a half")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    progress = Progress()
    if warning := crowd():
        print(warning, file=sys.stderr)
    RESULTS.mkdir(exist_ok=True)
    # Beside the results and not in the system's temporary folder, which may be in memory, where syncing is free.
    with tempfile.TemporaryDirectory(prefix="run-", dir=RESULTS) as folder:
        figures = asyncio.run(measure(scale, Path(folder), progress))
    progress.end()
    print(report(scale, figures))
    for path in (RESULTS / f"{scale.name}.json", options.json):
        if path is not None:
            save(path, scale, figures)
    return int(options.strict and not all(figure.is_met for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
