"""A server process on a Unix socket that tests stop: `python example_server.py PATH STORE GRACE`.

Its bodies write what they do to stdout, one line each.
"""

import asyncio
import sys

from mcp.server.mcpserver import MCPServer

from raincheck import Settings, TaskContext, Tasks


def build(store: str, grace: float) -> Tasks:
    mcp = MCPServer("shop", log_level="WARNING")
    tasks = Tasks(mcp, store, settings=Settings(lease=1.0, park_after=0.05, grace=grace, poll_interval=0.5))

    @tasks.tool
    async def wait(task: TaskContext) -> None:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        say(f"{task.id} waits")
        try:
            await asyncio.Event().wait()
        finally:
            say(f"{task.id} stopped")

    return tasks


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    path, store, grace = sys.argv[1:]
    build(store, float(grace)).run_unix(path)
