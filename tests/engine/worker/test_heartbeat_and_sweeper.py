"""Leases are extended and swept, expired tasks are pruned, and an unavailable store does no harm."""

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
from raincheck.engine.execution.attempt import AttemptRunner
from raincheck.engine.execution.session import StopReason
from raincheck.engine.worker.heartbeat import Heartbeat
from raincheck.errors import TaskNotFound
from raincheck.stores.base import Store
from raincheck.stores.commit import sweep
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


async def test_a_lease_is_extended_while_a_body_blocks_the_loop_and_a_warning_is_logged(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture, nothing_blocks_the_event_loop: BlockBuster
) -> None:
    if not harness.store.capabilities.shared:
        pytest.skip("a store that can't be used from another thread has no heartbeat thread")
    nothing_blocks_the_event_loop.functions["time.sleep"].deactivate()

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def block(task: TaskContext) -> int:
        time.sleep(2.0)  # noqa: ASYNC251 - that is the point
        return task.attempt

    async with harness.running(Settings(lease=1.5)) as engine:
        task = await engine.submit("block")
        # Another process, which would sweep a task whose lease has expired.
        handle = harness.store.new_handle()
        other = asyncio.to_thread(asyncio.run, sweep_for(handle, seconds=2.2))
        swept, view = await asyncio.gather(other, engine.wait(task.id))
    assert swept == 0
    assert (view.task.phase, view.outcome) == (Phase.COMPLETED, b"1")
    (warning,) = (one for one in caplog.records if "the event loop has not responded" in one.getMessage())
    assert f"{task.id} (block)" in warning.getMessage()


async def sweep_for(store: Store, *, seconds: float) -> int:
    """Sweep constantly, and return how many tasks were swept."""
    ends, swept = time.monotonic() + seconds, 0
    await store.open()
    while time.monotonic() < ends:
        swept += len(await sweep(store, now=make_clock().now()))
        await asyncio.sleep(0.02)
    await store.close()
    return swept


async def test_a_body_that_lost_its_lease_is_stopped_and_the_next_attempt_continues(
    harness: EngineHarness,
) -> None:
    clock, began, stopped = make_clock(), asyncio.Semaphore(0), asyncio.Event()

    @harness.toolbox.tool
    async def hang(task: TaskContext) -> int:
        began.release()
        if task.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return task.attempt

    async with harness.running(clock=clock) as engine:
        task = await engine.submit("hang")
        await began.acquire()
        (taken,) = await sweep(harness.store, now=clock.now() + timedelta(seconds=QUICK.lease))
        assert (taken.id, taken.phase) == (task.id, Phase.QUEUED)
        clock.advance(QUICK.lease)
        await asyncio.wait_for(stopped.wait(), 20)
        assert (await engine.wait(task.id)).outcome == b"2"
    assert await harness.events(task.id) == ["create", "claim", "interrupt", "claim", "complete"]


async def test_the_task_of_a_dead_worker_is_recovered_when_its_lease_has_expired(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool
    async def hang(task: TaskContext) -> int:
        if task.attempt == 1:
            await asyncio.Event().wait()
        return task.attempt

    dead = Engine(harness.store, harness.toolbox, settings=QUICK, clock=clock)
    dead.start()
    task = await dead.submit("hang")
    await dead.wait(task.id, until=lambda task: task.phase is Phase.RUNNING)
    before = set(asyncio.all_tasks())
    # As if its process was dead: none of its code runs any more.
    heartbeat = cast("Heartbeat", vars(vars(dead)["_supervisor"])["_heartbeat"])
    for job in before - {asyncio.current_task()}:
        if job.get_name().startswith(("raincheck", "attempt on", "body of")):
            job.cancel()
    await heartbeat.stop()
    async with harness.running(QUICK, clock=clock) as engine:
        clock.advance(QUICK.lease - 0.2)
        await asyncio.sleep(0.05)
        assert (await engine.view(task.id)).task.attempt_number == 1, "its lease has not expired"
        async with asyncio.timeout(20):
            while not (await engine.view(task.id)).task.is_terminal:
                clock.advance(0.1)
                await asyncio.sleep(0.005)
        assert (await engine.wait(task.id)).outcome == b"2"


async def test_an_engine_does_not_sweep_its_own_live_attempts_after_a_long_sleep(
    harness: EngineHarness,
) -> None:
    clock, may_end = make_clock(), asyncio.Event()

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def hang(task: TaskContext) -> int:
        await may_end.wait()
        return task.attempt

    async with harness.running(Settings(lease=15), clock=clock) as engine:
        task = await engine.submit("hang")
        await harness.reach(task.id, Phase.RUNNING)
        await asyncio.sleep(0.02)
        for hours in (1, 12, -6, 24):
            clock.advance(hours * 3_600)
            await asyncio.sleep(0.05)
            assert (await engine.view(task.id)).task.phase is Phase.RUNNING, hours
        may_end.set()
        assert (await engine.wait(task.id)).outcome == b"1"


async def test_a_lease_that_could_not_be_extended_is_extended_before_anything_is_swept(harness: EngineHarness) -> None:
    clock, may_end, observed = make_clock(), asyncio.Event(), ObservedStore(harness.store)
    harness.store = observed.as_store

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def hang(task: TaskContext) -> int:
        await may_end.wait()
        return task.attempt

    async with harness.running(Settings(lease=15), clock=clock) as engine:
        task = await engine.submit("hang")
        await harness.reach(task.id, Phase.RUNNING)
        await asyncio.sleep(0.02)
        observed.fail("extend_leases", "list_overdue", times=1_000)
        for _ in range(20):
            clock.advance(1)
            await asyncio.sleep(0.005)
        observed.recover()
        for _ in range(5):
            clock.advance(1)
            await asyncio.sleep(0.005)
        assert (await engine.view(task.id)).task.phase is Phase.RUNNING
        may_end.set()
        assert (await engine.wait(task.id)).outcome == b"1"


async def test_expired_tasks_are_pruned_by_default_and_waiters_get_not_found(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool(retention=Retention(keep=timedelta(seconds=100)))
    async def quick() -> str:
        return "done"

    async with harness.running(Settings(), clock=clock) as engine:
        task = await engine.submit("quick")
        await engine.wait(task.id)
        clock.advance(99)
        await asyncio.sleep(0.02)
        assert (await engine.view(task.id)).outcome == b'"done"'
        clock.advance(1)
        with pytest.raises(TaskNotFound):
            await engine.wait(task.id)
        async with asyncio.timeout(20):
            while await is_stored(harness, task):
                clock.advance(10)
                await asyncio.sleep(0.01)


async def is_stored(harness: EngineHarness, task: Task) -> bool:
    """Return whether the store still has the task, expired or not."""
    try:
        await harness.history(task.id)
    except TaskNotFound:
        return False
    return True


async def test_waiting_for_a_task_that_is_pruned_raises_not_found(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool(retention=Retention(keep=timedelta(0)))
    async def quick() -> str:
        return "done"

    async with harness.running(Settings(poll_interval=1_000), works=False, clock=clock) as engine:
        task = await engine.submit("quick")
        waiting = asyncio.create_task(engine.wait(task.id))
        await asyncio.sleep(0.02)
        await engine.cancel(task.id)
        assert await harness.store.prune(now=clock.now(), limit=10) == (task.id,)
        with pytest.raises(TaskNotFound):
            await asyncio.wait_for(waiting, 20)


async def test_an_attempt_far_beyond_its_timeout_does_not_keep_its_lease(harness: EngineHarness) -> None:
    clock = make_clock()
    may_end = asyncio.Event()

    @harness.toolbox.tool(attempt_timeout=30, grace=5, retry=NEVER_TWICE)
    async def deaf() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    async with harness.running(Settings(lease=15), clock=FrozenSleep(clock)) as engine:
        task = await engine.submit("deaf")
        await harness.reach(task.id, Phase.RUNNING)
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
    """A clock on which the timeout of an attempt never expires, as if the event loop was blocked."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.now = clock.now
        self.monotonic = clock.monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds == 30:
            await asyncio.Event().wait()
        await self._clock.sleep(seconds)


async def test_a_result_is_not_lost_if_the_store_is_unavailable(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    observed, runs = ObservedStore(harness.store), list[int]()
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def work(task: TaskContext) -> str:
        runs.append(task.attempt)
        observed.fail("commit", times=2)
        return "done"

    async with harness.running():
        assert await harness.result_of("work") == "done"
    assert runs == [1]
    assert "a write failed, will try again" in caplog.text


async def test_a_result_whose_confirmation_was_lost_is_written_once(harness: EngineHarness) -> None:
    observed, runs = ObservedStore(harness.store), list[int]()
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def work(task: TaskContext) -> str:
        runs.append(task.attempt)
        await task.step("only", lambda: None)
        observed.lose_replies("commit", times=1)
        return "done"

    async with harness.running() as engine:
        task = await engine.submit("work")
        assert (await engine.wait(task.id)).outcome == b'"done"'
    assert runs == [1]
    assert (await harness.events(task.id)).count("complete") == 1


async def test_a_step_whose_confirmation_was_lost_is_recorded_and_the_body_continues(harness: EngineHarness) -> None:
    observed, runs = ObservedStore(harness.store), list[str]()
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def work(task: TaskContext) -> int:
        observed.lose_replies("commit", times=1)
        await task.step("only", runs.append, "ran")
        return task.attempt

    async with harness.running():
        assert await harness.result_of("work") == 1
    assert runs == ["ran"]


async def test_sweeping_is_suspended_for_a_lease_after_the_store_was_unavailable(harness: EngineHarness) -> None:
    clock, observed = make_clock(), ObservedStore(harness.store)
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def work(task: TaskContext) -> int:
        return task.attempt

    async def pass_time(seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            clock.advance(0.05)
            await asyncio.sleep(0.002)

    task = await Engine(harness.store, harness.toolbox, works=False, clock=clock).submit("work")
    lease = timedelta(seconds=QUICK.lease)
    elsewhere = ClaimRequest("default", frozenset({task.tool}), "elsewhere", lease, 1)
    await harness.store.claim(elsewhere, now=clock.now())
    # For a second, in which the other worker can't extend its lease, which expires then.
    observed.fail("list_overdue", times=1)
    async with harness.running(QUICK, clock=clock) as engine:
        await pass_time(1.7)
        assert (await engine.task(task.id)).attempt_number == 1, (
            "the other worker may be alive, and extend its lease soon"
        )
        ending = asyncio.create_task(engine.wait(task.id))
        async with asyncio.timeout(30):
            while not ending.done():
                await pass_time(0.1)
        assert ending.result().outcome == b"2"


async def test_a_claimed_task_is_started_although_its_journal_can_not_be_read_at_first(harness: EngineHarness) -> None:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def work(task: TaskContext) -> int:
        return task.attempt

    async with harness.running():
        observed.fail("journal", times=2)
        assert await harness.result_of("work") == 1


async def test_a_task_that_is_claimed_while_the_engine_stops_is_released(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store
    stops, stop_all = asyncio.Event(), AttemptRunner.stop_all

    def stop_and_report(runner: AttemptRunner, reason: StopReason) -> None:
        stop_all(runner, reason)
        stops.set()

    monkeypatch.setattr(AttemptRunner, "stop_all", stop_and_report)

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def work(task: TaskContext) -> int:
        return task.attempt

    async with harness.running(Settings(grace=0)) as engine:
        may_read = observed.block("journal")
        task = await harness.submit_elsewhere("work")
        await harness.reach(task.id, Phase.RUNNING)
        stopping = asyncio.create_task(engine.stop())
        await stops.wait()
        may_read.set()
        await asyncio.wait_for(stopping, 20)
    assert (await engine.view(task.id)).task.attempt is None, "it does not wait for its lease to expire"
    async with harness.running() as engine:
        assert (await engine.wait(task.id)).outcome == b"2", "it had not started, so it does not run twice"
