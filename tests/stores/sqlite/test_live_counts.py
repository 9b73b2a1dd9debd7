"""The quota of live tasks is exact, although few creations count them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.commands import Complete
from raincheck.core.decide import decide
from raincheck.core.owner import Owner
from raincheck.core.policies import Limits, Quota
from raincheck.core.values import encode
from raincheck.errors import QuotaExceeded, StoreError
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.writes import MAX_OWNERS, QUERIES
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import ALICE

pytestmark = pytest.mark.anyio

MANY = Quota(live=1_000)
DONE = Complete(1, encode("done"))


class ObservedConnection(sqlite3.Connection):
    """Counts how often live tasks are counted, and fails to commit on demand."""

    counted = 0
    is_full = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self.is_full and sql == "COMMIT":
            raise sqlite3.OperationalError("the disk is full")
        type(self).counted += sql == QUERIES["live_of_owner"]
        return super().execute(sql, parameters)


@pytest.fixture
def connection_type() -> type[ObservedConnection]:
    return type("Connection", (ObservedConnection,), {})


@pytest.fixture
async def harness(tmp_path: Path, connection_type: type[ObservedConnection]) -> AsyncIterator[StoreHarness]:
    store = SqliteStore(
        tmp_path / "tasks.db",
        connect=lambda path, timeout: sqlite3.connect(path, timeout, isolation_level=None, factory=connection_type),
    )
    await store.open()
    yield StoreHarness(store, FakeClock())
    await store.close()


async def test_live_tasks_are_counted_once_until_the_quota_could_be_reached(
    harness: StoreHarness, connection_type: type[ObservedConnection]
) -> None:
    quota = Quota(live=10)
    tasks = [await harness.create_running(quota=quota) for _ in range(9)]
    assert connection_type.counted == 1
    for task in tasks:
        await harness.apply(task, DONE)
    await harness.create(quota=quota)
    assert connection_type.counted == 1
    for _ in range(9):
        await harness.create(quota=quota)
    assert connection_type.counted == 2
    with pytest.raises(QuotaExceeded):
        await harness.create(quota=quota)
    assert connection_type.counted == 3


async def test_what_another_handle_creates_counts(harness: StoreHarness) -> None:
    quota = Quota(live=5)
    await harness.create(quota=quota)
    other = harness.store.new_handle()
    await other.open()
    try:
        for _ in range(3):
            await other.create(harness.creation(), quota=quota, now=harness.clock.now())
        await harness.create(quota=quota)
        with pytest.raises(QuotaExceeded):
            await harness.create(quota=quota)
        with pytest.raises(QuotaExceeded):
            await other.create(harness.creation(), quota=quota, now=harness.clock.now())
    finally:
        await other.close()


async def test_tasks_whose_end_is_rolled_back_count(
    harness: StoreHarness, connection_type: type[ObservedConnection]
) -> None:
    quota = Quota(live=8)
    tasks = [await harness.create_running(quota=quota) for _ in range(8)]
    decided = [decide(task, DONE, harness.clock.now(), Limits()) for task in tasks[1:]]
    endings = [change for change in decided if change is not None]
    connection_type.is_full = True
    writes = [harness.store.commit(endings), harness.create(quota=quota)]
    ended, created = await asyncio.gather(*writes, return_exceptions=True)
    # They fail together, and are then tried one by one.
    assert isinstance(ended, StoreError)
    assert isinstance(created, QuotaExceeded)
    connection_type.is_full = False
    with pytest.raises(QuotaExceeded):
        await harness.create(quota=quota)


async def test_a_count_that_stopped_at_a_lower_quota_is_not_used_for_a_higher_one(harness: StoreHarness) -> None:
    for _ in range(5):
        await harness.create()
    with pytest.raises(QuotaExceeded):
        await harness.create(quota=Quota(live=2))
    await harness.create(quota=Quota(live=6))
    with pytest.raises(QuotaExceeded):
        await harness.create(quota=Quota(live=6))


async def test_spawned_tasks_and_those_without_a_quota_are_added(harness: StoreHarness) -> None:
    quota = Quota(live=4)
    parent = await harness.create_running(quota=quota)
    await harness.create()
    spawned = (harness.creation(),)
    await harness.apply(parent, Complete(1, encode("done"), spawned=spawned))
    await harness.create(quota=quota)
    await harness.create(quota=quota)
    with pytest.raises(QuotaExceeded):
        await harness.create(quota=quota)


async def test_bounds_are_known_for_a_limited_number_of_owners(
    harness: StoreHarness, connection_type: type[ObservedConnection]
) -> None:
    await harness.create(quota=MANY)
    others = (harness.create(owner=Owner.client(str(number)), quota=MANY) for number in range(MAX_OWNERS))
    await asyncio.gather(*others)
    counted = connection_type.counted
    await harness.create(owner=ALICE, quota=MANY)
    assert connection_type.counted == counted + 1
