"""How many tasks a second go through the store, against the bare driver that writes the very same rows."""

from itertools import count
from pathlib import Path
from time import perf_counter

from bench.figure import Bound, Figure
from bench.progress import Progress
from bench.record import Recording, replay
from bench.rounds import in_turns
from bench.work import Begin, begin_from_queue, begin_own, live
from raincheck.stores.sqlite import SqliteStore

CALLERS = 64


WAYS: dict[str, tuple[str, Begin]] = {
    "throughput": ("each caller begins its own task", begin_own),
    "throughput, queue": ("each caller claims the next task from the queue", begin_from_queue),
}


async def measure(folder: Path, *, tasks: int, rounds: int, progress: Progress) -> list[Figure]:
    return [await _measure(folder, name, tasks=tasks, rounds=rounds, progress=progress) for name in WAYS]


async def _measure(folder: Path, name: str, *, tasks: int, rounds: int, progress: Progress) -> Figure:
    way, begin = WAYS[name]
    slug = name.replace(", ", "-")
    progress.stage(f"{name}: recording what {tasks:,} tasks write")
    recording = Recording()
    await _seconds(SqliteStore(folder / f"{slug}-recorded.db", connect=recording.connect), tasks, begin)
    statements = recording.statements()

    numbers = count()

    async def ours() -> float:
        return tasks / await _seconds(SqliteStore(folder / f"{slug}-ours-{next(numbers)}.db"), tasks, begin)

    async def bare() -> float:
        return tasks / replay(statements, folder / f"{slug}-bare-{next(numbers)}.db")

    progress.stage(f"{name}: {rounds} rounds of {tasks:,} tasks by {CALLERS} callers, and by the bare driver")
    pair = await in_turns(rounds, ours, bare, progress)
    what = (
        f"create, begin, complete of {tasks} tasks by {CALLERS} callers ({way}), against sqlite3 writing the same rows"
    )
    return Figure(name, what, "tasks/s", pair.measured, pair.against, Bound("at least", 0.5))


async def _seconds(store: SqliteStore, tasks: int, begin: Begin) -> float:
    await store.open()
    try:
        begun = perf_counter()
        await live(store, tasks, CALLERS, begin=begin)
        return perf_counter() - begun
    finally:
        await store.close()
