"""A crash at any statement of any writing method leaves all of its effects in PostgreSQL, or none."""

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
from tests.support.faults.crash_scenario import SCENARIOS, ScenarioSetup, Snapshot, creates
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.anyio

JOBS = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'"


class CrashingCursor(AsyncCursor[Any]):
    """Reports every statement before it runs, and again where it was committed: a crash there loses the reply."""

    async def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        connection, execute = self.connection, cast("Callable[..., Awaitable[Any]]", super().execute)
        assert isinstance(connection, CrashingConnection)
        if not isinstance(query, str):
            # A pool sets up its connections at any time, and that does not affect the data.
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
            # As the operating system does for a process that ended.
            self.pgconn.finish()
            raise


class PostgresSchemas:
    """A separate schema for each run."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server = server
        self.database = database
        self.runs = 0

    @property
    def url(self) -> str:
        return f"{self.server.url(self.database)}?schema=run_{self.runs}"

    def reset(self) -> None:
        self.runs += 1

    def store(self, plan: CrashPlan | None) -> Store:
        kind = AsyncConnection[Any] if plan is None else type("Planned", (CrashingConnection,), {"plan": plan})
        return PostgresStore(
            self.url, jobs=ProcrastinateJobQueue(f"run_{self.runs}"), connections=1, connection_class=kind
        )

    async def query(self, query: str) -> list[Any]:
        query = query.replace(" FROM ", f" FROM run_{self.runs}.")
        return await asyncio.to_thread(self.server.run, query, database=self.database)


@pytest.fixture
def scenario_setup(postgres_server: PostgresServer, database_url: str) -> ScenarioSetup:
    return ScenarioSetup(PostgresSchemas(postgres_server, database_url.rpartition("/")[2]))


@pytest.mark.parametrize(
    "scenario",
    [scenario for scenarios in SCENARIOS.values() for scenario in scenarios],
    ids=lambda function: function.__name__,
)
async def test_a_crash_anywhere_leaves_all_or_nothing_and_a_job_for_each_queued_task(
    scenario_setup: ScenarioSetup, scenario: Callable[[ScenarioSetup, Store], Awaitable[None]]
) -> None:
    await scenario_setup.reset()
    nothing = await scenario_setup.stored()
    seen: list[Snapshot] = []

    async def check() -> None:
        stored = await scenario_setup.stored()
        ((jobs,),) = await scenario_setup.backend.query(JOBS)
        ((queued,),) = await scenario_setup.backend.query("SELECT count(*) FROM tasks WHERE phase = 'queued'")
        # A task that was claimed without a job leaves its own job.
        assert jobs >= queued
        if not seen:
            seen.append(stored)
            assert stored != nothing
        (everything,) = seen
        assert stored in (nothing, everything)

    points = await enumerate_crashes(scenario_setup.make_store, partial(scenario, scenario_setup), check)
    assert points[-1].startswith("after ")


async def test_an_acknowledged_write_is_stored_and_an_unacknowledged_one_may_be(scenario_setup: ScenarioSetup) -> None:
    lost_replies: list[bool] = []

    async def check() -> None:
        lost_replies.append(TaskId("new") in await scenario_setup.stored())

    points = await enumerate_crashes(scenario_setup.make_store, partial(creates, scenario_setup), check)
    acknowledged, *crashed = lost_replies
    assert acknowledged
    assert crashed == [point == "after COMMIT" for point in points]
