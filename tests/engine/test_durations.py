"""How long tasks take: what is seen counts at once, is kept now and then, and is the same for all processes."""

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
from tests.support.engine.harness import QUICK, Bench
from tests.support.engine.observed_store import Watched, a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

NAMESPACE = "default"
CALM = Settings(lease=3_600)
"""However far the clock is moved, nobody takes a task back."""

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


@pytest.fixture
def clock() -> FakeClock:
    return a_clock()


@pytest.fixture
def watched(bench: Bench) -> Watched:
    watched = Watched(bench.store)
    bench.store = watched.as_store
    return watched


def add_work(bench: Bench, clock: FakeClock) -> None:
    """A tool that takes as long as it is told, and ends as it is told."""

    @bench.toolbox.tool(retry=RetryPolicy(attempts=1))
    async def work(seconds: float, fails: bool = False) -> None:
        clock.advance(seconds)
        if fails:
            raise ConnectionError

    @bench.toolbox.tool
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()


async def run(engine: Engine, seconds: float, *, times: int = 1, **arguments: bool) -> None:
    for _ in range(times):
        before = engine.durations.histogram("work").total
        task = await engine.submit("work", {"seconds": seconds, **arguments})
        await engine.wait(task.id)
        # Its end can be read a moment before whoever wrote it knows that it is kept.
        while engine.durations.histogram("work").total == before:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)


async def kept(bench: Bench) -> Mapping[str, DurationHistogram]:
    return await bench.store.merge_durations(NAMESPACE, {})


async def test_tasks_that_completed_or_failed_count_from_their_creation_to_their_end(
    bench: Bench, clock: FakeClock
) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        assert engine.durations.histogram("work") == DurationHistogram()
        await run(engine, 0.5)
        await run(engine, 40.0, fails=True)
        assert engine.durations.histogram("work") == DurationHistogram().with_duration(0.5).with_duration(40.0)
        assert engine.durations.histogram("wait_for_ever") == DurationHistogram()


async def test_one_that_was_cancelled_does_not_count(bench: Bench, clock: FakeClock) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        task = await engine.submit("wait_for_ever")
        await engine.cancel(task.id)
        await run(engine, 1.0)
        assert engine.durations.histogram("wait_for_ever") == DurationHistogram()


async def test_one_that_was_cut_off_by_the_end_of_the_process_does_not_count(bench: Bench) -> None:
    @bench.toolbox.tool(retry=NEVER_TWICE)
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async with bench.working(Settings(grace=0)) as engine:
        task = await engine.submit("wait_for_ever")
        await bench.reach(task.id, Phase.RUNNING)
    assert (await engine.task(task.id)).phase is Phase.FAILED
    assert engine.durations.histogram("wait_for_ever") == DurationHistogram()


async def test_what_is_new_is_kept_and_counts_once(bench: Bench, clock: FakeClock) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        await run(engine, 0.5, times=2)
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await kept(bench))["work"].total == 2
        await run(engine, 0.5)
        assert engine.durations.histogram("work").total == 3
        await engine.durations.refresh()
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await kept(bench))["work"].total == 3


async def test_processes_learn_from_each_other(bench: Bench, clock: FakeClock) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock, works=False) as other, bench.working(CALM, clock=clock) as engine:
        await run(engine, 0.5)
        await engine.durations.refresh()
        assert other.durations.histogram("work") == DurationHistogram()
        await other.durations.refresh()
        assert other.durations.histogram("work") == DurationHistogram().with_duration(0.5)


async def test_it_is_kept_every_few_seconds_and_only_if_there_is_something_new(
    bench: Bench, watched: Watched, clock: FakeClock
) -> None:
    add_work(bench, clock)
    told: list[tuple[float, Mapping[str, DurationHistogram]]] = []

    class Telling:
        def __getattr__(self, name: str) -> Any:
            return getattr(watched, name)

        async def merge_durations(
            self, namespace: str, news: Mapping[str, DurationHistogram]
        ) -> Mapping[str, DurationHistogram]:
            told.append((clock.monotonic(), news))
            return await watched.as_store.merge_durations(namespace, news)

    bench.store = cast("Store", Telling())
    async with bench.working(CALM, clock=clock) as engine:
        await watched.done("merge_durations")
        await run(engine, 0.5)
        while len(told) < 4:
            clock.advance(0.5)
            await asyncio.sleep(0.002)
    assert [news for _, news in told] == [{}, {"work": DurationHistogram().with_duration(0.5)}, {}, {}]
    assert all(after - before >= DURATIONS_INTERVAL for (before, _), (after, _) in pairwise(told))


async def test_what_is_new_when_the_engine_stops_is_kept(bench: Bench, clock: FakeClock) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        await run(engine, 0.5)
    assert (await kept(bench))["work"].total == 1


async def test_while_the_store_is_away_what_is_new_stays(bench: Bench, watched: Watched, clock: FakeClock) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        await watched.done("merge_durations")
        await run(engine, 0.5)
        watched.fail("merge_durations", times=3)
        for total in (1, 2, 3):
            with pytest.raises(StoreUnavailable):
                await engine.durations.refresh()
            assert engine.durations.histogram("work").total == total
            await run(engine, 0.5)
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await kept(bench))["work"].total == 4


async def test_what_is_being_told_counts_once_too(bench: Bench, watched: Watched, clock: FakeClock) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        await watched.done("merge_durations")
        await run(engine, 0.5)
        may_tell, may_hear = watched.hold_up("merge_durations"), watched.hold_up_replies("merge_durations")
        refreshing = asyncio.create_task(engine.durations.refresh())
        await watched.asked("merge_durations")
        await run(engine, 0.5)
        assert engine.durations.histogram("work").total == 2
        may_tell.set()
        await watched.done("merge_durations")
        assert engine.durations.histogram("work").total == 2
        may_hear.set()
        await refreshing
        assert engine.durations.histogram("work").total == 2


async def test_whoever_gives_up_a_refresh_does_not_make_anything_count_twice(
    bench: Bench, watched: Watched, clock: FakeClock
) -> None:
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        await watched.done("merge_durations")
        await run(engine, 0.5)
        may_hear = watched.hold_up_replies("merge_durations")
        refreshing = asyncio.create_task(engine.durations.refresh())
        await watched.done("merge_durations")
        refreshing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await refreshing
        may_hear.set()
        await engine.durations.refresh()
        assert engine.durations.histogram("work").total == (await kept(bench))["work"].total == 1


async def test_a_store_that_can_not_learn_breaks_nothing(bench: Bench) -> None:
    store = bench.store

    class Ignorant:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def merge_durations(self, *_: object) -> Mapping[str, DurationHistogram]:
            raise RuntimeError("what?")

    @bench.toolbox.tool
    async def quick() -> str:
        return "done"

    bench.store = cast("Store", Ignorant())
    async with bench.working(QUICK) as engine:
        for _ in range(2):
            assert await bench.result_of("quick") == "done"
    assert engine.durations.histogram("quick").total == 2


async def test_a_task_that_ends_before_it_was_created_took_no_time(bench: Bench, clock: FakeClock) -> None:
    """Clocks are set back. The task's own time never runs backwards."""
    add_work(bench, clock)
    async with bench.working(CALM, clock=clock) as engine:
        clock.jump_to(clock.now() + timedelta(hours=1))
        await run(engine, -3_600.0)
        assert engine.durations.histogram("work") == DurationHistogram().with_duration(0.0)
