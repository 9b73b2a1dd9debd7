"""The file of a SQLite store, and other things that may be found in its place."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from raincheck.core.commands import Note
from raincheck.core.records import Artifact
from raincheck.core.values import encode
from raincheck.errors import (
    ConfigurationError,
    NotAStore,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.connection import connect
from raincheck.testing import FakeClock, StoreHarness, check_invariants

pytestmark = pytest.mark.anyio


async def filled(path: Path, tasks: int = 3) -> None:
    """A valid store with some tasks in it."""
    store = SqliteStore(path)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    for _ in range(tasks):
        await harness.create(arguments=encode("x" * 1_000))
    await store.close()


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


async def refused(path: Path, kind: type[Exception], advice: str) -> Exception:
    """Check that opening fails with this kind of error, with advice, and that the file is unchanged."""
    before = content_of(path)
    store = SqliteStore(path)
    with pytest.raises(kind, match=advice) as caught:
        await store.open()
    await store.close()
    assert content_of(path) == before
    if isinstance(caught.value, StoreError):
        assert str(path) in str(caught.value)
    return caught.value


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def test_a_new_file_is_readable_only_by_its_user(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "tasks.db")
        await store.open()
        await StoreHarness(store, FakeClock()).create()
        modes = modes_in(tmp_path)
        await store.close()
    finally:
        os.umask(old_mask)
    assert modes == {"tasks.db": 0o600, "tasks.db-wal": 0o600, "tasks.db-shm": 0o600}


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "tasks.db").touch()
    await filled(tmp_path / "tasks.db")


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 1_000)
    await refused(path, NotAStore, "not a SQLite database: name another store")


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE foreign_table (a)", "PRAGMA user_version = 5", "PRAGMA application_id = 12345"]
)
async def test_a_database_of_another_program_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "foreign.db"
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    await refused(path, NotAStore, "another program: name another store")


async def test_a_store_of_a_newer_raincheck_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await filled(path)
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA journal_mode = DELETE")
        newer.execute("PRAGMA user_version = 99")
    await refused(path, SchemaMismatch, "version 99.*upgrade raincheck, or name another store")


async def test_a_damaged_file_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await filled(path, tasks=200)
    whole = path.read_bytes()
    path.write_bytes(whole[:8_192] + b"\xff" * (len(whole) - 8_192))
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match=r"damaged.*restore a backup") as caught:
        await open_and_read(store)
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    await store.close()


async def open_and_read(store: SqliteStore) -> None:
    await store.open()
    await check_invariants(store)


async def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    await refused(tmp_path, ConfigurationError, "is a folder: name a file in it")


async def test_a_missing_folder_is_named_in_the_error_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "tasks.db"
    await refused(path, ConfigurationError, f"no folder {path.parent}.*create it first")
    assert not path.parent.exists()


def open_without_rights(path: Path) -> str:
    """Return the message of a process that opens the file as a user other than root."""
    program = f"""
    import asyncio, os, tempfile
    from pathlib import Path
    from raincheck.errors import RaincheckError
    from raincheck.stores.sqlite import SqliteStore

    async def opens(path):
        store = SqliteStore(path)
        try:
            await store.open()
        except RaincheckError as error:
            return type(error).__name__ + ": " + str(error)
        finally:
            await store.close()

    async def main():
        # Once as root, since modules are imported on demand, and may be in folders that other users can't read.
        with tempfile.TemporaryDirectory() as folder:
            await opens(Path(folder) / "tasks.db")
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        print(await opens(Path({str(path)!r})))

    asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter but not write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o700)


async def test_an_inaccessible_folder_is_refused(open_folder: Path) -> None:
    # Neither by other users nor by its owner, which runs the tests and may be an ordinary user.
    await asyncio.to_thread(open_folder.chmod, 0o000)
    message = await asyncio.to_thread(open_without_rights, open_folder / "tasks.db")
    assert message.startswith("StoreReadOnly")
    assert "or name another store" in message


@pytest.mark.parametrize("name", ["a\0b", "x" * 5_000])
async def test_an_invalid_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"can't be a path .*: name another store"):
        await SqliteStore(tmp_path / name).open()


async def test_an_unwritable_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await filled(path)
    path.chmod(0o444)
    message = await asyncio.to_thread(open_without_rights, path)
    assert message.startswith("StoreReadOnly")
    assert f"{path}, or name another store" in message
    # No file is left beside it that would block it after its permissions are restored.
    assert modes_in(open_folder).keys() == {"tasks.db"}


async def test_an_unreadable_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await filled(path)
    path.chmod(0o000)
    message = await asyncio.to_thread(open_without_rights, path)
    assert message.startswith("StoreReadOnly")
    assert f"{path}, or name another store" in message


async def test_an_unwritable_folder_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await asyncio.to_thread(open_folder.chmod, 0o555)
    message = await asyncio.to_thread(open_without_rights, path)
    await asyncio.to_thread(open_folder.chmod, 0o755)
    assert message.startswith("StoreReadOnly")
    assert f"check the permissions of {open_folder}" in message
    assert not path.exists()


def small_disk(pages: int, path: str, timeout: float) -> sqlite3.Connection:
    """A connection for which the disk is full after this many pages: SQLite raises the same error as for a real one."""
    connection = connect(path, timeout)
    connection.execute(f"PRAGMA max_page_count = {pages}")
    return connection


async def test_a_full_disk_fails_the_write_and_loses_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db", connect=partial(small_disk, 100))
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create_running()
    large = Artifact("report", encode("x" * 1_000_000), harness.clock.now())
    with pytest.raises(StoreFull, match="free disk space, or prune tasks") as caught:
        await harness.apply(task, Note(1, artifacts=(large,)))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert await harness.load(task) == task
    await harness.apply(task, Note(1, status_message="still there"))
    await check_invariants(store)
    await store.close()


async def test_a_write_that_hits_a_full_disk_does_not_fail_concurrent_commits(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db", connect=partial(small_disk, 100))
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create_running()
    large = Artifact("report", encode("x" * 1_000_000), harness.clock.now())
    outcomes = await asyncio.gather(
        harness.create(),
        harness.apply(task, Note(1, artifacts=(large,))),
        harness.create(),
        return_exceptions=True,
    )
    for outcome in (outcomes[0], outcomes[2]):
        assert not isinstance(outcome, BaseException), outcome
        assert await harness.load(outcome) == outcome
    assert isinstance(outcomes[1], StoreFull)
    await check_invariants(store)
    await store.close()


async def test_a_lock_that_is_never_released_is_an_error_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await filled(path)
    store = SqliteStore(path, lock_timeout=0.05)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    release = await hold_lock(path)
    with pytest.raises(StoreUnavailable, match="another process holds its lock: try again"):
        await harness.create(id="new")
    release()
    await harness.create(id="new")
    await store.close()


async def hold_lock(path: Path) -> Callable[[], None]:
    """Hold the write lock, as a process that hangs during a write. Return a function that releases it."""

    def lock() -> sqlite3.Connection:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        return other

    return (await asyncio.to_thread(lock)).close


async def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteStore(path)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create()
    release = await hold_lock(path)
    writing = asyncio.ensure_future(harness.create())
    for _ in range(10):
        assert await harness.load(task) == task
    assert not writing.done()
    release()
    await writing
    await store.close()
