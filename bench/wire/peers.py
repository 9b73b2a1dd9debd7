"""The servers of others, each in an environment of its own, and what they need."""

import asyncio
import shutil
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.serving import started
from bench.wire.servers import PLAIN_MCP1, Server

_ROOT = Path(__file__).parents[2]
_ENVIRONMENTS = _ROOT / ".peers"
_PROGRAMS = _ROOT / "tests" / "peers"


def peers(redis: int | None) -> tuple[list[Server], list[str]]:
    """Those that can be started here; and of each that can't, why not."""
    found: list[Server] = []
    missing: list[str] = []
    if _is_there("fastmcp4"):
        command = _command("fastmcp4")
        found.append(Server("FastMCP 4, memory", command, variables={"DOCKET": "memory://"}))
        if redis is None:
            missing.append("FastMCP 4 on Redis: no redis-server on the PATH, and .peers/redis has none")
        else:
            url = f"redis://127.0.0.1:{redis}"
            found.append(Server("FastMCP 4, Redis", command, variables={"DOCKET": url}))
    else:
        missing.append("FastMCP 4: no environment .peers/fastmcp4 (scripts/setup makes it)")
    if _is_there("mcp1"):
        command = _command("mcp1")
        found.append(Server(PLAIN_MCP1, command, generation="2025-11-25", has_tasks=False))
        found.append(Server("mcp 1.x tasks", command, PLAIN_MCP1, "2025-11-25"))
    else:
        missing.append("mcp 1.x: no environment .peers/mcp1 (scripts/setup makes it)")
    return found, missing


def _is_there(name: str) -> bool:
    # Written when all is installed.
    return (_ENVIRONMENTS / name / ".fits").exists()


def _command(name: str) -> tuple[str, ...]:
    return (str(_ENVIRONMENTS / name / "bin" / "python"), str(_PROGRAMS / f"{name}_server.py"), "--http")


@asynccontextmanager
async def redis(folder: Path) -> AsyncGenerator[int | None]:
    """The port of a Redis that keeps what it has in a file, synced every second; if there is one to start."""
    program = shutil.which("redis-server") or shutil.which("redis-server", path=_ENVIRONMENTS / "redis" / "bin")
    if program is None:
        yield None
        return
    port = _free_port()
    keeps = ("--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "")
    async with started((program, "--port", str(port), "--bind", "127.0.0.1", *keeps)):
        await _until_open(port)
        yield port


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


async def _until_open(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
