"""Following what runs in the same process: its end is told and not read, and is what everybody else reads."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import Retention, RetryPolicy
from raincheck.core.records import View
from raincheck.engine import Engine, TaskContext
from raincheck.engine.follow import FollowTimer
from raincheck.errors import TaskNotFound, ToolError
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK
from tests.support.engine.harness import QUICK, Bench
from tests.support.engine.hinting_store import TellsBeforehand
from tests.support.engine.observed_store import Watched, a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

ALICE, BOB = (Owner.token("https://example.com", name) for name in ("alice", "bob"))
SELDOM = replace(QUICK, poll_interval=1_000.0, lease=3_600.0)
"""It looks at nothing that nobody told of."""


@pytest.fixture
def watched(bench: Bench) -> Watched:
    watched = Watched(bench.store)
    bench.store = watched.as_store
    return watched


def add_gated(bench: Bench) -> asyncio.Event:
    """A tool that ends as it is told, when its gate is open."""
    gate = asyncio.Event()

    @bench.toolbox.tool(retry=RetryPolicy(attempts=1))
    async def gated(how: str, task: TaskContext) -> dict[str, str]:
        await gate.wait()
        if how == "asks":
            await task.elicit("How?", {"type": "object"})
        if how == "reports":
            raise ToolError("not today")
        if how == "raises":
            raise ConnectionError
        return {"how": how}

    return gate


async def all_of(engine: Engine, task_id: str, owner: Owner = ALICE) -> list[View]:
    return [view async for view in engine.follow(task_id, owner=owner)]


@pytest.mark.parametrize("how", ["returns", "reports", "raises"])
async def test_the_end_that_is_told_is_the_one_that_is_kept(bench: Bench, watched: Watched, how: str) -> None:
    gate = add_gated(bench)
    async with bench.working(SELDOM) as engine:
        tasks = [await engine.submit("gated", {"how": how}, owner=ALICE) for _ in range(5)]
        following = [asyncio.create_task(all_of(engine, task.id)) for task in tasks]
        await watched.asked("view")
        gate.set()
        told = [views[-1] for views in await asyncio.gather(*following)]
        if not bench.store.capabilities.shared:
            # Otherwise there may be hints about other processes, which make everybody look again.
            assert watched.calls["view"] == 5, "each was read when it was first looked at"
        assert told == [await bench.store.view(task.id, Scope.everything(), now=task.created_at) for task in tasks]
        assert all(view.task.is_terminal for view in told)


async def test_nobody_is_told_of_somebody_elses_task(bench: Bench, watched: Watched) -> None:
    gate = add_gated(bench)
    gate.set()
    async with bench.working(SELDOM) as engine:
        may_read = watched.hold_up("view")
        task = await engine.submit("gated", {"how": "returns"}, owner=ALICE)
        theirs = [asyncio.create_task(all_of(engine, task.id, owner)) for owner in (BOB, Owner.local())]
        # In which order is not known. That it is the first of so many is unlikely, and then nothing is at stake.
        follow_all = engine.follow_all([task.id, *(f"unknown-{number}" for number in range(50))], owner=BOB)
        theirs_of_many = asyncio.ensure_future(anext(follow_all, None))
        # It ends while they are still about to read it.
        await watched.done("commit")
        may_read.set()
        for following in theirs:
            with pytest.raises(TaskNotFound):
                await following
        assert await theirs_of_many is None
        with pytest.raises(TaskNotFound):
            await anext(engine.follow(task.id, owner=BOB, last_seen=task))


async def test_whoever_knows_of_somebody_elses_task_is_told_at_once_that_there_is_none(bench: Bench) -> None:
    gate = add_gated(bench)
    async with bench.working(SELDOM) as engine:
        task = await engine.submit("gated", {"how": "returns"}, owner=ALICE)
        async with asyncio.timeout(5):
            with pytest.raises(TaskNotFound):
                await anext(engine.follow(task.id, owner=BOB, last_seen=task))
        gate.set()


@asynccontextmanager
async def working_undisturbed(bench: Bench) -> AsyncGenerator[Engine]:
    """An engine that is told only of what happens to tasks."""
    with bench.store.listen() as feed:
        async with bench.working(SELDOM) as engine:
            if bench.store.capabilities.shared:
                # When it first looks, such a store says that anything may have changed, and everything is read.
                assert await anext(feed) == ANY_TASK
            yield engine


async def test_whoever_has_just_submitted_it_need_not_read_it(bench: Bench, watched: Watched) -> None:
    gate = add_gated(bench)
    async with working_undisturbed(bench) as engine:
        task = await engine.submit("gated", {"how": "returns"})
        views = engine.follow(task.id, last_seen=task)
        first = asyncio.ensure_future(anext(views))
        await asyncio.sleep(0)
        gate.set()
        assert (await first).task.phase is Phase.COMPLETED
        assert [view async for view in views] == []
        assert watched.calls["view"] == 0


async def test_what_has_happened_since_it_was_known_is_told(bench: Bench) -> None:
    gate = add_gated(bench)
    async with bench.working(SELDOM) as engine:
        task = await engine.submit("gated", {"how": "asks"})
        gate.set()
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        async with aclosing(engine.follow(task.id, last_seen=task)) as views:
            assert [one.key for one in (await anext(views)).inputs] == ["elicit-0"]
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
        end = await engine.wait(task.id)
        assert [view async for view in engine.follow(task.id, last_seen=task)] == [end]
        assert [view async for view in engine.follow(task.id, last_seen=end.task)] == [end]


async def test_what_an_attempt_did_since_it_was_known_is_told_while_it_goes_on(bench: Bench) -> None:
    gate = add_gated(bench)
    gate.set()
    async with bench.working(replace(SELDOM, park_after=3_600.0)) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"how": "asks"})
        asked = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        assert asked.task.attempt is not None, "it waits in its place"
        async with aclosing(engine.follow(task.id, last_seen=task)) as views:
            told = await anext(views)
        # Not the whole task: its lease may have been prolonged in between.
        assert (told.task.version, told.inputs) == (asked.task.version, asked.inputs)
        await engine.cancel(task.id)


async def test_one_that_runs_elsewhere_is_read_though_one_like_it_runs_here(bench: Bench) -> None:
    gate = add_gated(bench)
    async with bench.working(SELDOM) as engine, asyncio.timeout(10):
        here = await engine.submit("gated", {"how": "returns"})
        async with Engine(bench.store, bench.toolbox, settings=SELDOM) as elsewhere:
            there = await elsewhere.submit("gated", {"how": "returns"})
            assert (there.phase, there.version) == (here.phase, here.version)
            await elsewhere.cancel(there.id)
            # So that the hint has come and gone before anybody follows.
            await engine.wait(there.id)
            phases = [view.task.phase async for view in engine.follow(there.id, last_seen=there)]
            assert phases == [Phase.CANCELLED]
        gate.set()


async def test_a_follower_who_begins_late_does_not_miss_the_end(bench: Bench) -> None:
    """Between `follow` and its first step, the task may have ended."""
    gate = add_gated(bench)
    gate.set()
    async with bench.working(SELDOM) as engine:
        task = await engine.submit("gated", {"how": "returns"})
        views = engine.follow(task.id, last_seen=task)
        await engine.wait(task.id)
        assert [view.task.phase async for view in views] == [Phase.COMPLETED]


async def test_an_end_is_seen_that_is_not_kept_at_all(bench: Bench) -> None:
    @bench.toolbox.tool(retention=Retention(keep=timedelta(0)))
    async def gone_at_once() -> str:
        return "seen"

    async with bench.working(SELDOM) as engine:
        for _ in range(5):
            task = await engine.submit("gone_at_once")
            assert [view.outcome async for view in engine.follow(task.id, last_seen=task)] == [b'"seen"']


async def test_an_end_is_seen_that_was_kept_when_the_task_was_known_and_is_not_kept_now(
    bench: Bench, watched: Watched
) -> None:
    clock = a_clock()

    @bench.toolbox.tool(retention=Retention(keep=timedelta(seconds=60)))
    async def gone_soon() -> str:
        return "seen"

    async with bench.working(SELDOM, clock=clock) as engine:
        task = await engine.submit("gone_soon")
        await engine.wait(task.id)
        watched.hold_up("prune")
        clock.advance(120)
        with pytest.raises(TaskNotFound):
            await engine.view(task.id)
        assert [view.outcome async for view in engine.follow(task.id, last_seen=task)] == [b'"seen"']
        watched.let_all_through()


async def test_an_end_is_seen_though_something_of_the_attempt_goes_on(bench: Bench) -> None:
    may_end, clock, began = threading.Event(), a_clock(), asyncio.Event()

    @bench.toolbox.tool(attempt_timeout=60, grace=0.05, retry=RetryPolicy(attempts=1))
    async def stubborn(task: TaskContext) -> None:
        began.set()
        await task.step("wait", may_end.wait)

    async with bench.working(SELDOM, clock=clock) as engine:
        try:
            task = await engine.submit("stubborn")
            async with asyncio.timeout(10):
                await began.wait()
                clock.advance(60)
                end = await engine.wait(task.id)
                assert [view async for view in engine.follow(task.id, last_seen=end.task)] == [end]
            assert end.task.phase is Phase.FAILED
        finally:
            may_end.set()


async def test_a_task_that_somebody_cancels_ends_for_who_knows_it_as_running(bench: Bench) -> None:
    add_gated(bench)
    async with bench.working(SELDOM) as engine:
        task = await engine.submit("gated", {"how": "returns"})
        await engine.cancel(task.id)
        # So that the hint has come and gone before anybody follows.
        await asyncio.sleep(0)
        phases = [view.task.phase async for view in engine.follow(task.id, last_seen=task)]
        assert phases[-1] is Phase.CANCELLED


async def test_following_ends_after_a_while(bench: Bench) -> None:
    gate, clock = add_gated(bench), a_clock()
    async with bench.working(SELDOM, clock=clock) as engine:
        task = await engine.submit("gated", {"how": "returns"})
        following = asyncio.create_task(_phases(engine, task.id, 2.0))
        await asyncio.sleep(0.02)
        clock.advance(1.9)
        await asyncio.sleep(0.02)
        assert not following.done()
        clock.advance(0.1)
        assert await following == [Phase.RUNNING]
        gate.set()
        assert (await _phases(engine, task.id, 2.0))[-1] is Phase.COMPLETED


async def test_following_ends_in_time_though_the_store_does_not_answer(bench: Bench, watched: Watched) -> None:
    add_gated(bench)
    clock = a_clock()
    async with bench.working(SELDOM, clock=clock) as engine:
        task = await engine.submit("gated", {"how": "returns"})
        may_read = watched.hold_up("view")
        following = asyncio.create_task(_phases(engine, task.id, 2.0))
        await watched.asked("view")
        clock.advance(2.0)
        assert await following == []
        may_read.set()


async def test_following_ends_in_time_though_something_has_just_happened_that_can_not_be_read(bench: Bench) -> None:
    gate, clock, hinted = add_gated(bench), a_clock(), TellsBeforehand(bench.store)
    watched = Watched(cast("Store", hinted))
    bench.store = watched.as_store
    async with bench.working(SELDOM, clock=clock) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"how": "returns"})
        async with aclosing(engine.follow(task.id, timeout=2.0)) as views:
            await anext(views)
            following = asyncio.ensure_future(anext(views, None))
            await asyncio.sleep(0)
            watched.hold_up("view")
            hinted.first = lambda: clock.advance(2.0)
            await engine.pause(task.id)
            assert await following is None
        await engine.resume(task.id)
        gate.set()


async def test_nothing_is_left_of_following_that_ended_before_its_time(bench: Bench) -> None:
    gate = add_gated(bench)
    gate.set()
    async with bench.working(SELDOM) as engine:
        task = await engine.submit("gated", {"how": "returns"})
        await engine.wait(task.id)
        for _ in range(3):
            assert await _phases(engine, task.id, 3_600.0) == [Phase.COMPLETED]
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, FollowTimer)]


async def _phases(engine: Engine, task_id: str, seconds: float) -> list[Phase]:
    return [view.task.phase async for view in engine.follow(task_id, timeout=seconds)]
