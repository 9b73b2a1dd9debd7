"""`enumerate_crashes` crashes at every point in turn, and detects a store whose writes are not atomic."""

from collections.abc import Callable
from datetime import datetime

import pytest

from raincheck.core.change import Creation
from raincheck.core.policies import Quota
from raincheck.core.records import Task
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import CrashPlan, FakeClock, SimulatedCrash, StoreHarness, enumerate_crashes
from raincheck.testing.harness import EVERYTHING

pytestmark = pytest.mark.anyio

Disk = dict[str, str]
"""The data that remains after a crash."""


class ToyStore(MemoryStore):
    """Writes a task and its history to a disk, atomically."""

    is_atomic = True

    def __init__(self, disk: Disk, plan: CrashPlan) -> None:
        super().__init__()
        self.disk, self.plan = disk, plan

    async def open(self) -> None:
        self.plan.reach("migrate")
        await super().open()

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        task = await super().create(creation, quota=quota, now=now, claim=claim)
        written: Disk = {}
        for record in ("task", "history"):
            self.plan.reach(f"insert {record}")
            (written if self.is_atomic else self.disk)[record] = task.id
        self.plan.reach("commit")
        self.disk |= written
        self.plan.reach("after the commit")
        return task


class NonAtomicStore(ToyStore):
    """Writes them one after the other."""

    is_atomic = False


class CrashRuns:
    """A new disk for every run, with a record of the runs."""

    def __init__(self, kind: Callable[[Disk, CrashPlan], ToyStore]) -> None:
        self.kind = kind
        self.disk: Disk = {}
        self.runs = 0
        self.stores: list[Store] = []
        self.remaining: list[set[str]] = []

    async def make_store(self, plan: CrashPlan) -> Store:
        self.disk = {}
        self.runs += 1
        store = self.kind(self.disk, plan)
        await store.open()
        self.stores.append(store)
        return store

    async def scenario(self, store: Store) -> None:
        await StoreHarness(store, FakeClock()).create()

    async def check(self) -> None:
        self.remaining.append(set(self.disk))
        assert ("task" in self.disk) == ("history" in self.disk), f"incomplete: {sorted(self.disk)}"


async def test_an_atomic_store_passes_and_its_points_are_returned() -> None:
    crash_runs = CrashRuns(ToyStore)
    points = await enumerate_crashes(crash_runs.make_store, crash_runs.scenario, crash_runs.check)
    assert points == ["insert task", "insert history", "commit", "after the commit"]
    assert crash_runs.runs == 1 + len(points)
    both = {"task", "history"}
    assert crash_runs.remaining == [both, set(), set(), set(), both]


async def test_every_store_is_closed_before_the_remaining_data_is_checked() -> None:
    crash_runs = CrashRuns(ToyStore)

    async def check() -> None:
        with pytest.raises(StoreUnavailable):
            await crash_runs.stores[-1].count_live(EVERYTHING)

    assert len(await enumerate_crashes(crash_runs.make_store, crash_runs.scenario, check)) == 4
    assert len(crash_runs.stores) == 5


async def test_a_non_atomic_store_fails_and_the_error_names_the_crash_point() -> None:
    crash_runs = CrashRuns(NonAtomicStore)
    with pytest.raises(AssertionError, match="incomplete") as caught:
        await enumerate_crashes(crash_runs.make_store, crash_runs.scenario, crash_runs.check)
    assert caught.value.__notes__ == ["after a crash at point 2 of 4: insert history"]


async def test_data_that_is_wrong_without_a_crash_fails_before_any_crash() -> None:
    crash_runs = CrashRuns(ToyStore)

    async def always_fail() -> None:
        raise AssertionError("always fails")

    with pytest.raises(AssertionError, match="always fails"):
        await enumerate_crashes(crash_runs.make_store, crash_runs.scenario, always_fail)
    assert crash_runs.runs == 1


async def test_a_scenario_that_continues_after_a_crash_is_an_error() -> None:
    crash_runs = CrashRuns(ToyStore)

    async def survive(store: Store) -> None:
        try:
            await crash_runs.scenario(store)
        except SimulatedCrash:
            return

    with pytest.raises(AssertionError, match="the scenario continued after a crash at point 1: insert task"):
        await enumerate_crashes(crash_runs.make_store, survive, crash_runs.check)


async def test_a_scenario_that_touches_nothing_has_no_points() -> None:
    crash_runs = CrashRuns(ToyStore)

    async def nothing(_: Store) -> None:
        return

    assert await enumerate_crashes(crash_runs.make_store, nothing, crash_runs.check) == []
    assert crash_runs.runs == 1


async def test_an_error_of_the_scenario_is_not_treated_as_a_crash() -> None:
    crash_runs = CrashRuns(ToyStore)

    async def fail(_: Store) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await enumerate_crashes(crash_runs.make_store, fail, crash_runs.check)


def test_a_plan_without_a_crash_point_only_counts() -> None:
    plan = CrashPlan()
    for point in ("a", "b", "b"):
        plan.reach(point)
    assert plan.points == ["a", "b", "b"]


def test_every_point_after_the_crash_crashes_too() -> None:
    plan = CrashPlan(crash_at=2)
    plan.reach("a")
    with pytest.raises(SimulatedCrash, match="crashed at point 2: b"):
        plan.reach("b")
    for point in ("rollback", "close"):
        with pytest.raises(SimulatedCrash):
            plan.reach(point)


def test_a_simulated_crash_is_not_an_exception() -> None:
    assert not issubclass(SimulatedCrash, Exception)
