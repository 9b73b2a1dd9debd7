"""The process dies at every statement of every writing method on PostgreSQL: all of what it did is left, or nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus

from raincheck.core.records import TaskId
from raincheck.dispatchers.procrastinate import ProcrastinateJobQueue
from raincheck.stores.base import Store
from raincheck.stores.postgres import PostgresStore
from raincheck.testing import CrashPlan, SimulatedCrash, enumerate_crashes
from tests.support.faults.crash_scenario import SCENARIOS, Snapshot, World, creates
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.anyio

JOBS = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'"


class CrashingCursor(AsyncCursor[Any]):
    """Reports every statement before it runs, and once more where it was committed: then the reply is lost."""

    async def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        connection, execute = self.connection, cast("Callable[..., Awaitable[Any]]", super().execute)
        assert isinstance(connection, CrashingConnection)
        if not isinstance(query, str):
            # A pool sets its connections up when it likes, and nothing of it concerns the data.
            return await execute(query, *arguments, **options)
        connection.reach(query)
        result = await execute(query, *arguments, **options)
        if connection.info.transaction_status is TransactionStatus.IDLE:
            connection.reach(f"after {query}")
        return result


class CrashingConnection(AsyncConnection[Any]):
    plan: CrashPlan

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = CrashingCursor

    def reach(self, point: str) -> None:
        try:
            self.plan.reach(point)
        except SimulatedCrash:
            # As the system does it for a process that is gone.
            self.pgconn.finish()
            raise


class Schemas:
    """A schema for each run."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server = server
        self.database = database
        self.runs = 0

    @property
    def url(self) -> str:
        return f"{self.server.url(self.database)}?schema=run_{self.runs}"

    def begin_anew(self) -> None:
        self.runs += 1

    def store(self, plan: CrashPlan | None) -> Store:
        kind = AsyncConnection[Any] if plan is None else type("Planned", (CrashingConnection,), {"plan": plan})
        return PostgresStore(
            self.url, jobs=ProcrastinateJobQueue(f"run_{self.runs}"), connections=1, connection_class=kind
        )

    async def ask(self, query: str) -> list[Any]:
        query = query.replace(" FROM ", f" FROM run_{self.runs}.")
        return await asyncio.to_thread(self.server.run, query, database=self.database)


@pytest.fixture
def world(postgres_server: PostgresServer, database_url: str) -> World:
    return World(Schemas(postgres_server, database_url.rpartition("/")[2]))


@pytest.mark.parametrize(
    "scenario", [scenario for scenarios in SCENARIOS.values() for scenario in scenarios], ids=lambda one: one.__name__
)
async def test_a_crash_anywhere_leaves_all_or_nothing_and_a_job_for_each_queued_task(
    world: World, scenario: Callable[[World, Store], Awaitable[None]]
) -> None:
    await world.begin_anew()
    nothing = await world.left()
    seen: list[Snapshot] = []

    async def check() -> None:
        left = await world.left()
        ((jobs,),) = await world.data.ask(JOBS)
        ((queued,),) = await world.data.ask("SELECT count(*) FROM tasks WHERE phase = 'queued'")
        # What is claimed without a job leaves its own.
        assert jobs >= queued
        if not seen:
            seen.append(left)
            assert left != nothing
        (everything,) = seen
        assert left in (nothing, everything)

    points = await enumerate_crashes(world.make_store, partial(scenario, world), check)
    assert points[-1].startswith("after ")


async def test_what_was_not_acknowledged_may_have_happened_and_what_was_acknowledged_did(world: World) -> None:
    lost_replies: list[bool] = []

    async def check() -> None:
        lost_replies.append(TaskId("new") in await world.left())

    points = await enumerate_crashes(world.make_store, partial(creates, world), check)
    acknowledged, *crashed = lost_replies
    assert acknowledged
    assert crashed == [point == "after COMMIT" for point in points]
