"""Measuring: all servers are up at once and asked in turns, so that whatever else the machine does falls on all."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.figure import Bound, Figure
from bench.progress import Progress
from bench.wire.orders import Operation, Order, Told
from bench.wire.peers import peers, redis
from bench.wire.servers import SDK, Running, Server, own_servers, plain_servers, running

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "postgres"))
from postgres_serving import PostgresServer

WORKERS = (1, 3)
POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB", "autovacuum": "on"}
"""What a database has that is used in earnest: the one for tests is smaller, and is never tidied up."""

OPERATIONS: Mapping[int, Sequence[Operation]] = {
    16: ("create", "get", "get working", "cancel", "update", "result", "all done"),
    1: ("create", "get", "result"),
    64: ("create", "get"),
}
"""By how many callers at once."""

_ONLY_2026: frozenset[Operation] = frozenset({"update"})

AIMS: Mapping[tuple[str, Operation, int], float] = {
    ("SQLite FULL", "create", 16): 0.60,
    ("SQLite FULL", "get", 16): 1.0,
    ("SQLite FULL", "all done", 16): 0.50,
    ("SQLite FULL", "result", 1): 0.33,
    ("PostgreSQL, 1 w", "create", 16): 0.45,
    ("PostgreSQL, 1 w", "get", 16): 0.7,
    ("PostgreSQL, 1 w", "all done", 16): 0.35,
    ("PostgreSQL, 1 w", "result", 1): 0.25,
}
"""What each should be at least, as a part of the SDK's plain call."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float
    at_once: int
    """Tasks that are created and completed in one go."""
    callers: Sequence[int]
    servers: frozenset[str] | None = None
    """Names. None is all of them."""


class Client:
    """The one client, in its own process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def do(self, order: Order) -> Told:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client could not do {order}: see its error above")
        return Told(**json.loads(line))


async def measure(folder: Path, extent: Extent, progress: Progress) -> tuple[list[Figure], list[str]]:
    """The figures; and of each server that is missing, why."""
    async with AsyncExitStack() as stack:
        postgres = await asyncio.to_thread(PostgresServer, fsync=True)
        stack.push_async_callback(asyncio.to_thread, postgres.close)
        await asyncio.to_thread(postgres.start, POSTGRES)
        databases = {count: await asyncio.to_thread(postgres.create_database, f"bench_{count}") for count in WORKERS}
        theirs, missing = peers(await stack.enter_async_context(redis(folder)))
        wanted = [*plain_servers(), *own_servers(folder, databases), *theirs]
        if extent.servers is not None:
            wanted = [server for server in wanted if server.name in extent.servers]
        progress.stage(f"wire: starting {len(wanted)} servers")
        up = [await stack.enter_async_context(running(server)) for server in wanted]
        client = await stack.enter_async_context(_client())
        return await _rounds(client, up, extent, progress), missing


async def _rounds(client: Client, up: Sequence[Running], extent: Extent, progress: Progress) -> list[Figure]:
    rates: dict[tuple[str, Operation, int], list[float]] = {}
    for callers in extent.callers:
        for operation in OPERATIONS[callers]:
            progress.stage(f"wire: {operation}, {callers} at once")
            for number in range(extent.rounds):
                # The plain servers first: those next to them are measured against what was measured just before.
                for one in up:
                    if one.server.has_tasks and operation in _ONLY_2026 and one.server.generation == "2025-11-25":
                        continue
                    told = await client.do(_order(one, operation, callers, extent))
                    rates.setdefault((one.server.name, operation, callers), []).append(told.rate)
                progress.tick(number + 1, extent.rounds)
    servers = {one.server.name: one.server for one in up}
    return [_figure(servers[name], operation, callers, rates) for name, operation, callers in rates if name != SDK]


def _order(one: Running, operation: Operation, callers: int, extent: Extent) -> Order:
    done = "call" if not one.server.has_tasks else operation
    count = extent.at_once if done == "all done" else 1_000_000
    return Order(one.port, one.server.generation, done, callers, extent.seconds, count)


def _figure(
    server: Server, operation: Operation, callers: int, rates: Mapping[tuple[str, Operation, int], Sequence[float]]
) -> Figure:
    done = operation if server.has_tasks else "call"
    against = rates[server.against, operation, callers]
    what = f"{done} by {callers} at once on {server.name}, against the plain call of {server.against}"
    limit = AIMS.get((server.name, operation, callers))
    bound = None if limit is None else Bound("at least", limit)
    return Figure(
        f"{operation} x{callers}, {server.name}", what, "1/s", rates[server.name, operation, callers], against, bound
    )


@asynccontextmanager
async def _client() -> AsyncGenerator[Client]:
    command = (sys.executable, "-m", "bench.wire.client")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
