"""A server process that tests kill: `python killable_server.py PORT STORE DIARY`.

Its tools write a line to the diary for everything that they do, so that a test can count it.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from raincheck import RetryPolicy, Settings, TaskContext, Tasks

SETTINGS = Settings(lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=0.5)
STEPS = ("load", "clean", "count", "draw", "publish")
STUBBORN = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)


class Sure(BaseModel):
    """The user's answer."""

    sure: bool


def build(store: str, diary: Path) -> MCPServer:
    mcp = MCPServer("killable", log_level="WARNING")
    tasks = Tasks(mcp, store, settings=SETTINGS)

    def write_down(*words: object) -> None:
        """Append one line in one write, so that it is there whole or not at all."""
        with diary.open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    @tasks.tool(retry=STUBBORN)
    async def work(ms: int, task: TaskContext) -> list[str]:
        async def do(name: str) -> str:
            write_down(task.id, name)
            await asyncio.sleep(ms / 1_000)
            return f"{name} done"

        return [await task.step(name, do, name) for name in STEPS]

    @tasks.tool(retry=STUBBORN)
    async def ask(task: TaskContext) -> str:
        first = await task.elicit("Sure?", Sure)
        await task.step("answered", write_down, task.id, "answered")
        second = await task.elicit("Really?", Sure)
        return f"{first.action} {second.action}"

    @tasks.tool
    async def wait(task: TaskContext) -> None:
        write_down(task.id, "waits")
        try:
            await asyncio.Event().wait()
        finally:
            write_down(task.id, "stopped")

    return mcp


def main() -> None:
    port, store, diary = sys.argv[1:]
    build(store, Path(diary)).run("streamable-http", port=int(port))


if __name__ == "__main__":
    main()
