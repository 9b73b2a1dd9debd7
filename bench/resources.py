"""The CPU time of an idle store, and the memory that remains after tasks were created and pruned."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.figure import Bound, Figure
from bench.progress import Progress

MIB = 1_024 * 1_024

_TASKS_BEFORE_IDLE = 6_000
"""Tasks that the idle store has run before: enough for its change log to reach its full length."""


async def measure(folder: Path, *, seconds: int, cycles: int, progress: Progress) -> list[Figure]:
    progress.stage(f"idle: the CPU time of {seconds} s without work")
    idle = await _in_child("idle", folder / "idle.db", _TASKS_BEFORE_IDLE, seconds)
    progress.stage(f"memory: {cycles:,} tasks after a warm-up of as many")
    memory = await _in_child("memory", folder / "memory.db", cycles, cycles)
    return [
        Figure(
            "idle CPU",
            "CPU seconds against seconds of one core, of an open store with one listener",
            "s",
            [idle["cpu"]],
            [idle["wall"]],
            Bound("at most", 0.01),
        ),
        Figure(
            "memory",
            f"resident memory after {2 * cycles} tasks came and went, against after {cycles}",
            "MiB",
            [memory["after"] / MIB],
            [memory["before"] / MIB],
            Bound("at most", 1.05),
        ),
    ]


async def _in_child(which: str, path: Path, first: int, second: int) -> Mapping[str, float]:
    arguments = ("-m", "bench.resources_child", which, str(path), str(first), str(second))
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"measuring {which!r} in a process of its own failed: see its error above")
    result: Mapping[str, float] = json.loads(output)
    return result
