"""A directly started task gets a full lease, and keeps nothing of its submitter alive."""

import asyncio
import gc
import sqlite3
import weakref
from contextlib import closing
from contextvars import ContextVar, copy_context
from datetime import timedelta
from pathlib import Path

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.engine import Settings
from raincheck.stores.commit import sweep
from raincheck.stores.sqlite import SqliteStore
from tests.support.engine.harness import EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio


class Request:
    """The request of a caller that submits a task."""


served: ContextVar[Request | None] = ContextVar("served", default=None)


def hold_write_lock(path: Path) -> sqlite3.Connection:
    """Hold the write lock of the file, as another process that is writing does."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def add_gated(harness: EngineHarness) -> asyncio.Event:
    gate = asyncio.Event()

    @harness.toolbox.tool
    async def gated() -> None:
        await gate.wait()

    return gate


async def test_a_task_whose_creation_had_to_wait_gets_a_full_lease(harness: EngineHarness) -> None:
    observed, clock = ObservedStore(harness.store), make_clock()
    harness.store = observed.as_store
    gate = add_gated(harness)
    async with harness.running(Settings(lease=15.0), clock=clock) as engine:
        may_create = observed.block("create")
        submitting = asyncio.ensure_future(engine.submit("gated"))
        await observed.wait_called("create")
        clock.advance(12)
        may_create.set()
        task = await submitting
        while True:
            seen = await engine.task(task.id)
            assert seen.attempt is not None
            if seen.attempt.lease.expires_at == clock.now() + timedelta(seconds=15):
                break
            await asyncio.sleep(0)
        gate.set()


async def test_a_task_whose_creation_waited_for_another_process_keeps_its_lease(tmp_path: Path) -> None:
    path, clock, lease = tmp_path / "tasks.db", make_clock(), timedelta(hours=1)
    store, elsewhere = SqliteStore(path, synchronous="NORMAL"), SqliteStore(path, synchronous="NORMAL")
    await store.open()
    await elsewhere.open()
    harness, began, gate = EngineHarness(store), asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    async def gated() -> None:
        began.set()
        await gate.wait()

    settings = Settings(lease=lease.total_seconds(), poll_interval=86_400.0)
    async with harness.running(settings, clock=clock) as engine:
        with closing(await asyncio.to_thread(hold_write_lock, path)) as other:
            submitting = asyncio.ensure_future(engine.submit("gated"))
            assert not (await engine.list_tasks()).tasks, "it waits for the lock"
            asked_at = clock.now()
            clock.advance(lease.total_seconds() * 0.6)
            await asyncio.to_thread(other.rollback)
        task = await submitting
        await began.wait()
        assert await sweep(elsewhere, now=asked_at + lease + timedelta(seconds=1)) == ()
        seen = await engine.task(task.id)
        assert seen.attempt is not None
        assert (seen.phase, seen.attempt_number) == (Phase.RUNNING, 1)
        assert seen.attempt.lease.expires_at == clock.now() + lease
        gate.set()
        assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
    await elsewhere.close()
    await store.close()


async def test_a_task_whose_lease_can_not_be_renewed_is_run_anyway(harness: EngineHarness) -> None:
    observed, clock = ObservedStore(harness.store), make_clock()
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with harness.running(Settings(lease=15.0), clock=clock) as engine, asyncio.timeout(10):
        may_create = observed.block("create")
        submitting = asyncio.ensure_future(engine.submit("quick"))
        await observed.wait_called("create")
        clock.advance(12)
        observed.fail("extend_leases", times=1)
        may_create.set()
        assert (await engine.wait((await submitting).id)).outcome == b'"done"'


async def test_an_attempt_does_not_keep_its_submitters_request_alive(harness: EngineHarness) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def gated() -> None:
        began.set()
        await gate.wait()

    async def ask() -> "weakref.ref[Request]":
        request = Request()
        served.set(request)
        await engine.submit("gated")
        return weakref.ref(request)

    async with harness.running() as engine:
        seen: list[weakref.ref[Request]] = []
        asking = asyncio.get_running_loop().create_task(ask(), context=copy_context())
        asking.add_done_callback(lambda done: seen.append(done.result()))
        del asking
        # Each collection blocks the event loop, and a store that has yet to connect needs many of its turns.
        await began.wait()
        while not seen or seen[0]() is not None:
            # Until the test times out, if the request is kept alive.
            await asyncio.sleep(0.05)
            gc.collect()
        gate.set()
