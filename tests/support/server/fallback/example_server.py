"""A server for callers without tasks in a separate process, which tests call and kill.

    python example_server.py [--port N | --transport stdio | --unix PATH] [--store URL] [--wait SECONDS] [--diary FILE]

Its tools write a line to the diary for every step, so that a test can count the steps.
"""

# pyright: reportUnusedFunction=false

import argparse
import asyncio
import sys
from pathlib import Path

# A script can import only from its own folder.
sys.path.insert(0, str(Path(__file__).parents[4]))

from mcp.server.mcpserver import Image, MCPServer
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from raincheck import TaskContext, Tasks, ToolError
from tests.support.server.killable_server import SETTINGS, STUBBORN, Sure

PIXEL = b"\x89PNG\r\n"
STEPS = ("load", "clean", "count")


class Page(BaseModel):
    """A part of a report, which may have parts itself."""

    title: str
    pages: list["Page"] = []


class Report(BaseModel):
    """The result of a long call."""

    year: int
    first: Page


def build(store: str, wait: float, diary: Path | None) -> tuple[MCPServer, Tasks]:
    mcp = MCPServer("plain", log_level="WARNING")
    tasks = Tasks(mcp, store, settings=SETTINGS, fallback_wait=wait)

    def write_down(*words: object) -> None:
        """Write one line in a single write, so that it is complete or absent."""
        if diary is not None:
            with diary.open("a") as file:
                file.write(" ".join(map(str, words)) + "\n")

    @tasks.tool(retry=STUBBORN)
    async def build_report(year: int, seconds: float, task: TaskContext) -> Report:
        """Build a report, which takes a while."""

        async def do(name: str) -> None:
            write_down(task.id, name)
            await asyncio.sleep(seconds / len(STEPS))

        for number, name in enumerate(STEPS, start=1):
            await task.step(name, do, name)
            await task.progress(number, len(STEPS), name)
        return Report(year=year, first=Page(title="one", pages=[Page(title="two")]))

    @tasks.tool()
    async def publish(task: TaskContext) -> str:
        """Publish the report, if the user is sure."""
        reply = await task.elicit("Publish it?", Sure)
        sure = reply.value is not None and reply.value.sure
        return "published" if sure else f"not published: {reply.action}"

    @tasks.tool()
    async def draw(seconds: float) -> Image:
        """Draw a picture, which has no schema."""
        await asyncio.sleep(seconds)
        return Image(data=PIXEL, format="png")

    @tasks.tool()
    async def refuse(seconds: float) -> Report:
        """Refuse, after a while."""
        await asyncio.sleep(seconds)
        raise ToolError("no paper left")

    @tasks.tool()
    async def break_down(seconds: float) -> Report:
        """Break down, after a while."""
        await asyncio.sleep(seconds)
        raise MCPError(-32042, "go there first")

    return mcp, tasks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--transport", choices=["http", "stdio"], default="http")
    parser.add_argument("--unix")
    parser.add_argument("--store", default="memory:")
    parser.add_argument("--wait", type=float, default=0.5)
    parser.add_argument("--diary", type=Path)
    options = parser.parse_args()
    mcp, tasks = build(options.store, options.wait, options.diary)
    if options.unix is not None:
        tasks.run_unix(options.unix)
    elif options.transport == "stdio":
        mcp.run("stdio")
    else:
        mcp.run("streamable-http", port=options.port)


if __name__ == "__main__":
    main()
