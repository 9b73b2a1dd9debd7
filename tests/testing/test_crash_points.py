"""`enumerate_crashes` dies at every point in turn, and notices a store that writes by halves."""

from collections.abc import Callable
from datetime import datetime

import pytest

from raincheck.core.change import Creation
from raincheck.core.limits import Quota
from raincheck.core.records import Task
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import CrashPlan, FakeClock, SimulatedCrash, StoreHarness, enumerate_crashes
from raincheck.testing.harness import EVERYTHING

pytestmark = pytest.mark.anyio

Disk = dict[str, str]
"""What is left after a crash."""


class ToyStore(MemoryStore):
    """Keeps a task and its history on a disk, in one go."""

    in_one_go = True

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
        for what in ("task", "history"):
            self.plan.reach(f"insert {what}")
            (written if self.in_one_go else self.disk)[what] = task.id
        self.plan.reach("commit")
        self.disk |= written
        self.plan.reach("after the commit")
        return task


class HalfWritingStore(ToyStore):
    """Keeps them one after the other."""

    in_one_go = False


class Bench:
    """A disk that is made anew for every run, and a count of what was done with it."""

    def __init__(self, kind: Callable[[Disk, CrashPlan], ToyStore]) -> None:
        self.kind = kind
        self.disk: Disk = {}
        self.runs = 0
        self.stores: list[Store] = []
        self.left: list[set[str]] = []

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
        self.left.append(set(self.disk))
        assert ("task" in self.disk) == ("history" in self.disk), f"half of it: {sorted(self.disk)}"


async def test_a_store_that_writes_in_one_go_passes_and_its_points_are_told() -> None:
    bench = Bench(ToyStore)
    points = await enumerate_crashes(bench.make_store, bench.scenario, bench.check)
    assert points == ["insert task", "insert history", "commit", "after the commit"]
    assert bench.runs == 1 + len(points)
    both = {"task", "history"}
    assert bench.left == [both, set(), set(), set(), both]


async def test_every_store_is_closed_before_what_is_left_is_looked_at() -> None:
    bench = Bench(ToyStore)

    async def check() -> None:
        with pytest.raises(StoreUnavailable):
            await bench.stores[-1].count_live(EVERYTHING)

    assert len(await enumerate_crashes(bench.make_store, bench.scenario, check)) == 4
    assert len(bench.stores) == 5


async def test_a_store_that_writes_by_halves_is_found_and_the_point_is_named() -> None:
    bench = Bench(HalfWritingStore)
    with pytest.raises(AssertionError, match="half of it") as found:
        await enumerate_crashes(bench.make_store, bench.scenario, bench.check)
    assert found.value.__notes__ == ["after a crash at point 2 of 4: insert history"]


async def test_what_is_wrong_without_a_crash_is_told_before_any_crash() -> None:
    bench = Bench(ToyStore)

    async def never_content() -> None:
        raise AssertionError("never content")

    with pytest.raises(AssertionError, match="never content"):
        await enumerate_crashes(bench.make_store, bench.scenario, never_content)
    assert bench.runs == 1


async def test_a_scenario_that_survives_a_crash_is_no_test_of_crashes() -> None:
    bench = Bench(ToyStore)

    async def survive(store: Store) -> None:
        try:
            await bench.scenario(store)
        except SimulatedCrash:
            return

    with pytest.raises(AssertionError, match="the scenario went on after a crash at point 1: insert task"):
        await enumerate_crashes(bench.make_store, survive, bench.check)


async def test_a_scenario_that_touches_nothing_has_no_points() -> None:
    bench = Bench(ToyStore)

    async def nothing(_: Store) -> None:
        return

    assert await enumerate_crashes(bench.make_store, nothing, bench.check) == []
    assert bench.runs == 1


async def test_an_error_of_the_scenario_is_not_taken_for_a_crash() -> None:
    bench = Bench(ToyStore)

    async def fail(_: Store) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await enumerate_crashes(bench.make_store, fail, bench.check)


def test_a_plan_without_a_place_to_die_only_counts() -> None:
    plan = CrashPlan()
    for point in ("a", "b", "b"):
        plan.reach(point)
    assert plan.points == ["a", "b", "b"]


def test_who_is_dead_stays_dead() -> None:
    plan = CrashPlan(crash_at=2)
    plan.reach("a")
    with pytest.raises(SimulatedCrash, match="crashed at point 2: b"):
        plan.reach("b")
    for point in ("rollback", "close"):
        with pytest.raises(SimulatedCrash):
            plan.reach(point)


def test_a_crash_is_nothing_that_handling_errors_could_catch() -> None:
    assert not issubclass(SimulatedCrash, Exception)
