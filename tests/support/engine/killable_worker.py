"""A worker process that tests kill: `python killable_worker.py STORE LOG [TOOL]`.

With a tool, it submits a task of this tool and kills itself as soon as the task is submitted.

Its tools write a line to the log for each action, so that a test can count the actions of each attempt.
"""

import asyncio
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from raincheck import open_store
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.engine import Engine, Settings, SyncTaskContext, TaskContext, Toolbox, run_until_signal

LEASE = 1.5
SETTINGS = Settings(lease=LEASE, concurrency=8, park_after=0.1, grace=0.3, poll_interval=0.5)
STEPS = ("load", "clean", "count", "draw", "publish")
MANY_RETRIES = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)

toolbox = Toolbox()


def log_line(*words: object) -> None:
    """Write one line in a single write, so that it is never written in part."""
    with Path(os.environ["ACTION_LOG"]).open("a") as log:
        log.write(" ".join(map(str, words)) + "\n")


@toolbox.tool(retry=MANY_RETRIES)
async def five_steps(task: TaskContext, hangs_in: str = "") -> list[str]:
    """Run five steps. The first attempt never leaves the step named by `hangs_in`."""

    async def do(name: str) -> str:
        log_line(task.id, name, task.attempt)
        if name == hangs_in and task.attempt == 1:
            await asyncio.Event().wait()
        await asyncio.sleep(0.03)
        return f"{name} done"

    return [await task.step(name, do, name) for name in STEPS]


@toolbox.tool(retry=MANY_RETRIES)
def five_steps_in_a_thread(task: SyncTaskContext) -> list[str]:
    def do(name: str) -> str:
        log_line(task.id, name, task.attempt)
        time.sleep(0.03)
        return f"{name} done"

    return [task.step(name, do, name) for name in STEPS]


@toolbox.tool(retry=RetryPolicy(attempts=3))
async def poison(task: TaskContext) -> None:
    log_line(task.id, "poison", task.attempt)
    os.kill(os.getpid(), signal.SIGKILL)


@toolbox.tool
async def ask_first(number: int, task: TaskContext) -> int:
    log_line(task.id, "asks", task.attempt)
    reply = await task.elicit("Go on?", {"type": "object"})
    await task.step("answered", log_line, task.id, "answered", number)
    return number if reply.ok else -1


@toolbox.tool
async def wait_for_ever(task: TaskContext) -> None:
    log_line(task.id, "began", task.attempt)
    try:
        await asyncio.Event().wait()
    finally:
        log_line(task.id, "stopped", task.attempt)


@toolbox.tool
async def block_the_loop(seconds: float, task: TaskContext) -> int:
    log_line(task.id, "blocks", task.attempt)
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point
    return task.attempt


@toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
async def never_twice(task: TaskContext) -> None:
    log_line(task.id, "began", task.attempt)


async def main(store_name: str, tool: str | None = None) -> None:
    async with open_store(store_name) as store:
        engine = Engine(store, toolbox, settings=SETTINGS)
        if tool is None:
            await run_until_signal(engine)
            return
        async with engine:
            await engine.submit(tool)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    os.environ["ACTION_LOG"] = sys.argv[2]
    asyncio.run(main(sys.argv[1], *sys.argv[3:]))
