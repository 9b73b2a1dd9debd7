"""Park 2,000 tasks with four slots: `python many_parked.py STORE ask|answer` prints the measurements as JSON.

It runs in a separate process, so that its memory use can be measured.
"""

import asyncio
import json
import os
import random
import resource
import signal
import sys
import time
from typing import cast

from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import TaskId
from raincheck.engine import Engine, Settings, TaskContext, Toolbox
from raincheck.stores.base import Store, iterate_tasks
from raincheck.stores.requests import TaskQuery
from raincheck.stores.sqlite import SqliteStore

COUNT = 2_000
WARM_UP = 200
SETTINGS = Settings(concurrency=4, park_after=0.5)

toolbox = Toolbox()
resumed: list[int] = []


@toolbox.tool
async def ask(number: int, task: TaskContext) -> int:
    reply = await task.elicit(f"What is {number}?", {"type": "object"})
    resumed.append(number)
    return cast("dict[str, int]", reply.content)["number"]


@toolbox.tool
async def quick() -> str:
    return "done"


async def submit(engine: Engine, numbers: range) -> None:
    tasks = await asyncio.gather(*(engine.submit("ask", {"number": number}) for number in numbers))
    for task in tasks:
        await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED)


async def measure_quick(engine: Engine) -> list[str]:
    """Run another tool a few times, and return the final phases."""
    phases: list[str] = []
    for _ in range(5):
        task = await engine.submit("quick")
        phases.append(str((await engine.wait(task.id)).task.phase))
    return phases


async def ask_all(store: Store, engine: Engine) -> dict[str, object]:
    await submit(engine, range(WARM_UP))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    await submit(engine, range(WARM_UP, WARM_UP + COUNT))
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counts = await store.count_live(Scope.for_namespace("default"))
    return {
        "counts": {str(phase): count for phase, count in counts.items()},
        "kilobytes_each": (after - before) / COUNT,
        "parked_a_second": COUNT / seconds,
        "other_work": await measure_quick(engine),
    }


async def answer_all(store: Store, engine: Engine) -> dict[str, object]:
    """Answer all tasks in random order, and check that each resumes once and with its own answer."""
    query = TaskQuery(Scope.for_namespace("default"), tool="ask")
    tasks = [task async for task in iterate_tasks(store, query, now=SystemClock().now())]
    random.shuffle(tasks)
    numbers = {task.id: number for number, task in enumerate(tasks)}
    await asyncio.gather(*(answer(engine, task.id, numbers[task.id]) for task in tasks))
    ended = [await engine.wait(task.id) for task in tasks]
    return {
        "resumed_once": len(resumed) == len(set(resumed)) == len(tasks),
        "attempts": sorted({view.task.attempt_number for view in ended}),
        "got_their_own": all(view.outcome == str(numbers[view.task.id]).encode() for view in ended),
        "count": len(ended),
    }


async def answer(engine: Engine, task_id: TaskId, number: int) -> None:
    await engine.answer(task_id, {"elicit-0": {"action": "accept", "content": {"number": number}}})


async def main(store_name: str, action: str) -> None:
    store = SqliteStore(store_name, synchronous="NORMAL")
    await store.open()
    async with Engine(store, toolbox, settings=SETTINGS) as engine:
        do = {"ask": ask_all, "answer": answer_all}[action]
        print(json.dumps(await do(store, engine)), flush=True)  # noqa: T201 - the output of this program
        if action == "ask":
            # Killed, as in a crash.
            os.kill(os.getpid(), signal.SIGKILL)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
