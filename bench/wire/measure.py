"""Measure everything about servers."""

from dataclasses import dataclass
from pathlib import Path

from bench.figure import Figure
from bench.progress import Progress
from bench.wire import delays, rates, startup, stored_tasks
from bench.wire.client_process import client
from bench.wire.server_group import server_group
from bench.wire.servers import SDK

STARTED = frozenset({SDK, "memory", "SQLite FULL", "FastMCP 4, memory", "mcp 1.x"})
"""Servers whose start is measured: they need nothing but a file."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rates: rates.Extent
    known: delays.Extent
    growing: stored_tasks.Extent | None
    """None skips the measurement."""
    starts: int
    """The number of measured starts. 0 skips the measurement."""
    servers: frozenset[str] | None = None
    """None means all servers."""


FULL = Extent(rates.FULL, delays.FULL, stored_tasks.FULL, starts=2)
QUICK = Extent(
    rates.QUICK,
    delays.QUICK,
    growing=None,
    starts=0,
    servers=frozenset(
        {"floor", "memory", "SQLite FULL", "PostgreSQL", "FastMCP 4, memory", "mcp 1.x", "mcp 1.x tasks"}
    ),
)


async def measure(folder: Path, extent: Extent, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    names = extent.servers
    async with server_group(folder / "up", names and names | {SDK}, progress) as up:
        async with client() as asking:
            figures += await rates.measure(asking, up, extent.rates, progress)
        figures += await delays.measure(up, extent.known, progress)
        servers = [running.server for running in up if running.server.name in STARTED]
    if extent.growing is not None:
        grown = frozenset(stored_tasks.MANY) if names is None else names & stored_tasks.MANY.keys()
        async with (
            server_group(folder / "few", grown, progress) as few,
            server_group(folder / "many", grown, progress) as many,
            client() as asking,
        ):
            figures += await stored_tasks.measure(few, many, extent.growing, progress, asking)
    if extent.starts:
        figures += await startup.measure(servers, rounds=extent.starts, progress=progress)
    return figures + await startup.measure_import(rounds=extent.starts + 1, progress=progress)
