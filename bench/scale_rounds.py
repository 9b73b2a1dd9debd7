"""The order in which `bench.scale --measure` measures, and what it makes of it."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from time import perf_counter, process_time
from typing import Any, LiteralString

import httpx2
import psycopg

from bench.machine import machine
from bench.postgres import PostgresServer
from bench.progress import Progress
from bench.scale_measure import CALLERS, LISTENERS, STEPS, Site, Spent
from bench.scale_model import Cost, Costs, Operation
from bench.scale_server import ASK, WORK
from raincheck.clock import SystemClock
from raincheck.stores.factory import open_store

IDLE = 10.0
COMMITTING = 3.0
_PLAIN = "INSERT INTO bench_commits VALUES (now())"
_NOTIFYING = f"WITH kept AS ({_PLAIN} RETURNING 1) SELECT pg_notify('bench', '1') FROM kept"
_ALLOWED: dict[str, Any] = {"action": "accept", "content": {}}


async def measure(count: int, progress: Progress) -> Costs:
    """Measure with so many tasks."""
    load = os.getloadavg()[0]
    postgres = PostgresServer(fsync=True)
    try:
        postgres.start({"shared_buffers": "256MB", "max_wal_size": "4GB"})
        store = postgres.create_database("scale")
        async with _site(postgres, store) as site:
            costs = await _measure(site, postgres, store, count, progress)
            return replace(costs, machine=f"{costs.machine}, with a load of {load:.1f} before")
    finally:
        postgres.close()


async def _measure(site: Site, postgres: PostgresServer, store: str, count: int, progress: Progress) -> Costs:
    progress.stage("warming up")
    await site.each("tasks/get", await site.create(WORK, 100, steps=1))
    await site.until_nothing_waits()
    operations: dict[Operation, Cost] = {}
    site.run("CHECKPOINT")
    empty = site.size()
    async with site.worker_asleep():
        progress.stage(f"{count:,} creations and polls")
        made, spent = await _made(site, WORK, count, steps=0)
        operations["create"] = spent.cost(count, spent.server)
        live_bytes = (site.size() - empty) / count
        spent = await site.during(lambda: site.each("tasks/get", made))
        operations["poll"] = spent.cost(count, spent.server)
        progress.stage("running them")
        before = site.spent()
    await site.until_nothing_waits()
    spent = site.spent().since(before)
    operations["run"] = run = spent.cost(count, spent.worker)
    heard_process = spent.server / spent.notices
    progress.stage("running tasks of several steps")
    few = count // 4
    async with site.worker_asleep():
        await site.create(WORK, few, steps=STEPS)
        before = site.spent()
    await site.until_nothing_waits()
    spent = site.spent().since(before)
    operations["step"] = _each_of(STEPS, spent.cost(few, spent.worker), run)
    progress.stage("answers")
    made = await site.create(ASK, few)
    await site.until_nothing_waits()
    async with site.worker_asleep():
        answers = {"elicit-0": _ALLOWED}
        spent = await site.during(lambda: site.each("tasks/update", made, inputResponses=answers))
        operations["answer"] = spent.cost(few, spent.server)
    await site.until_nothing_waits()
    progress.stage("cancels")
    async with site.worker_asleep():
        made = await site.create(WORK, few, steps=0)
        spent = await site.during(lambda: site.each("tasks/cancel", made))
        operations["cancel"] = spent.cost(few, spent.server)
    await site.until_nothing_waits()
    progress.stage("nothing at all")
    idle = await site.during(lambda: asyncio.sleep(IDLE))
    progress.stage(f"creations that {LISTENERS} more hear of")
    ears = [psycopg.connect(store, autocommit=True) for _ in range(LISTENERS)]
    for ear in ears:
        ear.execute('LISTEN "raincheck.raincheck"')
    async with site.worker_asleep():
        _, crowded = await _made(site, WORK, count, steps=0)
    for ear in ears:
        ear.close()
    await site.until_nothing_waits()
    telling = crowded.database / count - operations["create"].database
    progress.stage("forgetting them all")
    kept_bytes, vacuumed_bytes, operations["prune"] = await _forget(site, store)
    progress.stage("commits alone")
    (version,) = postgres.run("SHOW server_version")[0]
    return Costs(
        machine=machine(f"PostgreSQL {version.split()[0]}"),
        operations=operations,
        heard_process=heard_process,
        heard_database=max(0.0, telling / LISTENERS / operations["create"].notices),
        idle_process=(idle.server + idle.worker) / 2 / IDLE,
        idle_database=idle.database / 2 / IDLE,
        live_bytes=live_bytes,
        kept_bytes=kept_bytes,
        vacuumed_bytes=vacuumed_bytes,
        notified_commits=await _commits(store, _NOTIFYING),
        plain_commits=await _commits(store, _PLAIN),
    )


async def _made(site: Site, tool: str, count: int, **arguments: int) -> tuple[list[tuple[str, int]], Spent]:
    before = site.spent()
    made = await site.create(tool, count, **arguments)
    return made, site.spent().since(before)


def _each_of(parts: int, whole: Cost, without: Cost) -> Cost:
    """What one part costs of a whole that was measured with many, and with none."""
    names = ("database", "process", "commits", "notices", "wal")
    return Cost(*(max(0.0, (getattr(whole, name) - getattr(without, name)) / parts) for name in names))


async def _forget(site: Site, store: str) -> tuple[float, float, Cost]:
    """How many bytes an ended task has, how many of them in its record, and what it costs to forget it."""
    (ended,) = site.run("SELECT count(*) FROM raincheck.tasks WHERE finished_at IS NOT NULL")
    for table in ("tasks", "payloads", "history", "steps", "inputs"):
        site.compact(table)
    kept_bytes, vacuumed_bytes = site.size() / ended, site.size_of_tasks() / ended
    site.run("UPDATE raincheck.tasks SET expires_at = 0 WHERE finished_at IS NOT NULL")
    async with open_store(store) as opened:
        now = SystemClock().now() + timedelta(days=2)
        before, used = site.spent(), process_time()
        while await opened.prune(now=now, limit=500):
            pass
        return kept_bytes, vacuumed_bytes, site.spent().since(before).cost(ended, process_time() - used)


async def _commits(store: str, statement: LiteralString) -> float:
    """How many small transactions a second are committed, by as many at once as there are callers."""
    number = 0
    async with await psycopg.AsyncConnection.connect(store, autocommit=True) as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS bench_commits (at timestamptz)")
    begun = perf_counter()

    async def commit() -> None:
        nonlocal number
        async with await psycopg.AsyncConnection.connect(store, autocommit=True) as connection:
            while perf_counter() < begun + COMMITTING:
                await connection.execute(statement)
                number += 1

    await asyncio.gather(*(commit() for _ in range(CALLERS)))
    return number / (perf_counter() - begun)


@asynccontextmanager
async def _site(postgres: PostgresServer, store: str) -> AsyncGenerator[Site]:
    environment = {**os.environ, "RAINCHECK_STORE": store}
    pipe, program = asyncio.subprocess.PIPE, (sys.executable, "-m", "bench.scale_server")
    # The server first: it makes the schema.
    server, worker = [
        await asyncio.create_subprocess_exec(*program, which, env=environment, stdout=pipe)
        for which in ("serve", "work")
    ]
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        # The server closes what is idle for 5 s: who sends on such a connection gets an error.
        limits = httpx2.Limits(max_connections=CALLERS, keepalive_expiry=2)
        async with httpx2.AsyncClient(limits=limits) as http:
            site = Site(postgres, f"http://127.0.0.1:{port}/mcp", (server.pid, worker.pid), http)
            try:
                yield site
            finally:
                site.close()
    finally:
        for process in (server, worker):
            process.terminate()
            await process.wait()
