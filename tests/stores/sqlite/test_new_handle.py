"""A twin is another handle on data that is there. It makes none, and changes none by being opened."""

import asyncio
import os
import resource
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from raincheck.errors import SchemaMismatch, StoreUnavailable
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.testing import FakeClock, StoreHarness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.open()
    yield store
    await store.close()


def remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def is_refused(twin: SqliteStore, why: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=why):
            await twin.open()
        await twin.close()


async def test_a_twin_of_a_file_that_is_gone_says_so_and_makes_none(tmp_path: Path, store: SqliteStore) -> None:
    twin = store.new_handle()
    remove(tmp_path / "tasks.db")
    for one in (twin, store.new_handle(), twin.new_handle()):
        await is_refused(one, "the file was removed or replaced")
    assert names_in(tmp_path) == []


async def test_a_twin_that_was_open_before_the_file_went_does_not_make_it_either(
    tmp_path: Path, store: SqliteStore
) -> None:
    twin = store.new_handle()
    await twin.open()
    remove(tmp_path / "tasks.db")
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await StoreHarness(twin, FakeClock()).create()
    await twin.close()
    await is_refused(twin, "removed or replaced")
    assert names_in(tmp_path) == []


async def test_a_twin_does_not_take_another_file_for_its_own(tmp_path: Path, store: SqliteStore) -> None:
    other = SqliteStore(tmp_path / "other.db")
    await other.open()
    await other.close()
    # Moved away and not removed, so that nothing else can get its number.
    (tmp_path / "tasks.db").rename(tmp_path / "away.db")
    (tmp_path / "other.db").rename(tmp_path / "tasks.db")
    await is_refused(store.new_handle(), "removed or replaced")


async def test_a_file_that_goes_while_a_twin_is_opened_is_not_made_anew(tmp_path: Path) -> None:
    path, goes_now = tmp_path / "tasks.db", asyncio.Event()

    def connect_too_late(name: str, timeout: float) -> sqlite3.Connection:
        if goes_now.is_set():
            remove(path)
        return connect(name, timeout)

    store = SqliteStore(path, connect=connect_too_late)
    await store.open()
    goes_now.set()
    with pytest.raises(StoreUnavailable):
        await store.new_handle().open()
    await store.close()
    assert names_in(tmp_path) == []


async def test_a_twin_does_not_migrate(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await asyncio.to_thread(lambda: prepare_file(path, connect, 5, shipped_migrations()[:1]))
    before = path.read_bytes()
    await is_refused(SqliteStore(path).new_handle(), "of an older version: start a server or a worker on it")
    assert path.read_bytes() == before


async def test_a_twin_of_a_file_that_is_newer_by_now_is_refused(tmp_path: Path, store: SqliteStore) -> None:
    with sqlite3.connect(tmp_path / "tasks.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(SchemaMismatch, match="version 99"):
        await store.new_handle().open()


async def test_a_file_of_any_name_is_found_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "100% done? #1 & ünïcode.db")
    await store.open()
    scene, twin = StoreHarness(store, FakeClock()), store.new_handle()
    task = await scene.create()
    await twin.open()
    assert await StoreHarness(twin, FakeClock()).load(task) == task
    await twin.close()
    await store.close()
    assert names_in(tmp_path) == ["100% done? #1 & ünïcode.db"]


async def test_a_twin_without_a_file_descriptor_is_unavailable_and_opens_when_there_is_one(store: SqliteStore) -> None:
    twin = store.new_handle()
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        await is_refused(twin, "unable to open database file")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await twin.open()
    await twin.close()
