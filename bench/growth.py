"""What the number of stored tasks costs: the same questions to a file with very many tasks and to one with few."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

from bench.figure import Bound, Figure
from bench.fill import Filling, fill
from bench.place import PAGE, Operation, Place, opened
from bench.progress import Progress
from bench.rounds import in_turns, seconds_of
from raincheck.clock import SystemClock

FEW = 1_000
PRUNED = 500

_BOUND = Bound("at most", 2.0)
_BEFORE_ALL = datetime(1970, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Case:
    """Something to ask of a place, so many times in a round."""

    name: str
    what: str
    operations: Callable[[Place, int], list[Operation]]
    times: int


_CASES = (
    Case("load", "load of one random task", Place.loads, 200),
    Case("view", "view of one random task", Place.views, 200),
    Case("owner's page", f"{PAGE} tasks of one random owner", Place.pages_of_owners, 20),
    Case("operator's page", f"{PAGE} tasks of all, from a random place on", Place.pages_of_all, 20),
    Case("a task's life", "create, claim and complete of one task", Place.lives, 10),
)


async def measure(folder: Path, *, many: int, rounds: int, progress: Progress) -> list[Figure]:
    # Pruning uses up what has expired, so the large file has enough of it for every round.
    large, small = Filling(many, PRUNED * rounds), Filling(FEW)
    progress.stage(f"growth: filling files with {many:,} and with {FEW:,} finished tasks")
    await fill(folder / "large.db", large, progress.tick)
    await fill(folder / "small.db", small, progress.tick)
    figures: list[Figure] = []
    async with opened(folder / "large.db", large) as among_many, opened(folder / "small.db", small) as among_few:
        for case in _CASES:
            progress.stage(f"growth: {rounds} rounds of: {case.what}")
            measured, against = (partial(_milliseconds, place, case) for place in (among_many, among_few))
            pair = await in_turns(rounds, measured, against, progress)
            what = f"{case.what}, among {many} tasks against among {FEW}"
            figures.append(Figure(f"growth: {case.name}", what, "ms", pair.measured, pair.against, _BOUND))
    figures.append(await _measure_prune(folder, large, rounds, progress))
    return figures


async def _milliseconds(place: Place, case: Case) -> float:
    return 1_000 * await seconds_of(case.operations(place, case.times)) / case.times


async def _measure_prune(folder: Path, large: Filling, rounds: int, progress: Progress) -> Figure:
    pattern, small = folder / "few.db", Filling(FEW, PRUNED)
    progress.stage(f"growth: {rounds} rounds of: pruning {PRUNED} tasks")
    await fill(pattern, small, progress.tick)
    numbers = count()

    async def among_many() -> float:
        return await _prune_milliseconds(folder / "large.db", large)

    async def among_few() -> float:
        path = folder / f"few-{next(numbers)}.db"
        shutil.copyfile(pattern, path)
        return await _prune_milliseconds(path, small)

    pair = await in_turns(rounds, among_many, among_few, progress)
    what = f"pruning {PRUNED} expired tasks, among {large.kept} that are kept against among {FEW}"
    return Figure("growth: prune", what, "ms", pair.measured, pair.against, _BOUND)


async def _prune_milliseconds(path: Path, filling: Filling) -> float:
    async with opened(path, filling) as place:
        # Nothing expired that long ago: this only readies the connection, which is new on both sides.
        await place.store.prune(now=_BEFORE_ALL, limit=PRUNED)
        begun = perf_counter()
        pruned = await place.store.prune(now=SystemClock().now(), limit=PRUNED)
        seconds = perf_counter() - begun
    assert len(pruned) == PRUNED
    return 1_000 * seconds
