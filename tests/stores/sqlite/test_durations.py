"""Durations in a file: read without a lock, added to older files, and reported as damage if invalid."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.errors import StoreCorrupt, StoreUnavailable
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.connection import connect
from raincheck.stores.sqlite.writes import QUERIES
from raincheck.testing import FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import EVERYTHING, NAMESPACE
from tests.support.stores.older_files import write_older_file

pytestmark = pytest.mark.anyio

QUICK = DurationHistogram().with_duration(0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, lock_timeout=0.05)
    await store.open()
    yield store
    await store.close()


def put(path: Path, counts: object) -> None:
    with closing(connect(str(path), 5)) as connection:
        connection.execute(QUERIES["put_durations"], (NAMESPACE, "broken", counts))


@pytest.mark.parametrize("counts", ["", "[[4,0]]", '{"4": 1}', "[[5,1],[4,1]]", "[[4,999999]]"])
async def test_invalid_durations_are_reported_as_damage(path: Path, store: SqliteStore, counts: str) -> None:
    await store.merge_durations(NAMESPACE, {"fine": QUICK})
    await asyncio.to_thread(put, path, counts)
    for durations in ({}, {"fine": QUICK}, {"broken": QUICK}):
        with pytest.raises(StoreCorrupt, match=r"tool 'broken'.*is not a duration histogram") as damage:
            await store.merge_durations(NAMESPACE, durations)
        assert damage.value.store == str(path)
    assert await store.merge_durations("elsewhere", {"fine": QUICK}) == {"fine": QUICK}
    # The rest of the file is unchanged, and so are the valid durations.
    await StoreHarness(store, FakeClock()).create()
    await asyncio.to_thread(put, path, QUICK.dump())
    assert await store.merge_durations(NAMESPACE, {}) == {"broken": QUICK, "fine": QUICK}


@pytest.mark.parametrize("counts", [None, b"[[4,1]]"])
async def test_the_schema_accepts_only_text_for_durations(path: Path, store: SqliteStore, counts: object) -> None:
    await store.merge_durations(NAMESPACE, {})
    with pytest.raises(sqlite3.IntegrityError):
        await asyncio.to_thread(put, path, counts)


async def test_durations_are_read_while_another_process_writes(path: Path, store: SqliteStore) -> None:
    await store.merge_durations(NAMESPACE, {"build": QUICK})

    def begin_write() -> sqlite3.Connection:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        return other

    writer = await asyncio.to_thread(begin_write)
    assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.merge_durations(NAMESPACE, {"build": QUICK})
    await asyncio.to_thread(writer.close)
    assert (await store.merge_durations(NAMESPACE, {"build": QUICK}))["build"].total == 2


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_an_older_file_stores_durations_after_its_migration(path: Path, version: int) -> None:
    await asyncio.to_thread(write_older_file, path, version)
    store = SqliteStore(path)
    await store.open()
    assert await store.merge_durations(NAMESPACE, {}) == {}
    assert await store.merge_durations(NAMESPACE, {"build": QUICK}) == {"build": QUICK}
    assert await store.count_live(EVERYTHING) == {Phase.QUEUED: 3}
    if version >= 3:
        assert await store.get_or_create_secret("older") == b"k" * 32
    await check_invariants(store)
    await store.close()
    await store.open()
    assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}
    await store.close()
