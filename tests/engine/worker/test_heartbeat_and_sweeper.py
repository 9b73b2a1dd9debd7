"""Keeping: leases are extended and taken back, what has expired is forgotten, and a store that is away comes back."""

import asyncio
import logging
import time
from datetime import timedelta
from typing import cast

import pytest
from blockbuster import BlockBuster

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import Task
from raincheck.engine import Engine, Settings, TaskContext
from raincheck.engine.worker.heartbeat import Heartbeat
from raincheck.errors import TaskNotFound
from raincheck.stores.base import Store
from raincheck.stores.commit import sweep
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, Bench
from tests.support.engine.observed_store import Watched, a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


async def test_a_lease_is_extended_while_a_body_blocks_the_loop_and_somebody_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture, nothing_blocks_the_event_loop: BlockBuster
) -> None:
    if not bench.store.capabilities.shared:
        pytest.skip("a store that can't be used from another thread has no keeper of its own")
    nothing_blocks_the_event_loop.functions["time.sleep"].deactivate()

    @bench.toolbox.tool(retry=NEVER_TWICE)
    async def block(task: TaskContext) -> int:
        time.sleep(2.0)  # noqa: ASYNC251 - that is the point
        return task.attempt

    async with bench.working(Settings(lease=1.5)) as engine:
        task = await engine.submit("block")
        # Another process, which would take over what has no live lease.
        twin = bench.store.new_handle()
        other = asyncio.to_thread(asyncio.run, sweep_for(twin, seconds=2.2))
        swept, view = await asyncio.gather(other, engine.wait(task.id))
    assert swept == 0
    assert (view.task.phase, view.outcome) == (Phase.COMPLETED, b"1")
    (warning,) = (one for one in caplog.records if "the event loop has not answered" in one.getMessage())
    assert f"{task.id} (block)" in warning.getMessage()


async def sweep_for(store: Store, *, seconds: float) -> int:
    """Sweep all the time, and say how many tasks were taken back."""
    ends, swept = time.monotonic() + seconds, 0
    await store.open()
    while time.monotonic() < ends:
        swept += len(await sweep(store, now=a_clock().now()))
        await asyncio.sleep(0.02)
    await store.close()
    return swept


async def test_a_body_whose_lease_was_taken_away_is_stopped_and_the_next_attempt_goes_on(bench: Bench) -> None:
    clock, began, stopped = a_clock(), asyncio.Semaphore(0), asyncio.Event()

    @bench.toolbox.tool
    async def hang(task: TaskContext) -> int:
        began.release()
        if task.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return task.attempt

    async with bench.working(clock=clock) as engine:
        task = await engine.submit("hang")
        await began.acquire()
        (taken,) = await sweep(bench.store, now=clock.now() + timedelta(seconds=QUICK.lease))
        assert (taken.id, taken.phase) == (task.id, Phase.QUEUED)
        clock.advance(QUICK.lease)
        await asyncio.wait_for(stopped.wait(), 20)
        assert (await engine.wait(task.id)).outcome == b"2"
    assert await bench.events(task.id) == ["create", "claim", "interrupt", "claim", "complete"]


async def test_what_a_dead_worker_held_is_taken_back_when_its_lease_has_run_out(bench: Bench) -> None:
    clock = a_clock()

    @bench.toolbox.tool
    async def hang(task: TaskContext) -> int:
        if task.attempt == 1:
            await asyncio.Event().wait()
        return task.attempt

    dead = Engine(bench.store, bench.toolbox, settings=QUICK, clock=clock)
    dead.start()
    task = await dead.submit("hang")
    await dead.wait(task.id, until=lambda task: task.phase is Phase.RUNNING)
    before = set(asyncio.all_tasks())
    # As if its process were gone: nothing of it runs any more, and it says nothing.
    keeper = cast("Heartbeat", vars(vars(dead)["_supervisor"])["_heartbeat"])
    for job in before - {asyncio.current_task()}:
        if job.get_name().startswith(("raincheck", "attempt on", "body of")):
            job.cancel()
    await keeper.stop()
    async with bench.working(QUICK, clock=clock) as engine:
        clock.advance(QUICK.lease - 0.2)
        await asyncio.sleep(0.05)
        assert (await engine.view(task.id)).task.attempt_number == 1, "its lease has not run out"
        async with asyncio.timeout(20):
            while not (await engine.view(task.id)).task.is_terminal:
                clock.advance(0.1)
                await asyncio.sleep(0.005)
        assert (await engine.wait(task.id)).outcome == b"2"


async def test_an_engine_does_not_take_its_own_live_attempts_for_dead_after_a_long_sleep(bench: Bench) -> None:
    clock, may_end = a_clock(), asyncio.Event()

    @bench.toolbox.tool(retry=NEVER_TWICE)
    async def hang(task: TaskContext) -> int:
        await may_end.wait()
        return task.attempt

    async with bench.working(Settings(lease=15), clock=clock) as engine:
        task = await engine.submit("hang")
        await bench.reach(task.id, Phase.RUNNING)
        await asyncio.sleep(0.02)
        for hours in (1, 12, -6, 24):
            clock.advance(hours * 3_600)
            await asyncio.sleep(0.05)
            assert (await engine.view(task.id)).task.phase is Phase.RUNNING, hours
        may_end.set()
        assert (await engine.wait(task.id)).outcome == b"1"


async def test_a_lease_that_could_not_be_extended_is_extended_before_anything_is_swept(bench: Bench) -> None:
    clock, may_end, watched = a_clock(), asyncio.Event(), Watched(bench.store)
    bench.store = watched.as_store

    @bench.toolbox.tool(retry=NEVER_TWICE)
    async def hang(task: TaskContext) -> int:
        await may_end.wait()
        return task.attempt

    async with bench.working(Settings(lease=15), clock=clock) as engine:
        task = await engine.submit("hang")
        await bench.reach(task.id, Phase.RUNNING)
        await asyncio.sleep(0.02)
        watched.fail("extend_leases", "list_overdue", times=1_000)
        for _ in range(20):
            clock.advance(1)
            await asyncio.sleep(0.005)
        watched.recover()
        for _ in range(5):
            clock.advance(1)
            await asyncio.sleep(0.005)
        assert (await engine.view(task.id)).task.phase is Phase.RUNNING
        may_end.set()
        assert (await engine.wait(task.id)).outcome == b"1"


async def test_what_has_expired_is_forgotten_by_default_and_whoever_waits_is_told(bench: Bench) -> None:
    clock = a_clock()

    @bench.toolbox.tool(retention=Retention(keep=timedelta(seconds=100)))
    async def quick() -> str:
        return "done"

    async with bench.working(Settings(), clock=clock) as engine:
        task = await engine.submit("quick")
        await engine.wait(task.id)
        clock.advance(99)
        await asyncio.sleep(0.02)
        assert (await engine.view(task.id)).outcome == b'"done"'
        clock.advance(1)
        with pytest.raises(TaskNotFound):
            await engine.wait(task.id)
        async with asyncio.timeout(20):
            while await is_stored(bench, task):
                clock.advance(10)
                await asyncio.sleep(0.01)


async def is_stored(bench: Bench, task: Task) -> bool:
    """Whether the store still has it, expired or not."""
    try:
        await bench.history(task.id)
    except TaskNotFound:
        return False
    return True


async def test_whoever_waits_for_a_task_that_is_forgotten_is_woken_and_told(bench: Bench) -> None:
    clock = a_clock()

    @bench.toolbox.tool(retention=Retention(keep=timedelta(0)))
    async def quick() -> str:
        return "done"

    async with bench.working(Settings(poll_interval=1_000), works=False, clock=clock) as engine:
        task = await engine.submit("quick")
        waiting = asyncio.create_task(engine.wait(task.id))
        await asyncio.sleep(0.02)
        await engine.cancel(task.id)
        assert await bench.store.prune(now=clock.now(), limit=10) == (task.id,)
        with pytest.raises(TaskNotFound):
            await asyncio.wait_for(waiting, 20)


async def test_an_attempt_that_should_long_be_over_does_not_keep_its_lease_for_ever(bench: Bench) -> None:
    clock = a_clock()
    may_end = asyncio.Event()

    @bench.toolbox.tool(attempt_timeout=30, grace=5, retry=NEVER_TWICE)
    async def deaf() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    async with bench.working(Settings(lease=15), clock=FrozenSleep(clock)) as engine:
        task = await engine.submit("deaf")
        await bench.reach(task.id, Phase.RUNNING)
        try:
            async with asyncio.timeout(20):
                while (ended := (await engine.view(task.id)).task).phase is Phase.RUNNING:
                    clock.advance(1)
                    await asyncio.sleep(0.01)
            assert "was interrupted" in (ended.status_message or "")
            assert timedelta(seconds=30) < ended.updated_at - ended.created_at < timedelta(seconds=70)
        finally:
            may_end.set()


class FrozenSleep:
    """A clock on which an attempt is never told that its time is over: as if the loop were blocked just then."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.now = clock.now
        self.monotonic = clock.monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds == 30:
            await asyncio.Event().wait()
        await self._clock.sleep(seconds)


async def test_a_result_is_not_lost_when_the_store_is_away_just_then(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    watched, runs = Watched(bench.store), list[int]()
    bench.store = watched.as_store

    @bench.toolbox.tool
    async def work(task: TaskContext) -> str:
        runs.append(task.attempt)
        watched.fail("commit", times=2)
        return "done"

    async with bench.working():
        assert await bench.result_of("work") == "done"
    assert runs == [1]
    assert "will try again to write" in caplog.text


async def test_a_result_whose_receipt_was_lost_is_written_once(bench: Bench) -> None:
    watched, runs = Watched(bench.store), list[int]()
    bench.store = watched.as_store

    @bench.toolbox.tool
    async def work(task: TaskContext) -> str:
        runs.append(task.attempt)
        await task.step("only", lambda: None)
        watched.lose_replies("commit", times=1)
        return "done"

    async with bench.working() as engine:
        task = await engine.submit("work")
        assert (await engine.wait(task.id)).outcome == b'"done"'
    assert runs == [1]
    assert (await bench.events(task.id)).count("complete") == 1


async def test_a_step_whose_receipt_was_lost_is_recorded_and_the_body_goes_on(bench: Bench) -> None:
    watched, runs = Watched(bench.store), list[str]()
    bench.store = watched.as_store

    @bench.toolbox.tool
    async def work(task: TaskContext) -> int:
        watched.lose_replies("commit", times=1)
        await task.step("only", runs.append, "ran")
        return task.attempt

    async with bench.working():
        assert await bench.result_of("work") == 1
    assert runs == ["ran"]


async def test_nothing_is_taken_back_until_a_lease_after_the_store_was_away(bench: Bench) -> None:
    clock, watched = a_clock(), Watched(bench.store)
    bench.store = watched.as_store

    @bench.toolbox.tool
    async def work(task: TaskContext) -> int:
        return task.attempt

    async def pass_time(seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            clock.advance(0.05)
            await asyncio.sleep(0.002)

    task = await Engine(bench.store, bench.toolbox, works=False, clock=clock).submit("work")
    lease = timedelta(seconds=QUICK.lease)
    elsewhere = ClaimRequest("default", frozenset({task.tool}), "elsewhere", lease, 1)
    await bench.store.claim(elsewhere, now=clock.now())
    # For a second, in which whoever has it can't extend its lease, which ends then.
    watched.fail("list_overdue", times=1)
    async with bench.working(QUICK, clock=clock) as engine:
        await pass_time(1.7)
        assert (await engine.task(task.id)).attempt_number == 1, "whoever has it may live, and say so soon"
        ending = asyncio.create_task(engine.wait(task.id))
        async with asyncio.timeout(30):
            while not ending.done():
                await pass_time(0.1)
        assert ending.result().outcome == b"2"


async def test_a_task_that_was_claimed_is_begun_although_the_store_is_away_just_then(bench: Bench) -> None:
    watched = Watched(bench.store)
    bench.store = watched.as_store

    @bench.toolbox.tool(retry=NEVER_TWICE)
    async def work(task: TaskContext) -> int:
        return task.attempt

    async with bench.working():
        watched.fail("journal", times=2)
        assert await bench.result_of("work") == 1


async def test_a_task_that_is_claimed_just_as_the_engine_stops_is_handed_back_too(bench: Bench) -> None:
    watched = Watched(bench.store)
    bench.store = watched.as_store

    @bench.toolbox.tool(retry=NEVER_TWICE)
    async def work(task: TaskContext) -> int:
        return task.attempt

    async with bench.working(Settings(grace=0)) as engine:
        may_read = watched.hold_up("journal")
        task = await bench.queue("work")
        await bench.reach(task.id, Phase.RUNNING)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.05)
        may_read.set()
        await asyncio.wait_for(stopping, 20)
    assert (await engine.view(task.id)).task.attempt is None, "nobody waits for its lease"
    async with bench.working() as engine:
        assert (await engine.wait(task.id)).outcome == b"2", "it had not begun, so it is not begun twice"
