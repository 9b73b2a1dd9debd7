"""Measuring two things in turns, so that whatever else the machine does falls on both."""

import gc
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple, TypeAlias

from bench.progress import Progress

Measure: TypeAlias = Callable[[], Awaitable[float]]


class Pair(NamedTuple):
    """What each round measured, for both."""

    measured: list[float]
    against: list[float]


async def in_turns(rounds: int, measured: Measure, against: Measure, progress: Progress) -> Pair:
    """Run both once in each round. They take turns at going first: neither always finds what the other left behind."""
    pair = Pair([], [])
    for number in range(rounds):
        turns = [(measured, pair.measured), (against, pair.against)]
        for measure, results in turns if number % 2 else reversed(turns):
            # What is alive now is no business of the measurement: it is collected, or set aside for good.
            gc.collect()
            gc.freeze()
            results.append(await measure())
        progress.tick(number + 1, rounds)
    return pair


async def seconds_of(operations: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """How long the operations take, one after the other."""
    begun = perf_counter()
    for operation in operations:
        await operation()
    return perf_counter() - begun
