"""Concurrent commits cost one sync, and each stays atomic."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.commands import Complete, Note
from raincheck.core.records import Task, TaskId
from raincheck.core.values import encode
from raincheck.errors import AlreadyRecorded, StoreError, StoreUnavailable
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.requests import HeldAttempt
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.threads import IDLE_CHECKPOINT_AFTER, MAX_BATCH, WAL_LIMIT
from raincheck.testing import FakeClock, SimulatedCrash, StoreHarness, check_invariants
from raincheck.testing.harness import EVERYTHING

pytestmark = pytest.mark.anyio


class CountingConnection(sqlite3.Connection):
    statements: list[str]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.statements.append(sql)
        return super().execute(sql, parameters)


def counting_connect(statements: list[str], path: str, timeout: float) -> sqlite3.Connection:
    factory = type("Counting", (CountingConnection,), {"statements": statements})
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=factory)


@pytest.fixture
def statements() -> list[str]:
    return []


@pytest.fixture
async def harness(tmp_path: Path, statements: list[str]) -> AsyncIterator[StoreHarness]:
    store = SqliteStore(tmp_path / "tasks.db", connect=partial(counting_connect, statements))
    await store.open()
    yield StoreHarness(store, FakeClock())
    await check_invariants(store)
    await store.close()


async def test_concurrent_commits_are_synced_once(harness: StoreHarness, statements: list[str]) -> None:
    statements.clear()
    await asyncio.gather(*(harness.create() for _ in range(64)))
    assert statements.count("COMMIT") == 1
    assert len([sql for sql in statements if sql.startswith("INSERT INTO tasks")]) == 64


async def test_a_call_that_fails_after_writing_is_rolled_back_alone(
    harness: StoreHarness, statements: list[str]
) -> None:
    task = await harness.create_running()
    task = await harness.apply(task, Note(1, steps=(harness.step("load"),)))
    statements.clear()
    # The step exists, which shows only after the record and its history entry are written.
    bad = harness.apply(task, Note(1, status_message="half", steps=(harness.step("load"),)))
    outcomes = await asyncio.gather(harness.create(), bad, harness.create(), return_exceptions=True)
    assert isinstance(outcomes[1], AlreadyRecorded)
    assert await harness.load(task) == task
    for outcome in (outcomes[0], outcomes[2]):
        assert isinstance(outcome, Task)
        assert await harness.load(outcome) == outcome
    assert "ROLLBACK" in statements


async def test_a_call_that_fails_before_writing_costs_no_extra_commit(
    harness: StoreHarness, statements: list[str]
) -> None:
    task = await harness.create()
    statements.clear()
    bad = harness.create(id=task.id)
    outcomes = await asyncio.gather(harness.create(), bad, return_exceptions=True)
    assert isinstance(outcomes[1], AlreadyRecorded)
    assert statements.count("COMMIT") == 1
    assert "ROLLBACK" not in statements


class StoppingConnection(sqlite3.Connection):
    """Stops in the middle of a write, and continues on demand."""

    stopped: threading.Event
    proceed: threading.Event

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql.startswith("UPDATE tasks") and "completed" in str(parameters):
            self.stopped.set()
            assert self.proceed.wait(10)
        return super().execute(sql, parameters)


async def test_a_cancelled_caller_leaves_all_or_nothing_and_feeds_are_notified(tmp_path: Path) -> None:
    stopped, proceed = threading.Event(), threading.Event()
    factory = type("Stopping", (StoppingConnection,), {"stopped": stopped, "proceed": proceed})
    store = SqliteStore(
        tmp_path / "tasks.db",
        connect=lambda path, timeout: sqlite3.connect(path, timeout, isolation_level=None, factory=factory),
    )
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create_running()
    with store.listen() as feed:
        finishing = asyncio.ensure_future(harness.apply(task, Complete(1, encode("done"))))
        assert await asyncio.to_thread(stopped.wait, 10)
        finishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finishing
        proceed.set()
        async with asyncio.timeout(10):
            async for hint in feed:
                if task.id in hint:
                    break
    view = await store.view(task.id, EVERYTHING, now=harness.clock.now())
    assert (view.task.is_terminal, view.outcome) == (True, encode("done"))
    await store.close()


async def test_an_unexpected_driver_error_reaches_only_its_caller(harness: StoreHarness) -> None:
    with pytest.raises(OverflowError):
        await harness.store.extend_leases([HeldAttempt(TaskId("any"), 2**70)], until=harness.clock.now())
    await harness.create()


class BreakingConnection(sqlite3.Connection):
    """Breaks in a way that no store can handle."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if "break" in str(parameters):
            raise SimulatedCrash
        return super().execute(sql, parameters)


async def test_a_thread_that_breaks_fails_all_waiting_callers_with_the_reason(tmp_path: Path) -> None:
    store = SqliteStore(
        tmp_path / "tasks.db",
        connect=lambda path, timeout: sqlite3.connect(path, timeout, isolation_level=None, factory=BreakingConnection),
    )
    await store.open()
    harness = StoreHarness(store, FakeClock())
    outcomes = await asyncio.gather(
        harness.create(), harness.create(id="break"), harness.create(), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [SimulatedCrash] * 3
    with pytest.raises(StoreUnavailable, match=r"an unexpected error stopped it .*: close the store and open it again"):
        await harness.create()
    await store.close()
    await store.open()
    await harness.create()
    await check_invariants(store)
    await store.close()


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_the_sync_mode_of_the_store_is_set_on_its_connections(tmp_path: Path, synchronous: Any) -> None:
    statements: list[str] = []
    connect = partial(counting_connect, statements)
    store = SqliteStore(tmp_path / "tasks.db", synchronous=synchronous, connect=connect)
    await store.open()
    await store.close()
    assert f"PRAGMA synchronous = {synchronous}" in statements


async def test_the_log_is_moved_into_the_file_when_it_is_large_and_when_it_is_quiet(
    tmp_path: Path, harness: StoreHarness
) -> None:
    wal = tmp_path / "tasks.db-wal"
    large = encode("x" * 900_000)
    largest = 0
    for _ in range(20):
        await harness.create(arguments=large)
        largest = max(largest, wal.stat().st_size)
    assert largest < WAL_LIMIT + 2_000_000
    await harness.create()
    # Nothing is submitted any more, so the thread is idle and then moves the rest.
    async with asyncio.timeout(20 * IDLE_CHECKPOINT_AFTER):
        while wal.stat().st_size:  # noqa: ASYNC110 - a file sends no event when it shrinks
            await asyncio.sleep(0.01)


async def test_a_log_that_grew_large_restarts_in_its_existing_file(
    tmp_path: Path, harness: StoreHarness, statements: list[str]
) -> None:
    wal = tmp_path / "tasks.db-wal"
    sizes: list[int] = []
    while not sizes or sizes[-1] < 2 * WAL_LIMIT:
        await harness.create(arguments=encode("x" * 200_000))
        sizes.append(wal.stat().st_size)
        if sum("RESTART" in statement for statement in statements) == 3:
            break
    moved = [statement for statement in statements if "wal_checkpoint" in statement]
    assert moved == ["PRAGMA wal_checkpoint(RESTART)"] * 3
    assert sizes == sorted(sizes)


async def test_a_long_read_of_another_connection_is_not_waited_for_repeatedly(
    tmp_path: Path, harness: StoreHarness, statements: list[str]
) -> None:
    wal = tmp_path / "tasks.db-wal"

    def begin_reading() -> sqlite3.Connection:
        other = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM tasks").fetchone()
        return other

    await harness.create()
    reader = await asyncio.to_thread(begin_reading)
    statements.clear()
    for _ in range(40):
        await harness.create(arguments=encode("x" * 900_000))
    # 36 megabytes: tried at 4, 8, 16 and 32 of them, or a little later.
    assert 3 <= sum("wal_checkpoint" in statement for statement in statements) <= 4
    await asyncio.to_thread(reader.close)
    async with asyncio.timeout(60):
        while wal.stat().st_size:  # noqa: ASYNC110 - a file sends no event when it shrinks
            await asyncio.sleep(0.01)


async def test_the_size_of_a_batch_is_limited(harness: StoreHarness, statements: list[str]) -> None:
    statements.clear()
    await asyncio.gather(*(harness.create() for _ in range(4 * MAX_BATCH)))
    assert 2 <= statements.count("COMMIT") <= 4


async def test_one_failing_call_among_many_costs_no_sync_for_each(harness: StoreHarness, statements: list[str]) -> None:
    task = await harness.create_running()
    task = await harness.apply(task, Note(1, steps=(harness.step("load"),)))
    statements.clear()
    bad = harness.apply(task, Note(1, status_message="half", steps=(harness.step("load"),)))
    outcomes = await asyncio.gather(bad, *(harness.create() for _ in range(50)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [AlreadyRecorded] + [Task] * 50
    assert await harness.load(task) == task
    # The failing call reads its task before it writes, so the rest may be one batch ahead of it.
    assert statements.count("COMMIT") <= 2


class FailingConnection(sqlite3.Connection):
    """Fails on demand: at a commit, or in the middle of a call together with the whole transaction."""

    fail_commits = 0
    gives_up_at = "INSERT INTO history"

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT" and type(self).fail_commits:
            type(self).fail_commits -= 1
            raise sqlite3.OperationalError("the disk is gone")
        if sql.startswith(self.gives_up_at) and "give up" in str(parameters):
            super().execute("ROLLBACK")
            raise sqlite3.OperationalError("rolled back by itself")
        return super().execute(sql, parameters)


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[tuple[StoreHarness, type[FailingConnection]]]:
    factory = type("Failing", (FailingConnection,), {})
    store = SqliteStore(
        tmp_path / "tasks.db",
        connect=lambda path, timeout: sqlite3.connect(path, timeout, isolation_level=None, factory=factory),
    )
    await store.open()
    yield StoreHarness(store, FakeClock()), factory
    await check_invariants(store)
    await store.close()


@pytest.mark.parametrize("times", [1, 2])
async def test_a_commit_that_fails_for_a_batch_is_retried_call_by_call(
    failing: tuple[StoreHarness, type[FailingConnection]], times: int
) -> None:
    harness, factory = failing
    factory.fail_commits = times
    tasks = await asyncio.gather(*(harness.create() for _ in range(5)))
    assert [await harness.load(task) for task in tasks] == tasks


async def test_a_commit_that_fails_for_a_single_call_is_an_error_and_stores_nothing(
    failing: tuple[StoreHarness, type[FailingConnection]],
) -> None:
    harness, factory = failing
    factory.fail_commits = 1
    with pytest.raises(StoreError, match="the disk is gone"):
        await harness.create(id=TaskId("lost"))
    await harness.create(id=TaskId("lost"))


@pytest.mark.parametrize("gives_up_at", ["INSERT INTO tasks", "INSERT INTO history"])
async def test_a_call_that_makes_sqlite_roll_back_does_not_fail_the_rest_of_its_batch(
    failing: tuple[StoreHarness, type[FailingConnection]], gives_up_at: str
) -> None:
    harness, factory = failing
    factory.gives_up_at = gives_up_at
    outcomes = await asyncio.gather(
        harness.create(), harness.create(id="give up", actor="give up"), harness.create(), return_exceptions=True
    )
    assert [isinstance(outcome, Task) for outcome in outcomes] == [True, False, True]
    for outcome in (outcomes[0], outcomes[2]):
        assert isinstance(outcome, Task)
        assert await harness.load(outcome) == outcome
    assert await harness.store.count_live(EVERYTHING) == {"queued": 2}


async def test_automatic_checkpoints_are_off_on_the_writers_connection(tmp_path: Path) -> None:
    statements: list[str] = []
    store = SqliteStore(tmp_path / "tasks.db", connect=partial(counting_connect, statements))
    await store.open()
    await store.close()
    assert "PRAGMA wal_autocheckpoint = 0" in statements
    assert "PRAGMA query_only = ON" in statements


class InterleavingConnection(sqlite3.Connection):
    """Lets another connection write in the middle of a read."""

    meanwhile: list[Callable[[], None]]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql.startswith("SELECT name, occurrence"):
            for act in self.meanwhile:
                act()
        return super().execute(sql, parameters)


async def test_reads_with_several_statements_see_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    def add_a_step() -> None:
        with sqlite3.connect(path) as other:
            other.execute("INSERT INTO steps VALUES (NULL, 1, 'late', 0, '', x'31', 1, 0)")

    factory = type("Interleaving", (InterleavingConnection,), {"meanwhile": [add_a_step]})
    store = SqliteStore(
        path, connect=lambda path, timeout: sqlite3.connect(path, timeout, isolation_level=None, factory=factory)
    )
    await store.open()
    harness = StoreHarness(store, FakeClock())
    task = await harness.create_running()
    # A journal without steps is read with one statement.
    await harness.apply(task, Note(1, steps=(harness.step("load"),)))
    journal = await store.journal(task.id, EVERYTHING, now=harness.clock.now())
    assert [step.name for step in journal.steps] == ["load"]
    factory.meanwhile.clear()
    journal = await store.journal(task.id, EVERYTHING, now=harness.clock.now())
    assert [step.name for step in journal.steps] == ["load", "late"]
    await store.close()


class DeafConnection(sqlite3.Connection):
    """Can't read the log of changes once."""

    is_deaf = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if "min(seq)" in sql and type(self).is_deaf:
            type(self).is_deaf = False
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, parameters)


async def test_after_a_failed_poll_the_feed_reports_any_task(tmp_path: Path) -> None:
    factory = type("Deaf", (DeafConnection,), {})
    store = SqliteStore(
        tmp_path / "tasks.db",
        connect=lambda path, timeout: sqlite3.connect(path, timeout, isolation_level=None, factory=factory),
    )
    await store.open()
    with store.listen() as feed:
        async with asyncio.timeout(10):
            assert await anext(feed) == ANY_TASK
            factory.is_deaf = True
            assert await anext(feed) == ANY_TASK
    assert not factory.is_deaf
    await store.close()
