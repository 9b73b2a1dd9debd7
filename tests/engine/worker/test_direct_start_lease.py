"""What a task that is begun directly has of its own: a whole lease, and nothing of whoever asked for it."""

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
from tests.support.engine.harness import Bench
from tests.support.engine.observed_store import Watched, a_clock

pytestmark = pytest.mark.anyio


class Request:
    """What somebody is served with, who asks for a task."""


served: ContextVar[Request | None] = ContextVar("served", default=None)


def hold_write_lock(path: Path) -> sqlite3.Connection:
    """What another process does that writes to the file, and is not done yet."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def add_gated(bench: Bench) -> asyncio.Event:
    gate = asyncio.Event()

    @bench.toolbox.tool
    async def gated() -> None:
        await gate.wait()

    return gate


async def test_one_whose_commit_had_to_wait_has_a_whole_lease(bench: Bench) -> None:
    watched, clock = Watched(bench.store), a_clock()
    bench.store = watched.as_store
    gate = add_gated(bench)
    async with bench.working(Settings(lease=15.0), clock=clock) as engine:
        others_have_written = watched.hold_up("create")
        submitting = asyncio.ensure_future(engine.submit("gated"))
        await watched.asked("create")
        clock.advance(12)
        others_have_written.set()
        task = await submitting
        while True:
            seen = await engine.task(task.id)
            assert seen.attempt is not None
            if seen.attempt.lease.expires_at == clock.now() + timedelta(seconds=15):
                break
            await asyncio.sleep(0)
        gate.set()


async def test_one_that_had_to_wait_for_another_process_keeps_its_lease(tmp_path: Path) -> None:
    path, clock, lease = tmp_path / "tasks.db", a_clock(), timedelta(hours=1)
    store, elsewhere = SqliteStore(path, synchronous="NORMAL"), SqliteStore(path, synchronous="NORMAL")
    await store.open()
    await elsewhere.open()
    bench, began, gate = Bench(store), asyncio.Event(), asyncio.Event()

    @bench.toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    async def gated() -> None:
        began.set()
        await gate.wait()

    settings = Settings(lease=lease.total_seconds(), poll_interval=86_400.0)
    async with bench.working(settings, clock=clock) as engine:
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


async def test_one_whose_lease_can_not_be_renewed_is_run_all_the_same(bench: Bench) -> None:
    watched, clock = Watched(bench.store), a_clock()
    bench.store = watched.as_store

    @bench.toolbox.tool
    async def quick() -> str:
        return "done"

    async with bench.working(Settings(lease=15.0), clock=clock) as engine, asyncio.timeout(10):
        others_have_written = watched.hold_up("create")
        submitting = asyncio.ensure_future(engine.submit("quick"))
        await watched.asked("create")
        clock.advance(12)
        watched.fail("extend_leases", times=1)
        others_have_written.set()
        assert (await engine.wait((await submitting).id)).outcome == b'"done"'


async def test_an_attempt_does_not_keep_the_request_that_asked_for_it(bench: Bench) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    @bench.toolbox.tool
    async def gated() -> None:
        began.set()
        await gate.wait()

    async def ask() -> "weakref.ref[Request]":
        request = Request()
        served.set(request)
        await engine.submit("gated")
        return weakref.ref(request)

    async with bench.working() as engine:
        seen: list[weakref.ref[Request]] = []
        asking = asyncio.get_running_loop().create_task(ask(), context=copy_context())
        asking.add_done_callback(lambda done: seen.append(done.result()))
        del asking
        # Each collection blocks the event loop, and a store that has yet to connect needs many of its turns.
        await began.wait()
        while not seen or seen[0]() is not None:
            # Until the time is up, if it is kept.
            await asyncio.sleep(0.05)
            gc.collect()
        gate.set()
