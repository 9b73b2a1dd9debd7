"""How many tasks a second go through the store, against the bare driver that writes the very same rows."""

from itertools import count
from pathlib import Path
from time import perf_counter

from bench.figure import Bound, Figure
from bench.progress import Progress
from bench.record import Recording, replay
from bench.rounds import in_turns
from bench.work import live
from raincheck.stores.sqlite import SqliteStore

TASKS = 5_000
CALLERS = 64


async def measure(folder: Path, *, rounds: int, progress: Progress) -> list[Figure]:
    progress.stage(f"throughput: recording what {TASKS:,} tasks write")
    recording = Recording()
    await _seconds(SqliteStore(folder / "recorded.db", connect=recording.connect))
    statements = recording.statements()

    numbers = count()

    async def ours() -> float:
        return TASKS / await _seconds(SqliteStore(folder / f"ours-{next(numbers)}.db"))

    async def bare() -> float:
        return TASKS / replay(statements, folder / f"bare-{next(numbers)}.db")

    progress.stage(f"throughput: {rounds} rounds of {TASKS:,} tasks by {CALLERS} callers, and by the bare driver")
    pair = await in_turns(rounds, ours, bare, progress)
    what = f"create, claim and complete of {TASKS} tasks by {CALLERS} callers, against sqlite3 writing the same rows"
    return [Figure("throughput", what, "tasks/s", pair.measured, pair.against, Bound("at least", 0.5))]


async def _seconds(store: SqliteStore) -> float:
    await store.open()
    try:
        begun = perf_counter()
        await live(store, TASKS, CALLERS)
        return perf_counter() - begun
    finally:
        await store.close()
