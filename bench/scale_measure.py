"""What is measured: a real PostgreSQL, a server and a worker, and how much CPU time they took, as /proc has it."""

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
class Spent:
    """What was spent up to a moment, or between two of them."""

    database: float
    server: float
    worker: float
    commits: float
    notices: float
    wal: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))

    def cost(self, count: int, process: float) -> Cost:
        return Cost(*(value / count for value in (self.database, process, self.commits, self.notices, self.wal)))


class Site:
    """All that is measured, and how it is asked for something."""

    def __init__(self, postgres: PostgresServer, url: str, pids: tuple[int, int], http: httpx2.AsyncClient) -> None:
        self.postmaster = int((postgres.data / "postmaster.pid").read_text().split()[0])
        self.server, self.worker = pids
        self.url = url
        self._http = http
        self._sql = psycopg.connect(postgres.url("scale"), autocommit=True)
        self._ear = psycopg.connect(postgres.url("scale"), autocommit=True)
        self._ear.execute('LISTEN "raincheck.raincheck"')
        self._heard = 0

    def close(self) -> None:
        self._sql.close()
        self._ear.close()

    def run(self, query: LiteralString) -> tuple[Any, ...]:
        """The first row, if there is one."""
        cursor = self._sql.execute(query)
        return (cursor.fetchone() if cursor.description else None) or ()

    def compact(self, table: str) -> None:
        self._sql.execute(SQL("VACUUM FULL raincheck.{}").format(Identifier(table)))

    def size(self) -> float:
        """Bytes of all tables and their indexes."""
        return self.run(_SIZE)[0]

    def size_of_tasks(self) -> float:
        return self.run("SELECT pg_total_relation_size('raincheck.tasks')")[0]

    def spent(self) -> Spent:
        self._heard += sum(1 for _ in self._ear.notifies(timeout=0.2))
        wal, transactions = self.run(_LOG)
        server, worker = (_cpu(pid) for pid in (self.server, self.worker))
        return Spent(_cpu_of_family(self.postmaster), server, worker, transactions, self._heard, float(wal))

    async def during(self, doing: Callable[[], Any]) -> Spent:
        before = self.spent()
        await doing()
        return self.spent().since(before)

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
        """Ids, each with its owner."""
        made: list[tuple[str, int]] = []

        async def one(number: int) -> None:
            owner = number % OWNERS
            created = await self.ask("tools/call", tool, owner, name=tool, arguments=arguments)
            made.append((created["taskId"], owner))

        await by_callers([lambda number=number: one(number) for number in range(count)])
        return made

    async def each(self, method: str, tasks: Sequence[tuple[str, int]], **parameters: Any) -> None:  # noqa: ANN401 - JSON
        await by_callers(
            [
                lambda it=task_id, whose=owner: self.ask(method, it, whose, taskId=it, **parameters)
                for task_id, owner in tasks
            ]
        )

    @asynccontextmanager
    async def worker_asleep(self) -> AsyncGenerator[None]:
        """Stopped as it is, so that what is created waits."""
        os.kill(self.worker, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.worker, signal.SIGCONT)

    async def until_nothing_waits(self) -> None:
        async with asyncio.timeout(300):
            while self.run(_WAITING) != (0,):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)


async def by_callers(calls: Sequence[Callable[[], Any]]) -> None:
    left = iter(calls)

    async def call() -> None:
        for one in left:
            await one()

    await asyncio.gather(*(call() for _ in range(CALLERS)))


def _cpu(pid: int) -> float:
    """Of all threads of a process, also of those that have ended."""
    user, system = _stat(pid)[11:13]
    return (user + system) / _TICKS


def _cpu_of_family(postmaster: int) -> float:
    """Of PostgreSQL, whose processes have one thread each: to the nanosecond for those that live."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    live = (Path(f"/proc/{pid}/schedstat").read_text().split()[0] for pid in [str(postmaster), *children])
    return sum(_stat(postmaster)[13:15]) / _TICKS + sum(map(int, live)) / 1e9


def _stat(pid: int) -> list[int]:
    """What proc(5) has after the name: the third is at 0. Its state is no number, and is not asked for."""
    _, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, numbers)]
