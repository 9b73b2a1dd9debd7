"""Opening and closing a SQLite store leaves no thread or connection behind, whatever happens meanwhile."""

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raincheck.errors import ConfigurationError, StoreUnavailable
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.connection import connect
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING

pytestmark = pytest.mark.anyio


def connection_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("raincheck-")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = connection_threads()
    yield
    assert connection_threads() == before


async def test_opening_twice_at_once_opens_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await asyncio.gather(store.open(), store.open())
    assert sorted(connection_threads()) == ["raincheck-read", "raincheck-write"]
    await asyncio.gather(store.close(), store.close())


async def test_a_cancelled_open_leaves_no_thread(tmp_path: Path) -> None:
    proceed = threading.Event()

    def slow(path: str, timeout: float) -> sqlite3.Connection:
        if threading.current_thread().name == "raincheck-read":
            reached.set()
            assert proceed.wait(10)
        return connect(path, timeout)

    reached = threading.Event()
    store = SqliteStore(tmp_path / "tasks.db", connect=slow)
    opening = asyncio.ensure_future(store.open())
    assert await asyncio.to_thread(reached.wait, 10)
    opening.cancel()
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await store.open()
    await StoreHarness(store, FakeClock()).create()
    await store.close()


async def test_if_the_reader_can_not_be_opened_the_writer_is_closed(tmp_path: Path) -> None:
    def failing(path: str, timeout: float) -> sqlite3.Connection:
        if threading.current_thread().name == "raincheck-read":
            raise sqlite3.OperationalError("no more descriptors")
        return connect(path, timeout)

    with pytest.raises(Exception, match="no more descriptors"):
        await SqliteStore(tmp_path / "tasks.db", connect=failing).open()


async def test_a_cancelled_close_runs_to_its_end(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.open()
    await StoreHarness(store, FakeClock()).create()
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await store.close()
    assert not (tmp_path / "tasks.db-wal").exists()


async def test_calls_submitted_before_the_close_are_finished(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.open()
    harness = StoreHarness(store, FakeClock())
    creating = [asyncio.ensure_future(harness.create()) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    tasks = await asyncio.gather(*creating)
    await store.open()
    assert [await harness.load(task) for task in tasks] == tasks
    await store.close()


async def test_another_event_loop_can_not_use_an_open_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.open()

    def elsewhere() -> None:
        async def use() -> None:
            with pytest.raises(StoreUnavailable, match="opened by another event loop or process"):
                await StoreHarness(store, FakeClock()).create()

        asyncio.run(use())

    await asyncio.to_thread(elsewhere)
    assert await store.count_live(EVERYTHING) == {}
    await store.close()


async def test_a_file_that_was_removed_or_replaced_takes_no_more_commits(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteStore(path)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    await harness.create()
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink()
    with pytest.raises(StoreUnavailable, match="removed or replaced while it was open: close the store"):
        await harness.create()
    await store.close()
    await store.open()
    task = await harness.create()
    assert await harness.load(task) == task
    await store.close()


async def test_a_relative_path_stays_the_same_file_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("tasks.db")
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.close()
    await store.open()
    assert await harness.load(task) == task
    await store.close()


async def test_a_file_created_behind_a_link_is_readable_only_by_its_user(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real/tasks.db")
    old_mask = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "link.db")
        await store.open()
        mode = stat.S_IMODE((tmp_path / "real/tasks.db").stat().st_mode)
        await store.close()
    finally:
        os.umask(old_mask)
    assert mode == 0o600
    assert repr(store) == f"SqliteStore({str(tmp_path / 'real/tasks.db')!r})"


async def test_an_unknown_sync_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="one of"):
        SqliteStore(tmp_path / "tasks.db", synchronous="OFF")  # type: ignore[arg-type]
