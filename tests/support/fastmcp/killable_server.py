"""A FastMCP server that tests kill and restart: `killable_server.py PORT STORE LOG`."""

# pyright: reportUnusedFunction=false
# (Decorators keep the tools; nothing calls them by name.)

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from fastmcp import Context, FastMCP
from raincheck import RetryPolicy, Settings, TaskContext
from raincheck.fastmcp import Tasks

SETTINGS = Settings(lease=1.0, park_after=0.05, grace=0.2, poll_interval=0.2)
RETRY_OFTEN = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)
STEPS = ("load", "count", "write")


def build(store: str, log: Path) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("killable")
    tasks = Tasks(mcp, store, settings=SETTINGS)

    def write_log(*words: object) -> None:
        with log.open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    @tasks.tool(retry=RETRY_OFTEN)
    async def work(ms: int, task: TaskContext) -> list[str]:
        async def do(name: str) -> str:
            write_log(task.id, name)
            await asyncio.sleep(ms / 1_000)
            return f"{name} done"

        return [await task.step(name, do, name) for name in STEPS]

    @mcp.tool
    async def ask(ctx: Context) -> str:
        first = await ctx.elicit("Sure?", bool)
        write_log(ctx.request_id, "answered")
        second = await ctx.elicit("Really?", bool)
        return f"{first.action} {second.action}"

    tasks.enable("ask", retry=RETRY_OFTEN)
    return mcp


if __name__ == "__main__":
    build(sys.argv[2], Path(sys.argv[3])).run("http", port=int(sys.argv[1]), show_banner=False, log_level="ERROR")
