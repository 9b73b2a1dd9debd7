"""Migrations lead to the schema of `schema.sql`, once, completely, and never backwards."""

import asyncio
import sqlite3
import sys
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

import pytest

from raincheck.core.owner import Owner
from raincheck.core.records import TaskId
from raincheck.errors import SchemaMismatch
from raincheck.sql_files import Migration
from raincheck.stores.memory import MemoryStore
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations, split_statements
from raincheck.testing import FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import ALICE, BOB
from tests.support.stores.older_files import write_task

KNOWN = shipped_migrations()[-1].version
NEXT = Migration(KNOWN + 1, "what", "CREATE TABLE extra (a INTEGER) STRICT; INSERT INTO extra VALUES (1);")
BROKEN = Migration(KNOWN + 2, "broken", "CREATE TABLE more (a INTEGER); INSERT INTO nowhere VALUES (1);")


def schema_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return [(name, " ".join(sql.split())) for name, sql in rows]


def opened(path: Path) -> sqlite3.Connection:
    return connect(str(path), 5)


def test_all_migrations_together_create_the_schema(tmp_path: Path) -> None:
    prepare_file(tmp_path / "tasks.db", connect, 5, shipped_migrations())
    wanted = sqlite3.connect(":memory:")
    for statement in split_statements((files("raincheck.stores.sqlite") / "schema.sql").read_text()):
        wanted.execute(statement)
    assert schema_of(opened(tmp_path / "tasks.db")) == schema_of(wanted)


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.version for migration in shipped_migrations()] == [*range(1, len(shipped_migrations()) + 1)]


def test_an_older_file_is_migrated_and_keeps_its_data(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    prepare_file(path, connect, 5, shipped_migrations())
    opened(path).execute("INSERT INTO changes (task_id, origin) VALUES ('older', '')")
    prepare_file(path, connect, 5, [*shipped_migrations(), NEXT])
    connection = opened(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (KNOWN + 1,)
    assert connection.execute("SELECT a FROM extra").fetchall() == [(1,)]
    assert connection.execute("SELECT task_id FROM changes").fetchall() == [("older",)]


@pytest.mark.anyio
async def test_tasks_that_were_queued_before_turns_existed_get_turns(tmp_path: Path) -> None:
    path, harness = tmp_path / "tasks.db", StoreHarness(MemoryStore(), FakeClock())
    creations = [harness.creation(owner=owner) for owner in (ALICE, ALICE, ALICE, BOB)]
    low, parked = harness.creation(priority=-1), harness.creation(due_at=harness.clock.now() + timedelta(seconds=5))

    def write_version_1() -> None:
        prepare_file(path, connect, 5, shipped_migrations()[:1])
        connection = opened(path)
        for creation in (*creations, low, parked):
            write_task(connection, creation)
        connection.close()

    await asyncio.to_thread(write_version_1)
    store = SqliteStore(path)
    await store.open()
    harness = StoreHarness(store, harness.clock)
    late = await harness.create(id=TaskId("task-9998"), owner=BOB)
    newcomer = await harness.create(id=TaskId("task-9999"), owner=Owner.local())
    one, two, three, bob = (creation.task.id for creation in creations)
    claimed = [(await harness.claim())[0].id for _ in range(7)]
    assert claimed == [one, bob, newcomer.id, two, late.id, three, low.task.id]
    harness.clock.advance(5)
    assert [task.id for task in await harness.claim()] == [parked.task.id]
    await check_invariants(store)
    await store.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    prepare_file(path, connect, 5, shipped_migrations())
    before = schema_of(opened(path))
    with pytest.raises(Exception, match="no such table: nowhere"):
        prepare_file(path, connect, 5, [*shipped_migrations(), NEXT, BROKEN])
    assert schema_of(opened(path)) == before
    assert opened(path).execute("PRAGMA user_version").fetchone() == (KNOWN,)


def test_a_newer_file_is_refused_and_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    prepare_file(path, connect, 5, [*shipped_migrations(), NEXT])
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=rf"version {KNOWN + 1}.*up to {KNOWN}.*upgrade raincheck") as caught:
        prepare_file(path, connect, 5, shipped_migrations())
    assert (caught.value.found, caught.value.known) == (KNOWN + 1, KNOWN)
    assert path.read_bytes() == before


@pytest.mark.anyio
async def test_a_file_that_becomes_newer_while_it_is_open_is_not_written_any_more(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteStore(path)
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create()
    await asyncio.to_thread(lambda: prepare_file(path, connect, 5, [*shipped_migrations(), NEXT]))
    with pytest.raises(SchemaMismatch):
        await harness.create()
    assert await harness.load(task) == task
    await store.close()


MIGRATE = """
import sys
from pathlib import Path
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.sql_files import Migration
from raincheck.stores.sqlite.migrate import shipped_migrations

version = shipped_migrations()[-1].version + 1
more = Migration(version, "more", "CREATE TABLE extra (a INTEGER) STRICT; INSERT INTO extra VALUES (1);")
sys.stdin.readline()
prepare_file(Path(sys.argv[1]), connect, 30, [*shipped_migrations(), more])
"""


@pytest.mark.anyio
@pytest.mark.parametrize("exists", [True, False])
async def test_of_several_processes_that_migrate_at_once_one_does_it(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "tasks.db"
    if exists:
        await asyncio.to_thread(lambda: prepare_file(path, connect, 5, shipped_migrations()))
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", MIGRATE, str(path), stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(6)
    ]
    errors = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [(process.returncode, error) for process, (_, error) in zip(processes, errors, strict=True)] == [
        (0, b"")
    ] * 6
    rows = await asyncio.to_thread(lambda: opened(path).execute("SELECT a FROM extra").fetchall())
    assert rows == [(1,)]
