"""Attempts that Procrastinate dispatches, compared with bare Procrastinate jobs, and the statements of idle workers.

Both sides have one worker process, the same database server, and bodies that only report when they started. The bare
side does what the documentation of Procrastinate shows: a connector, a task, `run_worker_async`.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from time import monotonic
from typing import NamedTuple

from bench.dispatch_workers import BARE, OURS, bare_app, toolbox
from bench.figure import Bound, Figure
from bench.postgres import PostgresServer
from bench.progress import Progress
from bench.rounds import in_turns
from raincheck import Engine, open_store

BATCH = 200
"""Tasks of a round that are queued at once. The time is measured until the last has ended."""

SINGLE = 25
"""Tasks of a round that are queued one after the other, each when the previous one has ended."""

IDLE_WORKERS = 5
IDLE_BOUND = 10.0
"""Statements per second of all idle workers together."""


class Side(NamedTuple):
    """One side: how it queues tasks, when its worker starts them, and how many are unfinished."""

    queue: Callable[[int], Awaitable[object]]
    starts: "asyncio.Queue[float]"
    count_unfinished: Callable[[], Awaitable[int]]
    worker: asyncio.subprocess.Process


async def measure(*, rounds: int, idle_seconds: float, progress: Progress) -> list[Figure]:
    progress.stage(f"dispatch: {BATCH} tasks at once, and {SINGLE} one by one, next to bare Procrastinate")
    server = await asyncio.to_thread(PostgresServer, fsync=True)
    try:
        await asyncio.to_thread(server.start)
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(_side(OURS, server))
            bare = await stack.enter_async_context(_side(BARE, server))
            for side in (ours, bare):
                await _starts(side)
                await _drains(side)
            starts = await in_turns(rounds, lambda: _starts(ours), lambda: _starts(bare), progress)
            drains = await in_turns(rounds, lambda: _drains(ours), lambda: _drains(bare), progress)
        idle: list[float] = []
        if idle_seconds:
            progress.stage(f"idle: the statements of {IDLE_WORKERS} workers in {idle_seconds:.0f} s without work")
            idle.append(await _idle(server, idle_seconds))
    finally:
        await asyncio.to_thread(server.close)
    begin = "from queueing a task to the beginning of its body, against a bare Procrastinate job's (median)"
    done = "tasks that are completed in a second, against bare Procrastinate jobs, with the same worker"
    rest = f"statements a second of {IDLE_WORKERS} idle workers, against {IDLE_BOUND:g}"
    return [
        Figure("start (PostgreSQL)", begin, "ms", *starts, Bound("at most", 2)),
        Figure("done (PostgreSQL)", done, "1/s", *drains, Bound("at least", 0.6)),
        *(Figure("idle (PostgreSQL)", rest, "1/s", [one], [IDLE_BOUND], Bound("at most", 1)) for one in idle),
    ]


async def _starts(side: Side) -> float:
    """Return the median milliseconds from queueing a task to its start, one task after the other."""
    took: list[float] = []
    for _ in range(SINGLE):
        queued_at = monotonic()
        await side.queue(1)
        took.append(await side.starts.get() - queued_at)
        await _until_done(side)
    return 1_000 * median(took)


async def _drains(side: Side) -> float:
    """Return the tasks per second that the worker completes. It is stopped while they are queued."""
    side.worker.send_signal(signal.SIGSTOP)
    await side.queue(BATCH)
    started_at = monotonic()
    side.worker.send_signal(signal.SIGCONT)
    for _ in range(BATCH):
        await side.starts.get()
    await _until_done(side)
    return BATCH / (monotonic() - started_at)


async def _until_done(side: Side) -> None:
    while await side.count_unfinished():  # noqa: ASYNC110 - another process, so this polls
        await asyncio.sleep(0.002)


@asynccontextmanager
async def _side(which: str, server: PostgresServer) -> AsyncGenerator[Side]:
    url = await asyncio.to_thread(server.create_database, which)
    starts: asyncio.Queue[float] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        if which == OURS:
            store = await stack.enter_async_context(open_store(url))
            engine = Engine(store, toolbox(lambda: None), works=False)

            async def queue(count: int) -> None:
                for _ in range(count):
                    await engine.submit("work")

            count_query = "SELECT count(*) FROM raincheck.tasks WHERE finished_at IS NULL"
        else:
            app = bare_app(url, lambda: None)
            await stack.enter_async_context(app.open_async())
            await app.schema_manager.apply_schema_async()

            async def queue(count: int) -> None:
                for _ in range(count):
                    await app.configure_task("work").defer_async()

            count_query = "SELECT count(*) FROM procrastinate_jobs"

        async def count_unfinished() -> int:
            ((count,),) = await asyncio.to_thread(server.run, count_query, database=which)
            return count

        worker = await _start_worker(which, url)
        stack.push_async_callback(_end, worker)
        listening = asyncio.create_task(_listen(worker, starts))
        stack.callback(listening.cancel)
        yield Side(queue, starts, count_unfinished, worker)


async def _start_worker(which: str, url: str) -> asyncio.subprocess.Process:
    arguments = ("-m", "bench.dispatch_workers", which, url)
    worker = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    if await worker.stdout.readline() != b"ready\n":
        raise RuntimeError(f"the worker of {which!r} did not start: see its error above")
    return worker


async def _end(worker: asyncio.subprocess.Process) -> None:
    worker.terminate()
    await worker.wait()


async def _listen(worker: asyncio.subprocess.Process, starts: "asyncio.Queue[float]") -> None:
    assert worker.stdout is not None
    async for line in worker.stdout:
        starts.put_nowait(float(line))


async def _idle(server: PostgresServer, seconds: float) -> float:
    """Statements a second, as PostgreSQL's own log has them."""
    url = await asyncio.to_thread(server.create_database, "idle")
    workers = [await _start_worker(OURS, url) for _ in range(IDLE_WORKERS)]
    try:
        # Skip the statements of the start.
        await asyncio.sleep(5)
        return await _count(server, seconds)
    finally:
        for worker in workers:
            await _end(worker)


async def _count(server: PostgresServer, seconds: float) -> float:
    await asyncio.to_thread(server.run, "ALTER SYSTEM SET log_statement = 'all'")
    await asyncio.to_thread(server.run, "SELECT pg_reload_conf()")
    await asyncio.sleep(1)
    before = _statements(server)
    await asyncio.sleep(seconds)
    return (_statements(server) - before) / seconds


def _statements(server: PostgresServer) -> int:
    log = server.log.read_text(encoding="utf-8", errors="replace")
    return sum("LOG:  statement: " in line or "LOG:  execute " in line for line in log.splitlines())
