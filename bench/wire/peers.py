"""The servers of other projects, each in its own environment, and what they need."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.processes import free_port, started, until_open
from bench.wire.servers import PLAIN_MCP1, WORKERS, Server, own_servers, plain_servers

_ROOT = Path(__file__).parents[2]
_ENVIRONMENTS = _ROOT / ".peers"
_PROGRAMS = _ROOT / "tests" / "peers"


def peers(redis: int | None) -> tuple[list[Server], list[str]]:
    """Return the servers that can be started here, and a reason for each that can't."""
    servers = _peers(redis)
    missing = [f"{server.name}: {reason}" for server, reason in servers if reason is not None]
    return [server for server, reason in servers if reason is None], missing


def known_names() -> list[str]:
    """Return the names of all servers, whether or not they can be started here."""
    own = own_servers(Path(), dict.fromkeys(WORKERS, ""))
    return [server.name for server in (*plain_servers(), *own, *(server for server, _ in _peers(None)))]


def redis_program() -> str | None:
    return shutil.which("redis-server") or shutil.which("redis-server", path=_ENVIRONMENTS / "redis" / "bin")


def _peers(redis: int | None) -> list[tuple[Server, str | None]]:
    """Return each server with the requirement that is missing, if any."""
    docket, mcp1 = _command("fastmcp4"), _command("mcp1")
    no_redis = "no redis-server on the PATH, and .peers/redis has none" if redis is None else None
    return [
        (Server("FastMCP 4, memory", docket, variables={"DOCKET": "memory://"}), _missing_environment("fastmcp4")),
        (
            Server("FastMCP 4, Redis", docket, variables={"DOCKET": f"redis://127.0.0.1:{redis}"}),
            _missing_environment("fastmcp4") or no_redis,
        ),
        (Server(PLAIN_MCP1, mcp1, generation="2025-11-25", has_tasks=False), _missing_environment("mcp1")),
        (Server("mcp 1.x tasks", mcp1, "2025-11-25"), _missing_environment("mcp1")),
    ]


def _missing_environment(environment: str) -> str | None:
    # The file is written when everything is installed.
    if (_ENVIRONMENTS / environment / ".fits").exists():
        return None
    return f"no environment .peers/{environment} (scripts/setup makes it)"


def _command(name: str) -> tuple[str, ...]:
    return (str(_ENVIRONMENTS / name / "bin" / "python"), str(_PROGRAMS / f"{name}_server.py"), "--http")


@asynccontextmanager
async def redis(folder: Path) -> AsyncGenerator[int | None]:
    """Run a Redis whose append-only file is synced every second, and yield its port. Yield None without Redis."""
    program = redis_program()
    if program is None:
        yield None
        return
    port = free_port()
    options = ("--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "")
    async with started((program, "--port", str(port), "--bind", "127.0.0.1", *options)):
        await until_open(port)
        yield port
