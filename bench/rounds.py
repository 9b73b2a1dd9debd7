"""Measure two things in alternation, so that other load on the machine affects both."""

import gc
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple, TypeAlias

from bench.progress import Progress

Measure: TypeAlias = Callable[[], Awaitable[float]]


class Pair(NamedTuple):
    """The measurements of each round, for both sides."""

    measured: list[float]
    against: list[float]


async def in_turns(rounds: int, measured: Measure, against: Measure, progress: Progress) -> Pair:
    """Run both once in each round. They alternate in going first, so that neither always runs after the other."""
    pair = Pair([], [])
    for number in range(rounds):
        turns = [(measured, pair.measured), (against, pair.against)]
        for measure, results in turns if number % 2 else reversed(turns):
            # Collect or freeze existing objects, so that the measurement does not pay for them.
            gc.collect()
            gc.freeze()
            results.append(await measure())
        progress.tick(number + 1, rounds)
    return pair


async def seconds_of(operations: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Return how long the operations take, one after the other."""
    started_at = perf_counter()
    for operation in operations:
        await operation()
    return perf_counter() - started_at
