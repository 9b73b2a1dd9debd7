"""A worker in a process of its own, which tests kill: `python killable_worker.py STORE DIARY [TOOL]`.

With a tool, it asks for a task of it and is gone as soon as it has one.

Its tools write a line to the diary for whatever they do, so that a test can count what was done, and by which attempt.
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
STUBBORN = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)

toolbox = Toolbox()


def write_down(*words: object) -> None:
    """One line, in one write, so that it is there whole or not at all."""
    with Path(os.environ["DIARY"]).open("a") as diary:
        diary.write(" ".join(map(str, words)) + "\n")


@toolbox.tool(retry=STUBBORN)
async def five_steps(task: TaskContext, hangs_in: str = "") -> list[str]:
    """The first attempt never leaves the step that it hangs in."""

    async def do(name: str) -> str:
        write_down(task.id, name, task.attempt)
        if name == hangs_in and task.attempt == 1:
            await asyncio.Event().wait()
        await asyncio.sleep(0.03)
        return f"{name} done"

    return [await task.step(name, do, name) for name in STEPS]


@toolbox.tool(retry=STUBBORN)
def five_steps_in_a_thread(task: SyncTaskContext) -> list[str]:
    def do(name: str) -> str:
        write_down(task.id, name, task.attempt)
        time.sleep(0.03)
        return f"{name} done"

    return [task.step(name, do, name) for name in STEPS]


@toolbox.tool(retry=RetryPolicy(attempts=3))
async def poison(task: TaskContext) -> None:
    write_down(task.id, "poison", task.attempt)
    os.kill(os.getpid(), signal.SIGKILL)


@toolbox.tool
async def ask_first(number: int, task: TaskContext) -> int:
    write_down(task.id, "asks", task.attempt)
    reply = await task.elicit("Go on?", {"type": "object"})
    await task.step("answered", write_down, task.id, "answered", number)
    return number if reply.ok else -1


@toolbox.tool
async def wait_for_ever(task: TaskContext) -> None:
    write_down(task.id, "began", task.attempt)
    try:
        await asyncio.Event().wait()
    finally:
        write_down(task.id, "stopped", task.attempt)


@toolbox.tool
async def block_the_loop(seconds: float, task: TaskContext) -> int:
    write_down(task.id, "blocks", task.attempt)
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point
    return task.attempt


@toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
async def never_twice(task: TaskContext) -> None:
    write_down(task.id, "began", task.attempt)


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
    os.environ["DIARY"] = sys.argv[2]
    asyncio.run(main(sys.argv[1], *sys.argv[3:]))
