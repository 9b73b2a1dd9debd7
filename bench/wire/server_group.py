"""Run several servers together, with a database, and with Redis if it is installed."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.postgres import PostgresServer
from bench.progress import Progress
from bench.wire.peers import peers, redis
from bench.wire.servers import WORKERS, RunningServer, own_servers, plain_servers, running

POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB", "autovacuum": "on"}
"""Settings like those of a production database. The database of the tests is smaller, without autovacuum."""


@asynccontextmanager
async def server_group(
    folder: Path, names: frozenset[str] | None, progress: Progress
) -> AsyncGenerator[list[RunningServer]]:
    """Run these servers, or all, until the end of the context. Print a reason for each that can't be started."""
    progress.stage("wire: starting servers")
    await asyncio.to_thread(folder.mkdir)
    async with AsyncExitStack() as stack:
        databases: dict[int, str] = {}
        if _is_needed("PostgreSQL", names):
            postgres = await asyncio.to_thread(PostgresServer, fsync=True)
            stack.push_async_callback(asyncio.to_thread, postgres.close)
            await asyncio.to_thread(postgres.start, POSTGRES)
            for count in WORKERS:
                databases[count] = await asyncio.to_thread(postgres.create_database, f"bench_{count}")
        port = await stack.enter_async_context(redis(folder)) if _is_needed("FastMCP 4, Redis", names) else None
        peer_servers, missing = peers(port)
        for line in missing:
            if _is_needed(line.partition(":")[0], names):
                print(f"bench: NOT MEASURED: {line}", file=sys.stderr)
        servers = [*plain_servers(), *own_servers(folder, databases), *peer_servers]
        async with asyncio.TaskGroup() as starting:
            up = [
                starting.create_task(stack.enter_async_context(running(server)))
                for server in servers
                if names is None or server.name in names
            ]
        yield [start.result() for start in up]


def _is_needed(first: str, names: frozenset[str] | None) -> bool:
    return names is None or any(name.startswith(first) for name in names)
