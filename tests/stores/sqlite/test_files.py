"""What the file is like, and what else may be found in its place."""

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
from raincheck.core.payload import encode
from raincheck.core.records import Artifact
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
    """A good store with some tasks in it."""
    store = SqliteStore(path)
    await store.open()
    scene = StoreHarness(store, FakeClock())
    for _ in range(tasks):
        await scene.create(arguments=encode("x" * 1_000))
    await store.close()


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


async def refused(path: Path, kind: type[Exception], advice: str) -> Exception:
    """Opening it fails with this kind of error, which says what to do; and the file is as it was."""
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


async def test_only_its_user_can_read_the_file(tmp_path: Path) -> None:
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


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 1_000)
    await refused(path, NotAStore, "not a SQLite database: name another store")


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE theirs (a)", "PRAGMA user_version = 5", "PRAGMA application_id = 12345"]
)
async def test_a_database_of_another_program_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute(statement)
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


async def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "tasks.db"
    await refused(path, ConfigurationError, f"no folder {path.parent}.*create it first")
    assert not path.parent.exists()


def open_without_rights(path: Path) -> str:
    """What a process says that opens it and is not the superuser, who may do anything."""
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
        # Once with all rights, since modules are imported when first needed and may lie where others can't read.
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
    """A folder that others can get to, though not write in."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o700)


async def test_a_folder_that_may_not_be_entered_is_refused(open_folder: Path) -> None:
    # Neither by others nor by its owner, who runs the tests and may be an ordinary user.
    await asyncio.to_thread(open_folder.chmod, 0o000)
    said = await asyncio.to_thread(open_without_rights, open_folder / "tasks.db")
    assert said.startswith("StoreReadOnly")
    assert "or name another store" in said


@pytest.mark.parametrize("name", ["a\0b", "x" * 5_000])
async def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"can't be a path .*: name another store"):
        await SqliteStore(tmp_path / name).open()


async def test_a_file_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await filled(path)
    path.chmod(0o444)
    said = await asyncio.to_thread(open_without_rights, path)
    assert said.startswith("StoreReadOnly")
    assert f"{path}, or name another store" in said
    # Nothing is left beside it that would be in the way when it has its rights back.
    assert modes_in(open_folder).keys() == {"tasks.db"}


async def test_a_file_that_may_not_be_read_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await filled(path)
    path.chmod(0o000)
    said = await asyncio.to_thread(open_without_rights, path)
    assert said.startswith("StoreReadOnly")
    assert f"{path}, or name another store" in said


async def test_a_folder_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await asyncio.to_thread(open_folder.chmod, 0o555)
    said = await asyncio.to_thread(open_without_rights, path)
    await asyncio.to_thread(open_folder.chmod, 0o755)
    assert said.startswith("StoreReadOnly")
    assert f"check the rights to {open_folder}" in said
    assert not path.exists()


def small_disk(pages: int, path: str, timeout: float) -> sqlite3.Connection:
    """A connection for which the disk is full after so many pages: SQLite then says what it says of a real one."""
    connection = connect(path, timeout)
    connection.execute(f"PRAGMA max_page_count = {pages}")
    return connection


async def test_a_full_disk_fails_what_does_not_fit_and_loses_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db", connect=partial(small_disk, 100))
    await store.open()
    scene = StoreHarness(store, FakeClock())
    task = await scene.create_running()
    large = Artifact("report", encode("x" * 1_000_000), scene.clock.now())
    with pytest.raises(StoreFull, match="free disk space, or prune tasks") as caught:
        await scene.apply(task, Note(1, artifacts=(large,)))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert await scene.load(task) == task
    await scene.apply(task, Note(1, status_message="still there"))
    await check_invariants(store)
    await store.close()


async def test_a_full_disk_fails_nobody_who_commits_at_the_same_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db", connect=partial(small_disk, 100))
    await store.open()
    scene = StoreHarness(store, FakeClock())
    task = await scene.create_running()
    large = Artifact("report", encode("x" * 1_000_000), scene.clock.now())
    outcomes = await asyncio.gather(
        scene.create(),
        scene.apply(task, Note(1, artifacts=(large,))),
        scene.create(),
        return_exceptions=True,
    )
    for outcome in (outcomes[0], outcomes[2]):
        assert not isinstance(outcome, BaseException), outcome
        assert await scene.load(outcome) == outcome
    assert isinstance(outcomes[1], StoreFull)
    await check_invariants(store)
    await store.close()


async def test_a_lock_that_is_never_let_go_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await filled(path)
    store = SqliteStore(path, lock_timeout=0.05)
    await store.open()
    scene = StoreHarness(store, FakeClock())
    release = await hold_lock(path)
    with pytest.raises(StoreUnavailable, match="another process keeps it locked: try again"):
        await scene.create(id="new")
    release()
    await scene.create(id="new")
    await store.close()


async def hold_lock(path: Path) -> Callable[[], None]:
    """Hold the write lock, as a process does that hangs in the middle of a write. Returns what lets it go."""

    def lock() -> sqlite3.Connection:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        return other

    return (await asyncio.to_thread(lock)).close


async def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteStore(path)
    await store.open()
    scene = StoreHarness(store, FakeClock())
    task = await scene.create()
    release = await hold_lock(path)
    writing = asyncio.ensure_future(scene.create())
    for _ in range(10):
        assert await scene.load(task) == task
    assert not writing.done()
    release()
    await writing
    await store.close()
