"""A server in a file, a store with measured durations, and the command that reports on both."""

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


def run_json(*words: str) -> dict[str, dict[str, Any]]:
    """Run the command with --json, and return the tools by name."""
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return {tool["name"]: tool for tool in json.loads(done.stdout)}


def write(text: str = SERVER, name: str = "reports.py") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def record_durations(store: str | None = "tasks.db", namespace: str = "reports", **seconds: list[float]) -> None:
    """Record the durations of tools' calls in a store."""

    async def record() -> None:
        async with open_store(store) as opened:
            await opened.merge_durations(
                namespace, {tool: histogram_of(durations) for tool, durations in seconds.items()}
            )

    asyncio.run(record())


def histogram_of(durations: list[float]) -> DurationHistogram:
    histogram = DurationHistogram()
    for seconds in durations:
        histogram = histogram.with_duration(seconds)
    return histogram
