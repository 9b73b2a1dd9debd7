"""The cost of many stored tasks: the same operations on a file with very many tasks and on one with few."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

from bench.bulk_tasks import TaskCounts, fill
from bench.figure import Bound, Figure
from bench.filled_store import PAGE, FilledStore, Operation, opened
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
    """An operation on a filled store, and how many tasks it covers in a round."""

    name: str
    what: str
    operations: Callable[[FilledStore, int], Sequence[Operation]]
    count: int


_CASES = (
    Case("load", "load of a random task, polled ten times", FilledStore.loads, 200),
    Case("view", "view of a random task, polled ten times", FilledStore.views, 200),
    Case("owner's page", f"{PAGE} tasks of a random owner, asked for ten times", FilledStore.pages_of_owners, 20),
    Case(
        "operator's page",
        f"{PAGE} tasks of all, from a random place on, asked for ten times",
        FilledStore.pages_of_all,
        20,
    ),
    Case("a task's life", "create, claim and complete of one task", FilledStore.lives, 1),
)


async def measure(folder: Path, *, many: int, rounds: int, progress: Progress) -> list[Figure]:
    # Pruning removes expired tasks, so the large file has enough of them for every round.
    large, small = TaskCounts(many, PRUNED * rounds), TaskCounts(FEW)
    progress.stage(f"growth: filling files with {many:,} and with {FEW:,} finished tasks")
    await fill(folder / "large.db", large, progress.tick)
    await fill(folder / "small.db", small, progress.tick)
    figures: list[Figure] = []
    async with opened(folder / "large.db", large) as among_many, opened(folder / "small.db", small) as among_few:
        for case in _CASES:
            progress.stage(f"growth: {rounds} rounds of: {case.what}")
            measured, against = (partial(_milliseconds, store, case) for store in (among_many, among_few))
            pair = await in_turns(rounds, measured, against, progress)
            what = f"{case.what}, among {many} tasks against among {FEW}"
            figures.append(Figure(f"growth: {case.name}", what, "ms", pair.measured, pair.against, _BOUND))
    figures.append(await _measure_prune(folder, large, rounds, progress))
    return figures


async def _milliseconds(store: FilledStore, case: Case) -> float:
    operations = case.operations(store, case.count)
    # Run once before the measurement. Callers poll a task repeatedly, so the cost of the store counts, and not that of
    # the first read from the disk, which depends on the page cache.
    await seconds_of(operations)
    return 1_000 * await seconds_of([*operations] * _TIMES) / (_TIMES * case.count)


async def _measure_prune(folder: Path, large: TaskCounts, rounds: int, progress: Progress) -> Figure:
    pattern, small = folder / "few.db", TaskCounts(FEW, PRUNED)
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
    what = f"pruning {PRUNED} expired tasks, among {large.retained} that are kept against among {FEW}"
    return Figure("growth: prune", what, "ms", pair.measured, pair.against, _BOUND)


async def _prune_milliseconds(path: Path, counts: TaskCounts) -> float:
    async with opened(path, counts) as filled_store:
        # No task expired that long ago: this only warms up the connection, which is new on both sides.
        await filled_store.store.prune(now=_BEFORE_ALL, limit=PRUNED)
        started_at = perf_counter()
        pruned = await filled_store.store.prune(now=SystemClock().now(), limit=PRUNED)
        seconds = perf_counter() - started_at
    assert len(pruned) == PRUNED
    return 1_000 * seconds
