"""The time until a new server answers, and the cost of importing raincheck."""

import asyncio
import sys
from collections.abc import Sequence
from time import perf_counter

from bench.figure import Bound, Figure
from bench.progress import Progress
from bench.wire.client_process import client
from bench.wire.orders import Order
from bench.wire.servers import SDK, Server, running

IMPORTED = 60
"""Milliseconds that `import raincheck` may take beyond `import mcp`."""

_IMPORT = """
from time import perf_counter
{before}
started_at = perf_counter()
{measured}
print(perf_counter() - started_at)
"""


async def measure(servers: Sequence[Server], *, rounds: int, progress: Progress) -> list[Figure]:
    """Start each server in each round. The first round is a warm-up, in which files are read from the disk."""
    progress.stage(f"starting: {rounds} times each of {len(servers)} servers")
    seconds: dict[str, list[float]] = {server.name: [] for server in servers}
    async with client() as asking:
        for number in range(rounds + 1):
            for server in servers:
                started_at = perf_counter()
                async with running(server) as one:
                    await asking.do(Order(one.port, server.generation, "call", 1, 10, 1))
                    if number:
                        seconds[server.name].append(perf_counter() - started_at)
            progress.tick(number + 1, rounds + 1)
    what = "from the start of a server's process to its first answer, against the SDK's"
    return [Figure("start", what, "s", found, seconds[SDK], None, name) for name, found in seconds.items()]


async def measure_import(*, rounds: int, progress: Progress) -> list[Figure]:
    """Measure the import of the package, and of what a server needs of it."""
    progress.stage(f"starting: {rounds} times import raincheck")
    return [
        await _imported("import", "import mcp", "import raincheck", rounds, Bound("at most", IMPORTED)),
        await _imported("import Tasks", "import mcp.server.mcpserver", "from raincheck import Tasks", rounds, None),
    ]


async def _imported(name: str, before: str, measured: str, rounds: int, bound: Bound | None) -> Figure:
    script = _IMPORT.format(before=before, measured=measured)
    # The first run reads files from the disk that the others find in memory.
    _, *milliseconds = [1_000 * await _seconds_of(script) for _ in range(rounds + 1)]
    return Figure(name, f"{measured}, beyond {before}", "ms", milliseconds, None, bound)


async def _seconds_of(script: str) -> float:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    return float(output)
