"""A server in a file, a store that knows how long its calls took, and the command that tells of both."""

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from raincheck import open_store
from raincheck.cli.app import program
from raincheck.core.histogram import DurationHistogram

SERVER = """
from mcp.server.mcpserver import MCPServer

from raincheck import Tasks
from raincheck.testing import FakeClock

clock = FakeClock()
mcp = MCPServer("reports")
tasks = Tasks(mcp, "tasks.db", clock=clock)


@tasks.tool
async def crunch(seconds: float) -> None:
    clock.advance(seconds)


@tasks.tool(mode="required")
async def publish() -> None: ...


@tasks.tool(mode="forbidden")
async def look_up() -> None: ...
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(program, ["tools", *words])


def told(*words: str) -> dict[str, dict[str, Any]]:
    """What is said of each tool, as JSON."""
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return {tool["name"]: tool for tool in json.loads(done.stdout)}


def write(text: str = SERVER, name: str = "reports.py") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def teach(store: str | None = "tasks.db", namespace: str = "reports", **seconds: list[float]) -> None:
    """Let a store know how long the calls of tools took."""

    async def learn() -> None:
        async with open_store(store) as opened:
            await opened.merge_durations(namespace, {tool: sketch_of(taken) for tool, taken in seconds.items()})

    asyncio.run(learn())


def sketch_of(taken: list[float]) -> DurationHistogram:
    sketch = DurationHistogram()
    for seconds in taken:
        sketch = sketch.with_duration(seconds)
    return sketch
