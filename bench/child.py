"""What is measured in a process of its own: `python -m bench.child idle|memory FILE …` prints one line of JSON."""

import asyncio
import gc
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter, process_time

from bench.resident import resident
from bench.work import live
from raincheck.clock import SystemClock
from raincheck.core.policies import Retention
from raincheck.stores.change_feed import ChangeFeed
from raincheck.stores.sqlite import SqliteStore

_CALLERS = 16
_BATCH = 500
_SETTLING = 2.0
"""Seconds after which a store that has worked is at rest: it looks at its file less often, and its log is moved."""

_GONE_AT_ONCE = Retention(keep=timedelta(0))


async def idle(path: Path, tasks: int, seconds: int) -> Mapping[str, float]:
    """The CPU time of a store that has worked, is open, has one listener, and has nothing to do."""
    store = SqliteStore(path)
    await store.open()
    await live(store, tasks, _CALLERS)
    gc.collect()
    with store.listen() as feed:
        await _listen(feed, _SETTLING)
        begun, used = perf_counter(), process_time()
        await _listen(feed, seconds)
        result = {"cpu": process_time() - used, "wall": perf_counter() - begun}
    await store.close()
    return result


async def memory(path: Path, warmup: int, tasks: int) -> Mapping[str, float]:
    """The resident memory after a warm-up, and after many more tasks have come and gone."""
    store = SqliteStore(path)
    await store.open()
    with store.listen() as feed:
        listening = asyncio.create_task(_listen(feed, None))
        await _come_and_go(store, warmup)
        before = _resident()
        await _come_and_go(store, tasks)
        after = _resident()
        await store.close()
        await listening
    return {"before": before, "after": after}


async def _listen(feed: ChangeFeed, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for _ in feed:
                pass


async def _come_and_go(store: SqliteStore, tasks: int) -> None:
    for _ in range(0, tasks, _BATCH):
        await live(store, _BATCH, _CALLERS, _GONE_AT_ONCE)
        pruned = await store.prune(now=SystemClock().now(), limit=_BATCH)
        assert len(pruned) == _BATCH


def _resident() -> float:
    """Bytes of memory that this process has; where the system does not say, the most that it ever had."""
    gc.collect()
    if (found := resident()) is not None:
        return found
    # Not on every system, and only asked for here.
    import resource

    # In KiB on most systems and in bytes on some, which the ratio does not mind.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _main(which: str, path: str, first: str, second: str) -> None:
    measure = {"idle": idle, "memory": memory}[which]
    print(json.dumps(asyncio.run(measure(Path(path), int(first), int(second)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
