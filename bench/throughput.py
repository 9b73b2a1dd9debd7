"""Tasks per second through the store, compared with the bare driver writing the same rows."""

from itertools import count
from pathlib import Path
from time import perf_counter

from bench.figure import Bound, Figure
from bench.progress import Progress
from bench.rounds import in_turns
from bench.sqlite_recording import StatementRecorder, replay
from bench.task_lives import StartAttempt, claim_from_queue, claim_own, run_tasks
from raincheck.stores.sqlite import SqliteStore

CALLERS = 64


VARIANTS: dict[str, tuple[str, StartAttempt]] = {
    "throughput": ("each caller begins its own task", claim_own),
    "throughput, queue": ("each caller claims the next task from the queue", claim_from_queue),
}


async def measure(folder: Path, *, tasks: int, rounds: int, progress: Progress) -> list[Figure]:
    return [await _measure(folder, name, tasks=tasks, rounds=rounds, progress=progress) for name in VARIANTS]


async def _measure(folder: Path, name: str, *, tasks: int, rounds: int, progress: Progress) -> Figure:
    description, start_attempt = VARIANTS[name]
    slug = name.replace(", ", "-")
    progress.stage(f"{name}: recording what {tasks:,} tasks write")
    recording = StatementRecorder()
    await _seconds(SqliteStore(folder / f"{slug}-recorded.db", connect=recording.connect), tasks, start_attempt)
    statements = recording.statements()

    numbers = count()

    async def ours() -> float:
        return tasks / await _seconds(SqliteStore(folder / f"{slug}-ours-{next(numbers)}.db"), tasks, start_attempt)

    async def bare() -> float:
        return tasks / replay(statements, folder / f"{slug}-bare-{next(numbers)}.db")

    progress.stage(f"{name}: {rounds} rounds of {tasks:,} tasks by {CALLERS} callers, and by the bare driver")
    pair = await in_turns(rounds, ours, bare, progress)
    what = (
        f"create, begin, complete of {tasks} tasks by {CALLERS} callers ({description}), "
        f"against sqlite3 writing the same rows"
    )
    return Figure(name, what, "tasks/s", pair.measured, pair.against, Bound("at least", 0.5))


async def _seconds(store: SqliteStore, tasks: int, start_attempt: StartAttempt) -> float:
    await store.open()
    try:
        started_at = perf_counter()
        await run_tasks(store, tasks, CALLERS, start_attempt=start_attempt)
        return perf_counter() - started_at
    finally:
        await store.close()
