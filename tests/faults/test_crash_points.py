"""The process dies at every point of every writing method, and what is left is all of what it did, or nothing."""

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
from raincheck.stores.sqlite.reads import QUERIES
from raincheck.testing import CrashPlan, FakeClock, StoreHarness, check_invariants, enumerate_crashes
from tests.support.faults.crash_scenario import SCENARIOS, Snapshot, World, claims_two, creates, creates_and_begins

pytestmark = pytest.mark.anyio


class CrashingConnection(sqlite3.Connection):
    """Reports every statement before it runs, and every commit after it ran too: then the reply is lost."""

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


class Files:
    """A file for each run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0

    @property
    def path(self) -> Path:
        return self.folder / f"{self.runs}.db"

    def begin_anew(self) -> None:
        self.runs += 1

    def store(self, plan: CrashPlan | None) -> Store:
        if plan is None:
            return SqliteStore(self.path, synchronous="NORMAL")
        return SqliteStore(self.path, connect=partial(crashing_connect, plan))

    async def ask(self, query: str) -> list[Any]:
        def ask() -> list[Any]:
            with closing(sqlite3.connect(self.path)) as connection:
                return connection.execute(query).fetchall()

        return await asyncio.to_thread(ask)


READING = {
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


def test_every_writing_method_has_its_scenario() -> None:
    methods = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}
    assert methods == SCENARIOS.keys() | READING | {"open", "close", "new_handle"}


@pytest.mark.parametrize(
    "scenario", [scenario for scenarios in SCENARIOS.values() for scenario in scenarios], ids=lambda one: one.__name__
)
async def test_a_crash_anywhere_leaves_all_or_nothing(
    tmp_path: Path, scenario: Callable[[World, Store], Awaitable[None]]
) -> None:
    world = World(Files(tmp_path))
    await world.begin_anew()
    nothing = await world.left()
    seen: list[Snapshot] = []

    async def check() -> None:
        left = await world.left()
        if not seen:
            seen.append(left)
            assert left != nothing
        (everything,) = seen
        assert left in (nothing, everything)

    points = await enumerate_crashes(world.make_store, partial(scenario, world), check)
    # A secret is looked for before it is made.
    assert next(point for point in points if point != QUERIES["secret"]) == "BEGIN IMMEDIATE"
    assert points[-2:] == ["COMMIT", "after COMMIT"]
    # And what it is for, between them: the least looks at the schema, and writes a row.
    assert len(points) >= 5


async def test_a_claim_says_once_how_far_it_served_the_line_however_many_it_takes(tmp_path: Path) -> None:
    world = World(Files(tmp_path))
    left: list[object] = []

    async def check() -> None:
        left.append((await world.beside())[TaskId("lines")])

    points = await enumerate_crashes(world.make_store, partial(claims_two, world), check)
    assert points.count(QUERIES["advance_lines"]) == 1
    done, *crashed, nothing = left
    assert crashed == [left[1]] * len(crashed)
    assert done == nothing != left[1]


async def test_a_task_that_is_created_and_begun_is_written_once_after_one_look_at_who_waits(tmp_path: Path) -> None:
    world = World(Files(tmp_path))
    begun: list[object] = []

    async def check() -> None:
        begun.append((await world.left()).get(TaskId("new")))

    points = await enumerate_crashes(world.make_store, partial(creates_and_begins, world), check)
    plain = await enumerate_crashes(world.make_store, partial(creates, world), check)
    assert points.count(QUERIES["next_due"]) == 1
    assert Counter(points) - Counter(plain) == Counter(
        {QUERIES["next_due"]: 1, QUERIES["insert_entry"]: 1, QUERIES["advance_lines"]: 1}
    )
    assert "running" in str(begun[0])


async def test_what_was_not_acknowledged_may_have_happened_and_what_was_acknowledged_did(tmp_path: Path) -> None:
    world = World(Files(tmp_path))
    lost_replies: list[bool] = []

    async def check() -> None:
        lost_replies.append("new" in await world.left())

    points = await enumerate_crashes(world.make_store, partial(creates, world), check)
    acknowledged, *crashed = lost_replies
    assert acknowledged
    assert crashed == [point == "after COMMIT" for point in points]


async def test_a_crash_anywhere_while_a_new_file_is_made_leaves_one_that_opens(tmp_path: Path) -> None:
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
