"""A server that runs no tasks itself, or a worker, in a separate process:

    python chaos_process.py serve PORT STORE EVENT_LOG
    python chaos_process.py work STORE EVENT_LOG

Its tools append a line to the event log for everything they do, before it counts as done.
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
MANY_RETRIES = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)


class Sure(BaseModel):
    """The question to the user."""

    sure: bool


def build(store: str, event_log: str, *, works: bool) -> tuple[MCPServer, Tasks]:
    mcp = MCPServer("chaos", log_level="WARNING")
    tasks = Tasks(mcp, store, settings=SETTINGS, works=works)
    log_event = EventLog(event_log)

    @tasks.tool(inline_for=0, retry=MANY_RETRIES)
    async def three_steps(number: int, ms: int, task: TaskContext) -> list[str]:
        async def do(name: str) -> str:
            log_event("step", task.id, name, task.attempt, os.getpid())
            await asyncio.sleep(ms / 1_000)
            return f"{name} {number}"

        return [await task.step(name, do, name) for name in STEPS]

    @tasks.tool(inline_for=0)
    async def ask_and_wait(task: TaskContext) -> None:
        reply = await task.elicit("Sure?", Sure)
        log_event("answered", task.id, reply.action)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log_event("cancelled", task.id)
            raise

    return mcp, tasks


def main() -> None:
    mode, *arguments = sys.argv[1:]
    if mode == "serve":
        port, store, event_log = arguments
        mcp, _ = build(store, event_log, works=False)
        mcp.run("streamable-http", port=int(port))
    else:
        store, event_log = arguments
        _, tasks = build(store, event_log, works=True)
        asyncio.run(tasks.run_until_signal())


if __name__ == "__main__":
    main()
