"""What the number of stored tasks costs: the same questions to a file with very many tasks and to one with few."""

import shutil
from collections.abc import Callable, Sequence
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
_TIMES = 10
_BEFORE_ALL = datetime(1970, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Case:
    """Something to ask of a place, about so many things in a round."""

    name: str
    what: str
    operations: Callable[[Place, int], Sequence[Operation]]
    things: int


_CASES = (
    Case("load", "load of a random task, polled ten times", Place.loads, 200),
    Case("view", "view of a random task, polled ten times", Place.views, 200),
    Case("owner's page", f"{PAGE} tasks of a random owner, asked for ten times", Place.pages_of_owners, 20),
    Case(
        "operator's page", f"{PAGE} tasks of all, from a random place on, asked for ten times", Place.pages_of_all, 20
    ),
    Case("a task's life", "create, claim and complete of one task", Place.lives, 1),
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
    operations = case.operations(place, case.things)
    # Once before it counts: whoever waits for a task asks again and again, and what is measured is the store's own
    # cost. The first time it may be that of the disk, which depends on what else the machine keeps in memory.
    await seconds_of(operations)
    return 1_000 * await seconds_of([*operations] * _TIMES) / (_TIMES * case.things)


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
