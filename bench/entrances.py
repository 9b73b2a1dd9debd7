"""Each way to start a server, with the same tools on the same store, against `uvicorn.run`.

The other sections run their applications in an HTTP server of the bench. This one starts servers as users do, so it
shows problems in the sockets or the HTTP server that `raincheck serve` sets up.
"""

import asyncio
import gc
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figure import Bound, Figure
from bench.processes import free_port, started, until_open
from bench.progress import Progress
from bench.wire.callers import Callers
from bench.wire.connection import Channel, LineConnection, connected
from bench.wire.operations import OPERATIONS
from bench.wire.orders import Operation, Order
from bench.wire.requests import CreatedTask, LineRequests, Requests

UVICORN, MCP, HTTP, STDIO, UNIX = "uvicorn.run", "mcp.run", "serve --http", "serve --stdio", "serve --unix"
NAMES = (UVICORN, MCP, HTTP, STDIO, UNIX)
MEASURED: Mapping[str, Operation] = {"poll": "get", "call": "call", "create": "create"}
CALLERS = 16
BOUNDS = {(HTTP, "poll latency"): Bound("at most", 1.3)}

_SERVER = "bench.entrance_server"
_SERVE = (str(Path(sys.executable).with_name("raincheck")), "serve", f"{_SERVER}:tasks")
_OVER_HTTP: Mapping[str, Callable[[str], Sequence[str]]] = {
    UVICORN: lambda port: (sys.executable, "-m", _SERVER, "uvicorn", port),
    MCP: lambda port: (sys.executable, "-m", _SERVER, "mcp", port),
    HTTP: lambda port: (*_SERVE, "--json", "--http", port),
}


@dataclass(frozen=True, slots=True)
class Entrance:
    """A server that is up, with a channel for each caller."""

    name: str
    requests: Requests
    channels: Sequence[Channel]
    finished: list[CreatedTask] = field(default_factory=list[CreatedTask])
    """Tasks to poll."""

    async def rate(self, operation: Operation, callers: int, seconds: float) -> float:
        """Return the requests per second of this many callers, each of which sends one request after the other."""
        order = Order(self.requests.port, self.requests.generation, operation, callers, seconds, 1_000_000)
        active = Callers(self.requests, self.channels[:callers], self.finished)
        return (await OPERATIONS[operation](active, order)).rate


async def measure(*, rounds: int, seconds: float, progress: Progress) -> list[Figure]:
    progress.stage(f"entrances: starting {len(NAMES)} servers")
    figures: list[Figure] = []
    async with AsyncExitStack() as stack:
        # Not in the folder of the run: the path of a Unix socket must be short.
        folder = stack.enter_context(TemporaryDirectory(prefix="bench-"))
        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(stack.enter_async_context(opened(name, Path(folder)))) for name in NAMES]
        entrances = [start.result() for start in starts]
        # This process is the client. Freeze its objects, so that they are not collected again during a round.
        gc.collect()
        gc.freeze()
        for entrance in entrances:
            for operation in MEASURED.values():
                await entrance.rate(operation, CALLERS, seconds)
        for callers in (1, CALLERS):
            for name, operation in MEASURED.items():
                progress.stage(f"entrances: {name}, {callers} at once")
                rates: dict[str, list[float]] = {entrance.name: [] for entrance in entrances}
                for number in range(rounds):
                    for entrance in entrances:
                        rates[entrance.name].append(await entrance.rate(operation, callers, seconds))
                    progress.tick(number + 1, rounds)
                figures += figures_of(name, callers, rates)
    return figures


def figures_of(name: str, callers: int, rates: Mapping[str, Sequence[float]]) -> list[Figure]:
    """Return the latency that one caller sees, or the throughput of several."""
    if callers == 1:
        figure, unit, what = f"{name} latency", "ms", f"a {name} by one caller"
        found = {entrance: [1_000 / rate for rate in rounds] for entrance, rounds in rates.items()}
    else:
        figure, unit, what, found = f"{name} throughput", "1/s", f"{name}s by {callers} callers at once", rates
    return [
        Figure(
            figure,
            f"{what} through {entrance}, against {UVICORN}",
            unit,
            values,
            found[UVICORN],
            BOUNDS.get((entrance, figure)),
            entrance,
        )
        for entrance, values in found.items()
    ]


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncGenerator[Entrance]:
    """Start a server as users do, until the end of the context."""
    async with AsyncExitStack() as stack:
        if name == STDIO:
            # A host starts a server only for itself: all callers share its streams.
            channels: Sequence[Channel] = [await stack.enter_async_context(_child_on_stdio())] * CALLERS
            yield Entrance(name, LineRequests(), channels)
        elif name == UNIX:
            path = str(folder / "server.sock")
            await stack.enter_async_context(started((*_SERVE, "--json", "--unix", path)))
            channels = [await stack.enter_async_context(_connected_unix(path)) for _ in range(CALLERS)]
            yield Entrance(name, LineRequests(), channels)
        else:
            port = free_port()
            await stack.enter_async_context(started(_OVER_HTTP[name](str(port))))
            await until_open(port)
            channels = [await stack.enter_async_context(connected(port)) for _ in range(CALLERS)]
            yield Entrance(name, Requests(port, "2026-07-28"), channels)


@asynccontextmanager
async def _child_on_stdio() -> AsyncGenerator[LineConnection]:
    process = await create_subprocess_exec(*_SERVE, "--stdio", stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    line = LineConnection(process.stdout, process.stdin)
    try:
        yield line
    finally:
        line.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def _connected_unix(path: str) -> AsyncGenerator[LineConnection]:
    line = LineConnection(*await asyncio.open_unix_connection(path))
    try:
        yield line
    finally:
        line.close()
