"""Everything that is measured of servers."""

from dataclasses import dataclass
from pathlib import Path

from bench.figure import Figure
from bench.progress import Progress
from bench.wire import growing, knowledge, rates, starting
from bench.wire.clients import client
from bench.wire.servers import SDK
from bench.wire.standing import standing

STARTED = frozenset({SDK, "memory", "SQLite FULL", "FastMCP 4, memory", "mcp 1.x"})
"""Those whose start is measured: what they need is there, or is a file."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rates: rates.Extent
    known: knowledge.Extent
    growing: growing.Extent | None
    """None where there is no time for that."""
    starts: int
    """Likewise, if it is 0."""
    servers: frozenset[str] | None = None
    """None is all of them."""


FULL = Extent(rates.FULL, knowledge.FULL, growing.FULL, starts=2)
QUICK = Extent(
    rates.QUICK,
    knowledge.QUICK,
    growing=None,
    starts=0,
    servers=frozenset(
        {"floor", "memory", "SQLite FULL", "PostgreSQL", "FastMCP 4, memory", "mcp 1.x", "mcp 1.x tasks"}
    ),
)


async def measure(folder: Path, extent: Extent, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    names = extent.servers
    async with standing(folder / "up", names and names | {SDK}, progress) as up:
        async with client() as asking:
            figures += await rates.measure(asking, up, extent.rates, progress)
        figures += await knowledge.measure(up, extent.known, progress)
        servers = [one.server for one in up if one.server.name in STARTED]
    if extent.growing is not None:
        grown = frozenset(growing.MANY) if names is None else names & growing.MANY.keys()
        async with (
            standing(folder / "few", grown, progress) as few,
            standing(folder / "many", grown, progress) as many,
            client() as asking,
        ):
            figures += await growing.measure(few, many, extent.growing, progress, asking)
    if extent.starts:
        figures += await starting.measure(servers, rounds=extent.starts, progress=progress)
    return figures + await starting.measure_import(rounds=extent.starts + 1, progress=progress)
