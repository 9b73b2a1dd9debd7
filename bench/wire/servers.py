"""The servers that are compared: how each is started, and what it speaks."""

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.serving import started
from bench.wire.requests import Generation

OURS = (sys.executable, "-m", "bench.wire.server")
SDK = "mcp 2.x"
WORKERS = (0, 1, 3)
"""How many processes do the work beside a server on a database. Where there are none, it works itself."""

PLAIN_2025, PLAIN_MCP1 = f"{SDK}, 2025", "mcp 1.x"


@dataclass(frozen=True, slots=True)
class Server:
    """One that is measured."""

    name: str
    command: Sequence[str]
    generation: Generation = "2026-07-28"
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    workers: int = 0
    """Processes that do the work beside it."""
    has_tasks: bool = True
    database: str | None = None
    """The URL of the one that it uses, if it does."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up."""

    server: Server
    port: int
    pid: int


@asynccontextmanager
async def running(server: Server) -> AsyncGenerator[Running]:
    """Start it, with its workers."""
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(started(server.command, server.variables))
        for _ in range(server.workers):
            await stack.enter_async_context(started((*OURS, "work", server.command[-1])))
        yield Running(server, int(process.said), process.pid)


def plain_servers() -> list[Server]:
    """Those without tasks: how fast HTTP is, and the SDK."""
    return [
        Server("floor", (*OURS, "floor"), has_tasks=False),
        Server(SDK, (*OURS, "sdk"), has_tasks=False),
        Server(PLAIN_2025, (*OURS, "sdk"), generation="2025-11-25", has_tasks=False),
    ]


def own_servers(folder: Path, databases: Mapping[int, str]) -> list[Server]:
    """Ours, on files in the folder and on databases, one for each number of workers."""
    files = {
        "memory": "memory:",
        "SQLite FULL": f"sqlite:///{folder / 'full.db'}",
        "SQLite NORMAL": f"sqlite:///{folder / 'normal.db'}?synchronous=NORMAL",
    }
    found = [Server(name, (*OURS, "serve", store)) for name, store in files.items()]
    for workers, url in databases.items():
        name, does = (f"PostgreSQL, {workers} w", "take") if workers else ("PostgreSQL", "serve")
        found.append(Server(name, (*OURS, does, url), workers=workers, database=url))
    full = f"sqlite:///{folder / 'full-2025.db'}"
    found.append(Server("SQLite FULL, 2025", (*OURS, "serve", full), "2025-11-25"))
    return found
