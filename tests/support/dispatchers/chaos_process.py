"""A server that leaves the running to others, or one of those others, in a process of its own:

    python chaos_process.py serve PORT STORE DIARY
    python chaos_process.py work STORE DIARY

Its tools write a line to the diary for whatever they do, before it counts as done.
"""

# pyright: reportUnusedFunction=false

import asyncio
import os
import sys
from datetime import timedelta

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from raincheck import RetryPolicy, Settings, TaskContext, Tasks
from raincheck.testing.dispatcher_contract.processes import STEPS, EventLog

SETTINGS = Settings(lease=2, park_after=0.05, grace=0.5, poll_interval=0.5, concurrency=8)
STUBBORN = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)


class Sure(BaseModel):
    """What the user is asked."""

    sure: bool


def build(store: str, diary: str, *, works: bool) -> tuple[MCPServer, Tasks]:
    mcp = MCPServer("chaos", log_level="WARNING")
    tasks = Tasks(mcp, store, settings=SETTINGS, works=works)
    tell = EventLog(diary)

    @tasks.tool(inline_for=0, retry=STUBBORN)
    async def three_steps(number: int, ms: int, task: TaskContext) -> list[str]:
        async def do(name: str) -> str:
            tell("step", task.id, name, task.attempt, os.getpid())
            await asyncio.sleep(ms / 1_000)
            return f"{name} {number}"

        return [await task.step(name, do, name) for name in STEPS]

    @tasks.tool(inline_for=0)
    async def ask_and_wait(task: TaskContext) -> None:
        reply = await task.elicit("Sure?", Sure)
        tell("answered", task.id, reply.action)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            tell("cancelled", task.id)
            raise

    return mcp, tasks


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "serve":
        port, store, diary = arguments
        mcp, _ = build(store, diary, works=False)
        mcp.run("streamable-http", port=int(port))
    else:
        store, diary = arguments
        _, tasks = build(store, diary, works=True)
        asyncio.run(tasks.run_until_signal())


if __name__ == "__main__":
    main()
