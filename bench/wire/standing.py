"""Servers, started together, with what they need: a database, and Redis where there is one."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.postgres import PostgresServer
from bench.progress import Progress
from bench.wire.peers import peers, redis
from bench.wire.servers import WORKERS, Running, own_servers, plain_servers, running

POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB", "autovacuum": "on"}
"""What a database has that is used in earnest: the one for tests is smaller, and is never tidied up."""


@asynccontextmanager
async def standing(folder: Path, names: frozenset[str] | None, progress: Progress) -> AsyncGenerator[list[Running]]:
    """Those that are named, or all, until the end of the context. Of each that is missing, it is said why."""
    progress.stage("wire: starting servers")
    await asyncio.to_thread(folder.mkdir)
    async with AsyncExitStack() as stack:
        databases: dict[int, str] = {}
        if _is_wanted("PostgreSQL", names):
            postgres = await asyncio.to_thread(PostgresServer, fsync=True)
            stack.push_async_callback(asyncio.to_thread, postgres.close)
            await asyncio.to_thread(postgres.start, POSTGRES)
            for count in WORKERS:
                databases[count] = await asyncio.to_thread(postgres.create_database, f"bench_{count}")
        port = await stack.enter_async_context(redis(folder)) if _is_wanted("FastMCP 4, Redis", names) else None
        theirs, missing = peers(port)
        for line in missing:
            if _is_wanted(line.partition(":")[0], names):
                print(f"bench: NOT MEASURED: {line}", file=sys.stderr)
        found = [*plain_servers(), *own_servers(folder, databases), *theirs]
        async with asyncio.TaskGroup() as starting:
            up = [
                starting.create_task(stack.enter_async_context(running(server)))
                for server in found
                if names is None or server.name in names
            ]
        yield [one.result() for one in up]


def _is_wanted(first: str, names: frozenset[str] | None) -> bool:
    return names is None or any(name.startswith(first) for name in names)
