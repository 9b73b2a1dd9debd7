"""A new handle opens existing data. It creates none, and opening it changes none."""

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


async def is_refused(handle: SqliteStore, message: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=message):
            await handle.open()
        await handle.close()


async def test_a_new_handle_on_a_removed_file_is_an_error_and_creates_none(tmp_path: Path, store: SqliteStore) -> None:
    handle = store.new_handle()
    remove(tmp_path / "tasks.db")
    for new_handle in (handle, store.new_handle(), handle.new_handle()):
        await is_refused(new_handle, "the file was removed or replaced")
    assert names_in(tmp_path) == []


async def test_an_open_handle_does_not_recreate_a_removed_file(tmp_path: Path, store: SqliteStore) -> None:
    handle = store.new_handle()
    await handle.open()
    remove(tmp_path / "tasks.db")
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await StoreHarness(handle, FakeClock()).create()
    await handle.close()
    await is_refused(handle, "removed or replaced")
    assert names_in(tmp_path) == []


async def test_a_new_handle_does_not_open_a_replaced_file(tmp_path: Path, store: SqliteStore) -> None:
    other = SqliteStore(tmp_path / "other.db")
    await other.open()
    await other.close()
    # Moved and not removed, so that no other file can get its inode number.
    (tmp_path / "tasks.db").rename(tmp_path / "away.db")
    (tmp_path / "other.db").rename(tmp_path / "tasks.db")
    await is_refused(store.new_handle(), "removed or replaced")


async def test_a_file_removed_while_a_new_handle_opens_is_not_recreated(tmp_path: Path) -> None:
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


async def test_a_new_handle_does_not_migrate(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await asyncio.to_thread(lambda: prepare_file(path, connect, 5, shipped_migrations()[:1]))
    before = path.read_bytes()
    await is_refused(SqliteStore(path).new_handle(), "of an older version: start a server or a worker on it")
    assert path.read_bytes() == before


async def test_a_new_handle_on_a_file_with_a_newer_schema_is_refused(tmp_path: Path, store: SqliteStore) -> None:
    with sqlite3.connect(tmp_path / "tasks.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(SchemaMismatch, match="version 99"):
        await store.new_handle().open()


async def test_a_new_handle_opens_a_file_of_any_name(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "100% done? #1 & ünïcode.db")
    await store.open()
    harness, handle = StoreHarness(store, FakeClock()), store.new_handle()
    task = await harness.create()
    await handle.open()
    assert await StoreHarness(handle, FakeClock()).load(task) == task
    await handle.close()
    await store.close()
    assert names_in(tmp_path) == ["100% done? #1 & ünïcode.db"]


async def test_a_new_handle_without_a_file_descriptor_is_unavailable_and_opens_later(store: SqliteStore) -> None:
    handle = store.new_handle()
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        await is_refused(handle, "unable to open database file")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await handle.open()
    await handle.close()
