"""A process that puts load on one store, and prints a line per finished task: `load_process.py PATH NAME COUNT`.

Started by tests. It claims any queued task, so it may finish tasks that another process created. It offers to run every
second task at once, and then starts it if nothing is queued.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from raincheck.clock import SystemClock, new_task_id
from raincheck.core.change import NewTask, create
from raincheck.core.commands import Complete, Note
from raincheck.core.owner import Owner
from raincheck.core.policies import Limits, Quota
from raincheck.core.records import Step, Tool
from raincheck.core.values import encode
from raincheck.errors import LeaseLost
from raincheck.stores.base import Store
from raincheck.stores.commit import apply
from raincheck.stores.requests import ClaimRequest
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing.harness import EVERYTHING

CALLERS = 8
TOOL = Tool("hammer")
LEASE = timedelta(seconds=60)
clock = SystemClock()


async def run_task(store: Store, name: str, *, offers: bool) -> None:
    now = clock.now()
    new = NewTask(new_task_id(now), "hammer", Owner.local(), TOOL, encode({"by": name}))
    request = ClaimRequest("hammer", frozenset({TOOL}), name, LEASE, 1)
    created = await store.create(create(new, now, Limits()), quota=Quota(), now=now, claim=request if offers else None)
    for task in (created,) if created.attempt is not None else await store.claim(request, now=now):
        step = Step("work", 0, "", encode(name), task.attempt_number, now)
        try:
            await apply(store, task.id, EVERYTHING, Note(task.attempt_number, steps=(step,)), now=clock.now())
            await apply(store, task.id, EVERYTHING, Complete(task.attempt_number, encode(name)), now=clock.now())
        except LeaseLost:
            continue
        print(task.id, flush=True)  # noqa: T201 - read by the test


async def main(path: Path, name: str, count: int) -> None:
    store = SqliteStore(path)
    await store.open()
    todo = iter(range(count))

    async def caller() -> None:
        for number in todo:
            await run_task(store, name, offers=number % 2 == 0)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
