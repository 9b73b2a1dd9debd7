"""The measured system: a real PostgreSQL, a server and a worker, and their CPU time from /proc."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import httpx2
import psycopg
from psycopg.sql import SQL, Identifier

from bench.postgres import PostgresServer
from bench.scale_model import Cost

OWNERS = 100
CALLERS = 16
LISTENERS = 32
STEPS = 10
_TICKS = os.sysconf("SC_CLK_TCK")
_VERSION = "2026-07-28"
_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "scale", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "elicitation": {"form": {}},
    },
}
_WAITING = "SELECT count(*) FROM raincheck.tasks WHERE finished_at IS NULL AND open_inputs = 0"
_SIZE = """
SELECT sum(pg_total_relation_size(oid))::float8 FROM pg_class
WHERE relnamespace = 'raincheck'::regnamespace AND relkind = 'r'
"""
_LOG = "SELECT pg_current_wal_insert_lsn() - '0/0', pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources used up to a moment, or between two moments."""

    database: float
    server: float
    worker: float
    commits: float
    notices: float
    wal: float

    def since(self, before: "Usage") -> "Usage":
        return Usage(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))

    def cost(self, count: int, process: float) -> Cost:
        return Cost(*(value / count for value in (self.database, process, self.commits, self.notices, self.wal)))


class ScaleSystem:
    """The measured processes, and requests to them."""

    def __init__(self, postgres: PostgresServer, url: str, pids: tuple[int, int], http: httpx2.AsyncClient) -> None:
        self.postmaster = int((postgres.data / "postmaster.pid").read_text().split()[0])
        self.server, self.worker = pids
        self.url = url
        self._http = http
        self._sql = psycopg.connect(postgres.url("scale"), autocommit=True)
        self._listener = psycopg.connect(postgres.url("scale"), autocommit=True)
        self._listener.execute('LISTEN "raincheck.raincheck"')
        self._notified = 0

    def close(self) -> None:
        self._sql.close()
        self._listener.close()

    def run(self, query: LiteralString) -> tuple[Any, ...]:
        """Run a query and return the first row, if there is one."""
        cursor = self._sql.execute(query)
        return (cursor.fetchone() if cursor.description else None) or ()

    def compact(self, table: str) -> None:
        self._sql.execute(SQL("VACUUM FULL raincheck.{}").format(Identifier(table)))

    def size(self) -> float:
        """Return the bytes of all tables and their indexes."""
        return self.run(_SIZE)[0]

    def size_of_tasks(self) -> float:
        return self.run("SELECT pg_total_relation_size('raincheck.tasks')")[0]

    def usage(self) -> Usage:
        self._notified += sum(1 for _ in self._listener.notifies(timeout=0.2))
        wal, transactions = self.run(_LOG)
        server, worker = (_cpu(pid) for pid in (self.server, self.worker))
        return Usage(_cpu_of_postgres(self.postmaster), server, worker, transactions, self._notified, float(wal))

    async def during(self, work: Callable[[], Any]) -> Usage:
        before = self.usage()
        await work()
        return self.usage().since(before)

    async def ask(self, method: str, named: str, owner: int, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        headers = {
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {owner}",
            "mcp-protocol-version": _VERSION,
            "mcp-method": method,
            "mcp-name": named,
        }
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**parameters, "_meta": _META}}
        answer = (await self._http.post(self.url, json=body, headers=headers, timeout=60)).json()
        assert "result" in answer, answer
        return answer["result"]

    async def create(self, tool: str, count: int, **arguments: int) -> list[tuple[str, int]]:
        """Create tasks, and return their ids, each with its owner."""
        created: list[tuple[str, int]] = []

        async def create_one(number: int) -> None:
            owner = number % OWNERS
            task = await self.ask("tools/call", tool, owner, name=tool, arguments=arguments)
            created.append((task["taskId"], owner))

        await by_callers([lambda number=number: create_one(number) for number in range(count)])
        return created

    async def each(self, method: str, tasks: Sequence[tuple[str, int]], **parameters: Any) -> None:  # noqa: ANN401 - JSON
        await by_callers(
            [
                lambda task_id=task_id, owner=owner: self.ask(method, task_id, owner, taskId=task_id, **parameters)
                for task_id, owner in tasks
            ]
        )

    @asynccontextmanager
    async def worker_stopped(self) -> AsyncGenerator[None]:
        """Stop the worker process, so that new tasks stay queued."""
        os.kill(self.worker, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.worker, signal.SIGCONT)

    async def until_idle(self) -> None:
        async with asyncio.timeout(300):
            while self.run(_WAITING) != (0,):  # noqa: ASYNC110 - other processes work
                await asyncio.sleep(0.1)


async def by_callers(calls: Sequence[Callable[[], Any]]) -> None:
    remaining = iter(calls)

    async def run() -> None:
        for call in remaining:
            await call()

    await asyncio.gather(*(run() for _ in range(CALLERS)))


def _cpu(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, including ended ones."""
    user, system = _stat(pid)[11:13]
    return (user + system) / _TICKS


def _cpu_of_postgres(postmaster: int) -> float:
    """Return the CPU seconds of PostgreSQL, to the nanosecond for live processes, which have one thread each."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    live = (Path(f"/proc/{pid}/schedstat").read_text().split()[0] for pid in [str(postmaster), *children])
    return sum(_stat(postmaster)[13:15]) / _TICKS + sum(map(int, live)) / 1e9


def _stat(pid: int) -> list[int]:
    """Return the fields of proc(5) after the name, so the third is at 0. The state is not a number, and is 0 here."""
    _, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, numbers)]
