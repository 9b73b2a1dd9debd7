"""Durations of tasks count at once, are saved at intervals, and are shared by all processes."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import pytest

from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.engine import Engine, Settings
from raincheck.engine.worker.supervisor import DURATIONS_INTERVAL
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Store
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

NAMESPACE = "default"
CALM = Settings(lease=3_600)
"""No task is swept, however far the clock is moved."""

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


@pytest.fixture
def clock() -> FakeClock:
    return make_clock()


@pytest.fixture
def observed(harness: EngineHarness) -> ObservedStore:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store
    return observed


def add_work(harness: EngineHarness, clock: FakeClock) -> None:
    """Add a tool that takes this many seconds and fails on request, and an endless one."""

    @harness.toolbox.tool(retry=RetryPolicy(attempts=1))
    async def work(seconds: float, fails: bool = False) -> None:
        clock.advance(seconds)
        if fails:
            raise ConnectionError

    @harness.toolbox.tool
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()


async def run(engine: Engine, seconds: float, *, times: int = 1, **arguments: bool) -> None:
    for _ in range(times):
        before = engine.durations.histogram("work").total
        task = await engine.submit("work", {"seconds": seconds, **arguments})
        await engine.wait(task.id)
        # The end can be read a moment before its writer knows that it is stored.
        while engine.durations.histogram("work").total == before:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)


async def stored_durations(harness: EngineHarness) -> Mapping[str, DurationHistogram]:
    return await harness.store.merge_durations(NAMESPACE, {})


async def test_tasks_that_completed_or_failed_count_from_their_creation_to_their_end(
    harness: EngineHarness, clock: FakeClock
) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        assert engine.durations.histogram("work") == DurationHistogram()
        await run(engine, 0.5)
        await run(engine, 40.0, fails=True)
        assert engine.durations.histogram("work") == DurationHistogram().with_duration(0.5).with_duration(40.0)
        assert engine.durations.histogram("wait_for_ever") == DurationHistogram()


async def test_a_cancelled_task_does_not_count(harness: EngineHarness, clock: FakeClock) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        task = await engine.submit("wait_for_ever")
        await engine.cancel(task.id)
        await run(engine, 1.0)
        assert engine.durations.histogram("wait_for_ever") == DurationHistogram()


async def test_a_task_interrupted_by_the_end_of_the_engine_does_not_count(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async with harness.running(Settings(grace=0)) as engine:
        task = await engine.submit("wait_for_ever")
        await harness.reach(task.id, Phase.RUNNING)
    assert (await engine.task(task.id)).phase is Phase.FAILED
    assert engine.durations.histogram("wait_for_ever") == DurationHistogram()


async def test_new_durations_are_saved_and_count_once(harness: EngineHarness, clock: FakeClock) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        await run(engine, 0.5, times=2)
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await stored_durations(harness))["work"].total == 2
        await run(engine, 0.5)
        assert engine.durations.histogram("work").total == 3
        await engine.durations.refresh()
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await stored_durations(harness))["work"].total == 3


async def test_processes_share_durations(harness: EngineHarness, clock: FakeClock) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock, works=False) as other, harness.running(CALM, clock=clock) as engine:
        await run(engine, 0.5)
        await engine.durations.refresh()
        assert other.durations.histogram("work") == DurationHistogram()
        await other.durations.refresh()
        assert other.durations.histogram("work") == DurationHistogram().with_duration(0.5)


async def test_durations_are_saved_at_intervals_and_only_if_there_are_new_ones(
    harness: EngineHarness, observed: ObservedStore, clock: FakeClock
) -> None:
    add_work(harness, clock)
    merges: list[tuple[float, Mapping[str, DurationHistogram]]] = []

    class RecordingStore:
        def __getattr__(self, name: str) -> Any:
            return getattr(observed, name)

        async def merge_durations(
            self, namespace: str, changes: Mapping[str, DurationHistogram]
        ) -> Mapping[str, DurationHistogram]:
            merges.append((clock.monotonic(), changes))
            return await observed.as_store.merge_durations(namespace, changes)

    harness.store = cast("Store", RecordingStore())
    async with harness.running(CALM, clock=clock) as engine:
        await observed.wait_done("merge_durations")
        await run(engine, 0.5)
        while len(merges) < 4:
            clock.advance(0.5)
            await asyncio.sleep(0.002)
    assert [changes for _, changes in merges] == [{}, {"work": DurationHistogram().with_duration(0.5)}, {}, {}]
    assert all(after - before >= DURATIONS_INTERVAL for (before, _), (after, _) in pairwise(merges))


async def test_durations_that_are_new_at_the_stop_are_saved(harness: EngineHarness, clock: FakeClock) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        await run(engine, 0.5)
    assert (await stored_durations(harness))["work"].total == 1


async def test_new_durations_stay_while_the_store_is_unavailable(
    harness: EngineHarness, observed: ObservedStore, clock: FakeClock
) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        await observed.wait_done("merge_durations")
        await run(engine, 0.5)
        observed.fail("merge_durations", times=3)
        for total in (1, 2, 3):
            with pytest.raises(StoreUnavailable):
                await engine.durations.refresh()
            assert engine.durations.histogram("work").total == total
            await run(engine, 0.5)
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await stored_durations(harness))["work"].total == 4


async def test_durations_that_are_being_saved_count_once(
    harness: EngineHarness, observed: ObservedStore, clock: FakeClock
) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        await observed.wait_done("merge_durations")
        await run(engine, 0.5)
        may_save, may_return = observed.block("merge_durations"), observed.block_replies("merge_durations")
        refreshing = asyncio.create_task(engine.durations.refresh())
        await observed.wait_called("merge_durations")
        await run(engine, 0.5)
        assert engine.durations.histogram("work").total == 2
        may_save.set()
        await observed.wait_done("merge_durations")
        assert engine.durations.histogram("work").total == 2
        may_return.set()
        await refreshing
        assert engine.durations.histogram("work").total == 2


async def test_durations_count_once_if_a_refresh_is_cancelled(
    harness: EngineHarness, observed: ObservedStore, clock: FakeClock
) -> None:
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        await observed.wait_done("merge_durations")
        await run(engine, 0.5)
        may_return = observed.block_replies("merge_durations")
        refreshing = asyncio.create_task(engine.durations.refresh())
        await observed.wait_done("merge_durations")
        refreshing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await refreshing
        may_return.set()
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await stored_durations(harness))["work"].total == 1


async def test_a_store_that_can_not_merge_durations_breaks_nothing(harness: EngineHarness) -> None:
    store = harness.store

    class FailingStore:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def merge_durations(self, *_: object) -> Mapping[str, DurationHistogram]:
            raise RuntimeError("durations are not supported")

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    harness.store = cast("Store", FailingStore())
    async with harness.running(QUICK) as engine:
        for _ in range(2):
            assert await harness.result_of("quick") == "done"
    assert engine.durations.histogram("quick").total == 2


async def test_a_task_that_ends_before_it_was_created_took_no_time(harness: EngineHarness, clock: FakeClock) -> None:
    """A clock that was set back does not make a duration negative."""
    add_work(harness, clock)
    async with harness.running(CALM, clock=clock) as engine:
        clock.jump_to(clock.now() + timedelta(hours=1))
        await run(engine, -3_600.0)
        assert engine.durations.histogram("work") == DurationHistogram().with_duration(0.0)
