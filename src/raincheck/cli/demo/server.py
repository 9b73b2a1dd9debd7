"""The server of the demo, as a process: `python -m raincheck.cli.demo.server PORT FOLDER`."""

import asyncio
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from raincheck import TaskContext
from raincheck.server import Tasks

CHAPTER_SECONDS = 0.4
"""Seconds to print a chapter."""

FOLDER = Path(sys.argv[2] if len(sys.argv) > 2 else ".")

mcp = MCPServer("demo", log_level="ERROR")
# Short times keep the demo short: interrupted tasks resume soon, and callers without tasks get an answer soon.
demo_settings = replace(Tasks.DEFAULTS, lease=1.5, poll_interval=0.5)
tasks = Tasks(mcp, FOLDER / "tasks.db", settings=demo_settings, fallback_wait=2.5)


class Binding(BaseModel):
    """The form of the tool's question."""

    leather: bool


@tasks.tool(inline_for=0)
async def print_book(title: str, chapters: int, task: TaskContext, special: bool = False) -> dict[str, str | int]:
    """Print a book, chapter by chapter. For a special edition, ask how to bind it."""
    pages = 0
    for chapter in range(1, chapters + 1):
        await task.progress(chapter - 1, chapters, f"printing chapter {chapter}")
        pages += await task.step(f"chapter {chapter}", print_chapter, title, chapter)
    binding = "paper"
    if special:
        reply = await task.elicit(f"Shall {title!r} be bound in leather?", Binding)
        binding = "leather" if reply.value is not None and reply.value.leather else "paper"
    return {"title": title, "pages": pages, "binding": binding}


async def print_chapter(title: str, chapter: int) -> int:
    await asyncio.sleep(CHAPTER_SECONDS)
    with (FOLDER / "printed.txt").open("a") as printed:
        printed.write(f"{title}: {chapter}\n")
    return 10 * chapter


def end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    mcp.run("streamable-http", port=int(sys.argv[1]))
