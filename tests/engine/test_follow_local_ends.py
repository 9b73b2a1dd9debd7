"""Followers of a task that runs in the same process get its end without a read, as it is stored."""

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
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.hinting_store import BeforeHintStore
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

ALICE, BOB = (Owner.token("https://example.com", name) for name in ("alice", "bob"))
SELDOM = replace(QUICK, poll_interval=1_000.0, lease=3_600.0)
"""Polls rarely, so that changes are only seen by notifications."""


@pytest.fixture
def observed(harness: EngineHarness) -> ObservedStore:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store
    return observed


def add_gated(harness: EngineHarness) -> asyncio.Event:
    """Add a tool that ends in a given way when its gate is open."""
    gate = asyncio.Event()

    @harness.toolbox.tool(retry=RetryPolicy(attempts=1))
    async def gated(ending: str, task: TaskContext) -> dict[str, str]:
        await gate.wait()
        if ending == "asks":
            await task.elicit("How?", {"type": "object"})
        if ending == "reports":
            raise ToolError("not today")
        if ending == "raises":
            raise ConnectionError
        return {"ending": ending}

    return gate


async def follow_to_end(engine: Engine, task_id: str, owner: Owner = ALICE) -> list[View]:
    return [view async for view in engine.follow(task_id, owner=owner)]


@pytest.mark.parametrize("ending", ["returns", "reports", "raises"])
async def test_the_reported_end_is_the_stored_one(harness: EngineHarness, observed: ObservedStore, ending: str) -> None:
    gate = add_gated(harness)
    async with harness.running(SELDOM) as engine:
        tasks = [await engine.submit("gated", {"ending": ending}, owner=ALICE) for _ in range(5)]
        following = [asyncio.create_task(follow_to_end(engine, task.id)) for task in tasks]
        await observed.wait_called("view")
        gate.set()
        reported = [views[-1] for views in await asyncio.gather(*following)]
        if not harness.store.capabilities.shared:
            # A shared store may give hints about other processes, which cause more reads.
            assert observed.calls["view"] == 5, "each task is read once"
        assert reported == [
            await harness.store.view(task.id, Scope.everything(), now=task.created_at) for task in tasks
        ]
        assert all(view.task.is_terminal for view in reported)


async def test_followers_are_not_notified_of_another_owners_task(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    gate = add_gated(harness)
    gate.set()
    async with harness.running(SELDOM) as engine:
        may_read = observed.block("view")
        task = await engine.submit("gated", {"ending": "returns"}, owner=ALICE)
        other_owners = [asyncio.create_task(follow_to_end(engine, task.id, owner)) for owner in (BOB, Owner.local())]
        # The order of reads is random. If the task is read first, which is unlikely, the test proves nothing.
        follow_all = engine.follow_all([task.id, *(f"unknown-{number}" for number in range(50))], owner=BOB)
        other_owner_of_many = asyncio.ensure_future(anext(follow_all, None))
        # The task ends while the followers are still about to read it.
        await observed.wait_done("commit")
        may_read.set()
        for following in other_owners:
            with pytest.raises(TaskNotFound):
                await following
        assert await other_owner_of_many is None
        with pytest.raises(TaskNotFound):
            await anext(engine.follow(task.id, owner=BOB, last_seen=task))


async def test_following_another_owners_task_raises_not_found_at_once(harness: EngineHarness) -> None:
    gate = add_gated(harness)
    async with harness.running(SELDOM) as engine:
        task = await engine.submit("gated", {"ending": "returns"}, owner=ALICE)
        async with asyncio.timeout(5):
            with pytest.raises(TaskNotFound):
                await anext(engine.follow(task.id, owner=BOB, last_seen=task))
        gate.set()


@asynccontextmanager
async def running_without_other_hints(harness: EngineHarness) -> AsyncGenerator[Engine]:
    """Run an engine that receives only hints about tasks."""
    with harness.store.listen() as feed:
        async with harness.running(SELDOM) as engine:
            if harness.store.capabilities.shared:
                # The first hint of such a store says that any task may have changed, which causes reads.
                assert await anext(feed) == ANY_TASK
            yield engine


async def test_a_follower_that_passes_the_submitted_task_does_not_read_it(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    gate = add_gated(harness)
    async with running_without_other_hints(harness) as engine:
        task = await engine.submit("gated", {"ending": "returns"})
        views = engine.follow(task.id, last_seen=task)
        first = asyncio.ensure_future(anext(views))
        await asyncio.sleep(0)
        gate.set()
        assert (await first).task.phase is Phase.COMPLETED
        assert [view async for view in views] == []
        assert observed.calls["view"] == 0


async def test_changes_since_the_last_seen_task_are_reported(harness: EngineHarness) -> None:
    gate = add_gated(harness)
    async with harness.running(SELDOM) as engine:
        task = await engine.submit("gated", {"ending": "asks"})
        gate.set()
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        async with aclosing(engine.follow(task.id, last_seen=task)) as views:
            assert [one.key for one in (await anext(views)).inputs] == ["elicit-0"]
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
        end = await engine.wait(task.id)
        assert [view async for view in engine.follow(task.id, last_seen=task)] == [end]
        assert [view async for view in engine.follow(task.id, last_seen=end.task)] == [end]


async def test_changes_of_a_running_attempt_since_the_last_seen_task_are_reported(harness: EngineHarness) -> None:
    gate = add_gated(harness)
    gate.set()
    async with harness.running(replace(SELDOM, park_after=3_600.0)) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"ending": "asks"})
        asked = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        assert asked.task.attempt is not None, "it waits in its slot"
        async with aclosing(engine.follow(task.id, last_seen=task)) as views:
            reported = await anext(views)
        # Not the whole task: its lease may have been extended meanwhile.
        assert (reported.task.version, reported.inputs) == (asked.task.version, asked.inputs)
        await engine.cancel(task.id)


async def test_a_task_that_runs_elsewhere_is_read_although_a_similar_one_runs_here(harness: EngineHarness) -> None:
    gate = add_gated(harness)
    async with harness.running(SELDOM) as engine, asyncio.timeout(10):
        here = await engine.submit("gated", {"ending": "returns"})
        async with Engine(harness.store, harness.toolbox, settings=SELDOM) as elsewhere:
            there = await elsewhere.submit("gated", {"ending": "returns"})
            assert (there.phase, there.version) == (here.phase, here.version)
            await elsewhere.cancel(there.id)
            # The hint arrives before the follower starts.
            await engine.wait(there.id)
            phases = [view.task.phase async for view in engine.follow(there.id, last_seen=there)]
            assert phases == [Phase.CANCELLED]
        gate.set()


async def test_a_follower_that_starts_late_does_not_miss_the_end(harness: EngineHarness) -> None:
    """Between `follow` and its first step, the task may have ended."""
    gate = add_gated(harness)
    gate.set()
    async with harness.running(SELDOM) as engine:
        task = await engine.submit("gated", {"ending": "returns"})
        views = engine.follow(task.id, last_seen=task)
        await engine.wait(task.id)
        assert [view.task.phase async for view in views] == [Phase.COMPLETED]


async def test_the_end_of_a_task_without_retention_is_reported(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retention=Retention(keep=timedelta(0)))
    async def gone_at_once() -> str:
        return "seen"

    async with harness.running(SELDOM) as engine:
        for _ in range(5):
            task = await engine.submit("gone_at_once")
            assert [view.outcome async for view in engine.follow(task.id, last_seen=task)] == [b'"seen"']


async def test_the_end_of_a_task_that_has_expired_since_it_was_last_seen_is_reported(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    clock = make_clock()

    @harness.toolbox.tool(retention=Retention(keep=timedelta(seconds=60)))
    async def gone_soon() -> str:
        return "seen"

    async with harness.running(SELDOM, clock=clock) as engine:
        task = await engine.submit("gone_soon")
        await engine.wait(task.id)
        observed.block("prune")
        clock.advance(120)
        with pytest.raises(TaskNotFound):
            await engine.view(task.id)
        assert [view.outcome async for view in engine.follow(task.id, last_seen=task)] == [b'"seen"']
        observed.unblock_all()


async def test_the_end_is_reported_while_code_of_the_attempt_is_still_running(harness: EngineHarness) -> None:
    may_end, clock, began = threading.Event(), make_clock(), asyncio.Event()

    @harness.toolbox.tool(attempt_timeout=60, grace=0.05, retry=RetryPolicy(attempts=1))
    async def stubborn(task: TaskContext) -> None:
        began.set()
        await task.step("wait", may_end.wait)

    async with harness.running(SELDOM, clock=clock) as engine:
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


async def test_a_cancelled_task_ends_for_a_follower_that_last_saw_it_running(harness: EngineHarness) -> None:
    add_gated(harness)
    async with harness.running(SELDOM) as engine:
        task = await engine.submit("gated", {"ending": "returns"})
        await engine.cancel(task.id)
        # The hint arrives before the follower starts.
        await asyncio.sleep(0)
        phases = [view.task.phase async for view in engine.follow(task.id, last_seen=task)]
        assert phases[-1] is Phase.CANCELLED


async def test_following_ends_at_its_timeout(harness: EngineHarness) -> None:
    gate, clock = add_gated(harness), make_clock()
    async with harness.running(SELDOM, clock=clock) as engine:
        task = await engine.submit("gated", {"ending": "returns"})
        following = asyncio.create_task(_phases(engine, task.id, 2.0))
        await asyncio.sleep(0.02)
        clock.advance(1.9)
        await asyncio.sleep(0.02)
        assert not following.done()
        clock.advance(0.1)
        assert await following == [Phase.RUNNING]
        gate.set()
        assert (await _phases(engine, task.id, 2.0))[-1] is Phase.COMPLETED


async def test_following_ends_at_its_timeout_although_the_store_does_not_respond(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_gated(harness)
    clock = make_clock()
    async with harness.running(SELDOM, clock=clock) as engine:
        task = await engine.submit("gated", {"ending": "returns"})
        may_read = observed.block("view")
        following = asyncio.create_task(_phases(engine, task.id, 2.0))
        await observed.wait_called("view")
        clock.advance(2.0)
        assert await following == []
        may_read.set()


async def test_following_ends_at_its_timeout_although_a_change_can_not_be_read(
    harness: EngineHarness,
) -> None:
    gate, clock, hinted = add_gated(harness), make_clock(), BeforeHintStore(harness.store)
    observed = ObservedStore(cast("Store", hinted))
    harness.store = observed.as_store
    async with harness.running(SELDOM, clock=clock) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"ending": "returns"})
        async with aclosing(engine.follow(task.id, timeout=2.0)) as views:
            await anext(views)
            following = asyncio.ensure_future(anext(views, None))
            await asyncio.sleep(0)
            observed.block("view")
            hinted.before_next_hint = lambda: clock.advance(2.0)
            await engine.pause(task.id)
            assert await following is None
        await engine.resume(task.id)
        gate.set()


async def test_following_that_ends_before_its_timeout_leaves_no_timer(harness: EngineHarness) -> None:
    gate = add_gated(harness)
    gate.set()
    async with harness.running(SELDOM) as engine:
        task = await engine.submit("gated", {"ending": "returns"})
        await engine.wait(task.id)
        for _ in range(3):
            assert await _phases(engine, task.id, 3_600.0) == [Phase.COMPLETED]
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, FollowTimer)]


async def _phases(engine: Engine, task_id: str, seconds: float) -> list[Phase]:
    return [view.task.phase async for view in engine.follow(task_id, timeout=seconds)]
