"""Measure a store in its own process: `python -m bench.resources_child idle|memory FILE …` prints one line of JSON."""

import asyncio
import gc
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter, process_time

from bench.process_memory import resident_bytes
from bench.task_lives import run_tasks
from raincheck.clock import SystemClock
from raincheck.core.policies import Retention
from raincheck.stores.change_feed import ChangeFeed
from raincheck.stores.sqlite import SqliteStore

_CALLERS = 16
_BATCH = 500
_SETTLING_TIME = 2.0
"""Seconds after which an active store is idle: it polls its file less often, and its log is checkpointed."""

_EXPIRES_AT_ONCE = Retention(keep=timedelta(0))


async def idle(path: Path, tasks: int, seconds: int) -> Mapping[str, float]:
    """Measure the CPU time of an open, idle store with one listener, after it has worked."""
    store = SqliteStore(path)
    await store.open()
    await run_tasks(store, tasks, _CALLERS)
    gc.collect()
    with store.listen() as feed:
        await _listen(feed, _SETTLING_TIME)
        started_at, used = perf_counter(), process_time()
        await _listen(feed, seconds)
        result = {"cpu": process_time() - used, "wall": perf_counter() - started_at}
    await store.close()
    return result


async def memory(path: Path, warmup: int, tasks: int) -> Mapping[str, float]:
    """Measure the resident memory after a warm-up, and after many more tasks were created and pruned."""
    store = SqliteStore(path)
    await store.open()
    with store.listen() as feed:
        listening = asyncio.create_task(_listen(feed, None))
        await _create_and_prune(store, warmup)
        before = _resident()
        await _create_and_prune(store, tasks)
        after = _resident()
        await store.close()
        await listening
    return {"before": before, "after": after}


async def _listen(feed: ChangeFeed, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for _ in feed:
                pass


async def _create_and_prune(store: SqliteStore, tasks: int) -> None:
    for _ in range(0, tasks, _BATCH):
        await run_tasks(store, _BATCH, _CALLERS, _EXPIRES_AT_ONCE)
        pruned = await store.prune(now=SystemClock().now(), limit=_BATCH)
        assert len(pruned) == _BATCH


def _resident() -> float:
    """Return the resident memory of this process in bytes, or its peak where the system does not report it."""
    gc.collect()
    if (found := resident_bytes()) is not None:
        return found
    # Imported here, since not every system has it.
    import resource

    # In KiB on most systems and in bytes on some. The ratio is the same.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _main(which: str, path: str, first: str, second: str) -> None:
    measure = {"idle": idle, "memory": memory}[which]
    print(json.dumps(asyncio.run(measure(Path(path), int(first), int(second)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
