"""Measuring: all servers are up at once and asked in turns, so that whatever else the machine does falls on all."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.progress import Progress
from bench.wire.cell import Cell
from bench.wire.orders import Operation, Order, Told
from bench.wire.peers import peers, redis
from bench.wire.servers import Running, own_servers, plain_servers, running

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "postgres"))
from postgres_serving import PostgresServer

WORKERS = (1, 3)
POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB", "autovacuum": "on"}
"""What a database has that is used in earnest: the one for tests is smaller, and is never tidied up."""

_ONLY_2026: frozenset[Operation] = frozenset({"update"})


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float
    at_once: int
    """Tasks that are created and completed in one go."""
    operations: Mapping[int, Sequence[Operation]]
    """By how many callers at once."""
    servers: frozenset[str] | None = None
    """Names. None is all of them."""


FULL = Extent(
    rounds=3,
    seconds=0.5,
    at_once=1_000,
    operations={
        16: ("create", "get", "get working", "cancel", "update", "result", "all done"),
        1: ("create", "get", "result"),
        64: ("create", "get"),
    },
)
QUICK = Extent(rounds=1, seconds=0.3, at_once=200, operations={16: ("create", "get", "all done"), 1: ("result",)})


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


async def measure(folder: Path, extent: Extent, progress: Progress) -> list[Cell]:
    """What each server did. Of each that is missing, it is said why."""
    async with AsyncExitStack() as stack:
        postgres = await asyncio.to_thread(PostgresServer, fsync=True)
        stack.push_async_callback(asyncio.to_thread, postgres.close)
        await asyncio.to_thread(postgres.start, POSTGRES)
        databases = {count: await asyncio.to_thread(postgres.create_database, f"bench_{count}") for count in WORKERS}
        theirs, missing = peers(await stack.enter_async_context(redis(folder)))
        for line in missing:
            print(f"bench: NOT MEASURED: {line}", file=sys.stderr)
        wanted = [*plain_servers(), *own_servers(folder, databases), *theirs]
        if extent.servers is not None:
            wanted = [server for server in wanted if server.name in extent.servers]
        progress.stage(f"wire: starting {len(wanted)} servers")
        up = [await stack.enter_async_context(running(server)) for server in wanted]
        client = await stack.enter_async_context(_client())
        return await _rounds(client, up, extent, progress)


async def _rounds(client: Client, up: Sequence[Running], extent: Extent, progress: Progress) -> list[Cell]:
    cells: list[Cell] = []
    for callers, operations in extent.operations.items():
        # Before it counts: what is compiled, prepared or connected at first is not what is measured.
        await _block(client, up, "call", callers, replace(extent, rounds=1), progress)
        blocks = [await _block(client, up, one, callers, extent, progress) for one in ("call", *operations)]
        for operation, rates in zip(("call", *operations), blocks, strict=True):
            for one in up:
                if one.server.name in rates and one.server.has_tasks != (operation == "call"):
                    against = rates[one.server.against]
                    cells.append(Cell(one.server.name, operation, callers, rates[one.server.name], against))
    return cells


async def _block(
    client: Client, up: Sequence[Running], operation: Operation, callers: int, extent: Extent, progress: Progress
) -> dict[str, list[float]]:
    """One operation in all rounds, by the names of servers. Those without tasks are called plainly in each."""
    progress.stage(f"wire: {operation}, {callers} at once")
    against = {one.server.against for one in up}
    rates: dict[str, list[float]] = {}
    for number in range(extent.rounds):
        for one in up:
            is_asked = one.server.has_tasks if operation != "call" else not one.server.has_tasks
            is_2025s = operation in _ONLY_2026 and one.server.generation == "2025-11-25"
            if (is_asked and not is_2025s) or one.server.name in against:
                told = await client.do(_order(one, operation, callers, extent))
                rates.setdefault(one.server.name, []).append(told.rate)
        progress.tick(number + 1, extent.rounds)
    return rates


def _order(one: Running, operation: Operation, callers: int, extent: Extent) -> Order:
    done = operation if one.server.has_tasks else "call"
    count = extent.at_once if done == "all done" else 1_000_000
    return Order(one.port, one.server.generation, done, callers, extent.seconds, count)


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
