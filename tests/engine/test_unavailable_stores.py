"""Long outages of the store, jumps of the clock and missing hints lose no work."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Task
from raincheck.core.values import Json
from raincheck.engine import Engine, Settings, TaskContext
from raincheck.engine.execution.session import REFRESH_RETRY_DELAY
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ChangeFeed
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


async def let_time_pass(engine: Engine, task: Task, clock: FakeClock) -> None:
    """Until the task has ended."""
    while not (await engine.view(task.id)).task.is_terminal:
        clock.advance(1)
        await asyncio.sleep(0.001)


async def test_a_result_is_not_lost_if_the_store_is_unavailable_for_long(harness: EngineHarness) -> None:
    observed, clock = ObservedStore(harness.store), make_clock()
    harness.store = observed.as_store
    ran: list[int] = []

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def once(task: TaskContext) -> str:
        ran.append(task.attempt)
        observed.fail("commit", times=50)
        return "all that work"

    async with harness.running(Settings(lease=3_600), clock=clock) as engine:
        task = await engine.submit("once")
        await let_time_pass(engine, task, clock)
        assert await engine.result(task.id) == "all that work"
    assert ran == [1]


async def test_a_step_waits_for_an_unavailable_store_and_is_not_run_again(harness: EngineHarness) -> None:
    observed, clock = ObservedStore(harness.store), make_clock()
    harness.store = observed.as_store
    ran: list[int] = []

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def once(task: TaskContext) -> str:
        observed.fail("commit", times=20)
        await task.step("step", ran.append, task.attempt)
        return "done"

    async with harness.running(Settings(lease=3_600), clock=clock) as engine:
        task = await engine.submit("once")
        await let_time_pass(engine, task, clock)
        assert await engine.result(task.id) == "done"
    assert ran == [1]


async def test_a_cancel_reaches_the_body_soon_after_a_long_outage(harness: EngineHarness) -> None:
    slept: list[float] = []

    class RecordingClock(FakeClock):
        def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
            slept.append(seconds)
            return super().sleep(seconds)

    inner, clock = harness.store, RecordingClock(make_clock().now())
    observed = ObservedStore(inner)
    harness.store = observed.as_store
    started, stopped = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with harness.running(Settings(lease=3_600), clock=clock) as engine:
        task = await engine.submit("work")
        await started.wait()
        observed.fail("load", times=20)
        await Engine(inner, harness.toolbox, clock=clock, works=False).cancel(task.id)
        while not stopped.is_set():
            clock.advance(0.5)
            await asyncio.sleep(0.001)
    assert slept.count(REFRESH_RETRY_DELAY) >= 20, "each failed read is tried again soon, without a backoff"


class Deaf:
    """A store whose feed never says anything."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def listen(self) -> Generator[ChangeFeed]:
        yield ChangeFeed()


async def test_without_any_hints_everything_happens_by_polling(harness: EngineHarness) -> None:
    harness.store = cast("Store", Deaf(harness.store))
    stopped = asyncio.Event()

    @harness.toolbox.tool
    async def ask_beside_work(task: TaskContext) -> Json:
        async def work() -> None:
            await asyncio.Event().wait()

        working = asyncio.create_task(task.step("work", work))
        reply = await task.elicit("?", {"type": "object"})
        working.cancel()
        return reply.action

    @harness.toolbox.tool
    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with harness.running(QUICK) as engine:
        asking, waiting = await engine.submit("ask_beside_work"), await engine.submit("wait_for_ever")
        for task in (asking, waiting):
            await harness.reach(task.id, Phase.RUNNING)
        await engine.wait(asking.id, until=lambda task: task.open_inputs == 1)
        # The step keeps it from parking, so that only a look at the task shows the answer.
        await engine.answer(asking.id, {"elicit-0": {"action": "accept", "content": {}}})
        assert await engine.result(asking.id) == "accept"
        await engine.cancel(waiting.id)
        await asyncio.wait_for(stopped.wait(), 20)


async def test_attempts_of_other_workers_are_not_swept_when_the_clock_jumps_ahead(harness: EngineHarness) -> None:
    """As when a machine wakes up: every lease on it has ended, and every holder is alive."""
    clock = make_clock()
    may_end = asyncio.Event()

    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def alive(task: TaskContext) -> int:
        await may_end.wait()
        return task.attempt

    observed = ObservedStore(harness.store)
    async with harness.running(Settings(lease=15), clock=clock) as engine:
        task = await engine.submit("alive")
        await harness.reach(task.id, Phase.RUNNING)
        async with Engine(observed.as_store, harness.toolbox, settings=Settings(lease=15), clock=clock, works=False):
            # The first one does not get to do anything for a while.
            bench_store_beats = observed.calls["list_overdue"]
            clock.jump_to(clock.now() + timedelta(minutes=10))
            for _ in range(20):
                clock.advance(0.5)
                await asyncio.sleep(0.001)
            assert (await engine.view(task.id)).task.phase is Phase.RUNNING
            # After the time of a lease it looks again.
            while observed.calls["list_overdue"] == bench_store_beats:
                clock.advance(1)
                await asyncio.sleep(0.001)
        may_end.set()
        assert await engine.result(task.id) == 1


async def test_a_body_that_slept_past_its_lease_reads_its_task_before_its_next_step(harness: EngineHarness) -> None:
    """A suspended process that continues does not run a step of a task that another worker has by then."""
    clock = make_clock()
    may_go_on = asyncio.Event()
    ran: list[str] = []

    @harness.toolbox.tool
    async def work(task: TaskContext) -> None:
        await task.step("first", ran.append, "first")
        await may_go_on.wait()
        await task.step("second", ran.append, "second")

    store = cast("Store", Deaf(harness.store))
    async with harness.running(Settings(lease=15), works=False) as engine:
        task = await engine.submit("work")
        async with Engine(store, harness.toolbox, settings=Settings(lease=15, grace=0), clock=clock):
            await engine.wait(task.id, until=lambda task: task.failures == 0 and task.entries >= 3)
            await engine.cancel(task.id)
            clock.jump_to(clock.now() + timedelta(minutes=10))
            may_go_on.set()
            await asyncio.sleep(0.05)
    assert ran == ["first"]
