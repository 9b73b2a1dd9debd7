"""A crash at any point of any writing method leaves all of its effects in the file, or none."""

import asyncio
import inspect
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.records import TaskId
from raincheck.stores.base import Store
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.writes import QUERIES
from raincheck.testing import CrashPlan, FakeClock, StoreHarness, check_invariants, enumerate_crashes
from tests.support.faults.crash_scenario import (
    SCENARIOS,
    ScenarioSetup,
    Snapshot,
    claims_two,
    creates,
    creates_and_starts,
)

pytestmark = pytest.mark.anyio


class CrashingConnection(sqlite3.Connection):
    """Reports every statement before it runs, and every commit again after it ran: a crash there loses the reply."""

    plan: CrashPlan

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.plan.reach(sql)
        cursor = super().execute(sql, parameters)
        if sql == "COMMIT":
            self.plan.reach("after COMMIT")
        return cursor


def crashing_connect(plan: CrashPlan, path: str, timeout: float) -> sqlite3.Connection:
    factory = type("Planned", (CrashingConnection,), {"plan": plan})
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=factory)


class SqliteFiles:
    """A separate file for each run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0

    @property
    def path(self) -> Path:
        return self.folder / f"{self.runs}.db"

    def reset(self) -> None:
        self.runs += 1

    def store(self, plan: CrashPlan | None) -> Store:
        if plan is None:
            return SqliteStore(self.path, synchronous="NORMAL")
        return SqliteStore(self.path, connect=partial(crashing_connect, plan))

    async def query(self, query: str) -> list[Any]:
        def run() -> list[Any]:
            with closing(sqlite3.connect(self.path)) as connection:
                return connection.execute(query).fetchall()

        return await asyncio.to_thread(run)


READ_METHODS = {
    "next_due",
    "list_overdue",
    "load",
    "view",
    "journal",
    "artifact",
    "history",
    "list_tasks",
    "count_live",
    "count_states",
    "listen",
    "capabilities",
}


def test_every_writing_method_has_a_scenario() -> None:
    methods = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}
    assert methods == SCENARIOS.keys() | READ_METHODS | {"open", "close", "new_handle"}


@pytest.mark.parametrize(
    "scenario",
    [scenario for scenarios in SCENARIOS.values() for scenario in scenarios],
    ids=lambda function: function.__name__,
)
async def test_a_crash_anywhere_leaves_all_or_nothing(
    tmp_path: Path, scenario: Callable[[ScenarioSetup, Store], Awaitable[None]]
) -> None:
    setup = ScenarioSetup(SqliteFiles(tmp_path))
    await setup.reset()
    nothing = await setup.stored()
    seen: list[Snapshot] = []

    async def check() -> None:
        stored = await setup.stored()
        if not seen:
            seen.append(stored)
            assert stored != nothing
        (everything,) = seen
        assert stored in (nothing, everything)

    points = await enumerate_crashes(setup.make_store, partial(scenario, setup), check)
    # A secret is looked up before it is created.
    assert next(point for point in points if point != QUERIES["secret"]) == "BEGIN IMMEDIATE"
    assert points[-2:] == ["COMMIT", "after COMMIT"]
    # Between them, every write at least checks the schema and writes a row.
    assert len(points) >= 5


async def test_a_claim_of_several_tasks_stores_the_served_turns_once(tmp_path: Path) -> None:
    setup = ScenarioSetup(SqliteFiles(tmp_path))
    stored: list[object] = []

    async def check() -> None:
        stored.append((await setup.other_tables())[TaskId("lines")])

    points = await enumerate_crashes(setup.make_store, partial(claims_two, setup), check)
    assert points.count(QUERIES["advance_served_turns"]) == 1
    done, *crashed, nothing = stored
    assert crashed == [stored[1]] * len(crashed)
    assert done == nothing != stored[1]


async def test_a_directly_started_task_is_written_once_after_one_check_for_waiting_tasks(tmp_path: Path) -> None:
    setup = ScenarioSetup(SqliteFiles(tmp_path))
    started: list[object] = []

    async def check() -> None:
        started.append((await setup.stored()).get(TaskId("new")))

    points = await enumerate_crashes(setup.make_store, partial(creates_and_starts, setup), check)
    plain = await enumerate_crashes(setup.make_store, partial(creates, setup), check)
    assert points.count(QUERIES["next_due"]) == 1
    assert Counter(points) - Counter(plain) == Counter(
        {QUERIES["next_due"]: 1, QUERIES["insert_entry"]: 1, QUERIES["advance_served_turns"]: 1}
    )
    assert "running" in str(started[0])


async def test_an_acknowledged_write_is_stored_and_an_unacknowledged_one_may_be(tmp_path: Path) -> None:
    setup = ScenarioSetup(SqliteFiles(tmp_path))
    lost_replies: list[bool] = []

    async def check() -> None:
        lost_replies.append("new" in await setup.stored())

    points = await enumerate_crashes(setup.make_store, partial(creates, setup), check)
    acknowledged, *crashed = lost_replies
    assert acknowledged
    assert crashed == [point == "after COMMIT" for point in points]


async def test_a_crash_anywhere_while_a_file_is_created_leaves_a_file_that_opens(tmp_path: Path) -> None:
    paths: list[Path] = []

    async def make_store(plan: CrashPlan) -> Store:
        paths.append(tmp_path / f"{len(paths)}.db")
        return SqliteStore(paths[-1], connect=partial(crashing_connect, plan))

    async def check() -> None:
        store = SqliteStore(paths[-1])
        await store.open()
        await StoreHarness(store, FakeClock()).create()
        await check_invariants(store)
        await store.close()

    points = await enumerate_crashes(make_store, lambda store: store.open(), check)
    assert any("CREATE TABLE tasks" in point for point in points)
