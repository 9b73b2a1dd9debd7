"""A server with tools of every kind. Tests run it in their own process, or start it as a process and kill it:

    python example_server.py [--port N] [--store URL] [--diary FILE]

Without a port it serves on its standard streams. Its tools write what they do to the diary.
"""

# pyright: reportUnusedFunction=false

import argparse
import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from raincheck import RetryPolicy, Settings, TaskContext, Tasks, ToolError

QUICK = Settings(lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=0.5)
STUBBORN = RetryPolicy(attempts=50, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)

FALLBACK_WAIT = 0.3


class Sure(BaseModel):
    """The form of the questions."""

    sure: bool


class Gate:
    """Blocks a tool until the test opens it, in the same process."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.open = asyncio.Event()
        self.stopped = asyncio.Event()
        self.passed = 0

    async def pass_through(self) -> None:
        self.started.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        self.passed += 1


class ExampleServer:
    """The server, with its tools."""

    def __init__(self, store: str = "memory:", diary: Path | None = None, **options: Any) -> None:
        self.gate = Gate()
        self.diary = diary
        self.mcp = MCPServer("calls", log_level="WARNING")
        self.tasks = Tasks(self.mcp, store, settings=QUICK, fallback_wait=FALLBACK_WAIT, **options)
        self._add_workers()
        self._add_askers()
        self._add_failures()

    def write_down(self, *words: object) -> None:
        """Append one line in one write, so that it is complete or absent."""
        if self.diary is not None:
            with self.diary.open("a") as file:
                file.write(" ".join(map(str, words)) + "\n")

    def _add_workers(self) -> None:
        @self.tasks.tool(inline_for=0, retry=STUBBORN)
        async def add(a: int, b: int) -> int:
            self.write_down("add", a, b)
            return a + b

        @self.tasks.tool(inline_for=30)
        async def add_at_once(a: int, b: int) -> int:
            return a + b

        @self.tasks.tool(mode="forbidden")
        async def add_without_task(a: int, b: int) -> int:
            return a + b

        @self.tasks.tool(inline_for=0)
        async def pass_gate(task: TaskContext) -> str:
            await task.progress(1, 2, "at the gate")
            await self.gate.pass_through()
            await task.progress(2, 2, "behind it")
            return "through"

        @self.tasks.tool(inline_for=0, retry=STUBBORN)
        async def work(steps: int, ms: int, task: TaskContext) -> list[str]:
            async def do(name: str) -> str:
                self.write_down(task.id, name)
                await asyncio.sleep(ms / 1_000)
                return name

            return [await task.step(name, do, name) for name in (f"step-{number}" for number in range(steps))]

        @self.tasks.tool(inline_for=0)
        async def wait() -> None:
            await asyncio.Event().wait()

    def _add_askers(self) -> None:
        @self.tasks.tool(inline_for=0, retry=STUBBORN)
        async def confirm(task: TaskContext) -> str:
            first = await task.elicit("Sure?", Sure)
            await task.step("answered", self.write_down, task.id, "answered")
            second = await task.elicit("Really?", Sure)
            return f"{first.action} {second.action}"

        @self.tasks.tool(inline_for=0, retry=STUBBORN)
        async def confirm_both(task: TaskContext) -> str:
            replies = await asyncio.gather(
                task.elicit("Sure?", Sure, name="first"), task.elicit("Sure?", Sure, name="second")
            )
            return " ".join(reply.action for reply in replies)

        @self.tasks.tool(inline_for=0, retry=STUBBORN)
        async def have_written(task: TaskContext) -> str:
            text = await task.sample([{"role": "user", "content": {"type": "text", "text": "A poem"}}], maxTokens=9)
            return str(text)

    def _add_failures(self) -> None:
        @self.tasks.tool(inline_for=0)
        async def refuse() -> int:
            raise ToolError("no paper left")

        @self.tasks.tool(inline_for=0)
        async def break_down() -> int:
            raise MCPError(-32042, "go there first", {"url": "https://example.com"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--store", default="memory:")
    parser.add_argument("--diary", type=Path)
    options = parser.parse_args()
    server = ExampleServer(options.store, options.diary)
    server.write_down("pid", os.getpid())
    mcp = server.mcp
    if options.port is None:
        mcp.run("stdio")
    else:
        mcp.run("streamable-http", port=options.port)


if __name__ == "__main__":
    main()
