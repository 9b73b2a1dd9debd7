"""Measure the costs for `bench.scale --measure`."""

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
from bench.scale_model import Cost, Costs, Operation
from bench.scale_server import ASK, WORK
from bench.scale_system import CALLERS, LISTENERS, STEPS, ScaleSystem, Usage
from raincheck.clock import SystemClock
from raincheck.stores.factory import open_store

IDLE = 10.0
COMMITTING = 3.0
_PLAIN = "INSERT INTO bench_commits VALUES (now())"
_NOTIFYING = f"WITH kept AS ({_PLAIN} RETURNING 1) SELECT pg_notify('bench', '1') FROM kept"
_ALLOWED: dict[str, Any] = {"action": "accept", "content": {}}


async def measure(count: int, progress: Progress) -> Costs:
    """Measure the costs with this many tasks."""
    load = os.getloadavg()[0]
    postgres = PostgresServer(fsync=True)
    try:
        postgres.start({"shared_buffers": "256MB", "max_wal_size": "4GB"})
        store = postgres.create_database("scale")
        async with _running_system(postgres, store) as system:
            costs = await _measure(system, postgres, store, count, progress)
            return replace(costs, machine=f"{costs.machine}, with a load of {load:.1f} before")
    finally:
        postgres.close()


async def _measure(system: ScaleSystem, postgres: PostgresServer, store: str, count: int, progress: Progress) -> Costs:
    progress.stage("warming up")
    await system.each("tasks/get", await system.create(WORK, 100, steps=1))
    await system.until_idle()
    operations: dict[Operation, Cost] = {}
    system.run("CHECKPOINT")
    empty = system.size()
    async with system.worker_stopped():
        progress.stage(f"{count:,} creations and polls")
        made, used = await _measure_creation(system, WORK, count, steps=0)
        operations["create"] = used.cost(count, used.server)
        live_bytes = (system.size() - empty) / count
        used = await system.during(lambda: system.each("tasks/get", made))
        operations["poll"] = used.cost(count, used.server)
        progress.stage("running tasks")
        before = system.usage()
    await system.until_idle()
    used = system.usage().since(before)
    operations["run"] = run = used.cost(count, used.worker)
    heard_process = used.server / used.notices
    progress.stage("running tasks of several steps")
    few = count // 4
    async with system.worker_stopped():
        await system.create(WORK, few, steps=STEPS)
        before = system.usage()
    await system.until_idle()
    used = system.usage().since(before)
    operations["step"] = _cost_of_part(STEPS, used.cost(few, used.worker), run)
    progress.stage("answers")
    made = await system.create(ASK, few)
    await system.until_idle()
    async with system.worker_stopped():
        answers = {"elicit-0": _ALLOWED}
        used = await system.during(lambda: system.each("tasks/update", made, inputResponses=answers))
        operations["answer"] = used.cost(few, used.server)
    await system.until_idle()
    progress.stage("cancels")
    async with system.worker_stopped():
        made = await system.create(WORK, few, steps=0)
        used = await system.during(lambda: system.each("tasks/cancel", made))
        operations["cancel"] = used.cost(few, used.server)
    await system.until_idle()
    progress.stage("idle")
    idle = await system.during(lambda: asyncio.sleep(IDLE))
    progress.stage(f"creations with {LISTENERS} more listeners")
    listeners = [psycopg.connect(store, autocommit=True) for _ in range(LISTENERS)]
    for listener in listeners:
        listener.execute('LISTEN "raincheck.raincheck"')
    async with system.worker_stopped():
        _, crowded = await _measure_creation(system, WORK, count, steps=0)
    for listener in listeners:
        listener.close()
    await system.until_idle()
    notifying = crowded.database / count - operations["create"].database
    progress.stage("pruning")
    kept_bytes, vacuumed_bytes, operations["prune"] = await _measure_prune(system, store)
    progress.stage("commits alone")
    (version,) = postgres.run("SHOW server_version")[0]
    return Costs(
        machine=machine(f"PostgreSQL {version.split()[0]}"),
        operations=operations,
        heard_process=heard_process,
        heard_database=max(0.0, notifying / LISTENERS / operations["create"].notices),
        idle_process=(idle.server + idle.worker) / 2 / IDLE,
        idle_database=idle.database / 2 / IDLE,
        live_bytes=live_bytes,
        kept_bytes=kept_bytes,
        vacuumed_bytes=vacuumed_bytes,
        notified_commits=await _commits(store, _NOTIFYING),
        plain_commits=await _commits(store, _PLAIN),
    )


async def _measure_creation(
    system: ScaleSystem, tool: str, count: int, **arguments: int
) -> tuple[list[tuple[str, int]], Usage]:
    before = system.usage()
    made = await system.create(tool, count, **arguments)
    return made, system.usage().since(before)


def _cost_of_part(parts: int, whole: Cost, without: Cost) -> Cost:
    """Return the cost of one part, from the costs with many parts and with none."""
    names = ("database", "process", "commits", "notices", "wal")
    return Cost(*(max(0.0, (getattr(whole, name) - getattr(without, name)) / parts) for name in names))


async def _measure_prune(system: ScaleSystem, store: str) -> tuple[float, float, Cost]:
    """Return the bytes of an ended task, those of them in `tasks`, and the cost of pruning it."""
    (ended,) = system.run("SELECT count(*) FROM raincheck.tasks WHERE finished_at IS NOT NULL")
    for table in ("tasks", "payloads", "history", "steps", "inputs"):
        system.compact(table)
    kept_bytes, vacuumed_bytes = system.size() / ended, system.size_of_tasks() / ended
    system.run("UPDATE raincheck.tasks SET expires_at = 0 WHERE finished_at IS NOT NULL")
    async with open_store(store) as opened:
        now = SystemClock().now() + timedelta(days=2)
        before, used = system.usage(), process_time()
        while await opened.prune(now=now, limit=500):
            pass
        return kept_bytes, vacuumed_bytes, system.usage().since(before).cost(ended, process_time() - used)


async def _commits(store: str, statement: LiteralString) -> float:
    """Return how many small transactions per second the callers commit together."""
    number = 0
    async with await psycopg.AsyncConnection.connect(store, autocommit=True) as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS bench_commits (at timestamptz)")
    started_at = perf_counter()

    async def commit() -> None:
        nonlocal number
        async with await psycopg.AsyncConnection.connect(store, autocommit=True) as connection:
            while perf_counter() < started_at + COMMITTING:
                await connection.execute(statement)
                number += 1

    await asyncio.gather(*(commit() for _ in range(CALLERS)))
    return number / (perf_counter() - started_at)


@asynccontextmanager
async def _running_system(postgres: PostgresServer, store: str) -> AsyncGenerator[ScaleSystem]:
    environment = {**os.environ, "RAINCHECK_STORE": store}
    pipe, program = asyncio.subprocess.PIPE, (sys.executable, "-m", "bench.scale_server")
    # The server first, since it creates the schema.
    server, worker = [
        await asyncio.create_subprocess_exec(*program, which, env=environment, stdout=pipe)
        for which in ("serve", "work")
    ]
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        # The server closes connections that are idle for 5 s, and a request on a closed one fails.
        limits = httpx2.Limits(max_connections=CALLERS, keepalive_expiry=2)
        async with httpx2.AsyncClient(limits=limits) as http:
            system = ScaleSystem(postgres, f"http://127.0.0.1:{port}/mcp", (server.pid, worker.pid), http)
            try:
                yield system
            finally:
                system.close()
    finally:
        for process in (server, worker):
            process.terminate()
            await process.wait()
