"""The servers that are compared: their commands and protocol versions."""

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import started
from bench.wire.requests import Generation

OURS = (sys.executable, "-m", "bench.wire.server")
SDK = "mcp 2.x"
WORKERS = (0, 1, 3)
"""Numbers of worker processes beside a server on a database. With none, the server runs the tasks."""

PLAIN_2025, PLAIN_MCP1 = f"{SDK}, 2025", "mcp 1.x"


@dataclass(frozen=True, slots=True)
class Server:
    """A server to measure."""

    name: str
    command: Sequence[str]
    generation: Generation = "2026-07-28"
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    workers: int = 0
    """The number of worker processes beside it."""
    has_tasks: bool = True
    database: str | None = None
    """The URL of its database, if it uses one."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is running."""

    server: Server
    port: int
    pid: int


@asynccontextmanager
async def running(server: Server) -> AsyncGenerator[RunningServer]:
    """Run a server with its workers until the end of the context."""
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(started(server.command, server.variables))
        for _ in range(server.workers):
            await stack.enter_async_context(started((*OURS, "work", server.command[-1])))
        yield RunningServer(server, int(process.first_line), process.pid)


def plain_servers() -> list[Server]:
    """Return the servers without tasks: plain HTTP, and the SDK."""
    return [
        Server("floor", (*OURS, "floor"), has_tasks=False),
        Server(SDK, (*OURS, "sdk"), has_tasks=False),
        Server(PLAIN_2025, (*OURS, "sdk"), generation="2025-11-25", has_tasks=False),
    ]


def own_servers(folder: Path, databases: Mapping[int, str]) -> list[Server]:
    """Return our servers, on files in the folder and on databases, one for each number of workers."""
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
