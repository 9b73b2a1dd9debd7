"""Cancelling stops coroutines at once, threads at their next call, and children in any process."""

import asyncio
import threading
import time
from typing import cast

import pytest

from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Task, TaskId
from raincheck.engine import SyncTaskContext, TaskContext
from raincheck.errors import IllegalTransition
from raincheck.stores.base import Store
from tests.support.engine import isolated_bodies
from tests.support.engine.harness import CommitHookStore, EngineHarness
from tests.support.engine.isolation import process_exists

pytestmark = pytest.mark.anyio


async def test_a_coroutine_that_awaits_is_stopped_within_a_second(harness: EngineHarness) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def wait_for_ever() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with harness.running() as engine:
        task = await engine.submit("wait_for_ever")
        await began.wait()
        cancelled = await engine.cancel(task.id, actor="alice", reason="not needed any more")
        assert cancelled.phase is Phase.CANCELLED
        await asyncio.wait_for(stopped.wait(), 1.0)
        entry = (await harness.history(task.id))[-1]
        assert (entry.event, entry.actor, entry.note) == ("cancel", "alice", "not needed any more")


async def test_a_coroutine_that_ignores_its_cancellation_is_cancelled_again(harness: EngineHarness) -> None:
    began, swallowed, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool(grace=1)
    async def stubborn() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with harness.running() as engine:
        task = await engine.submit("stubborn")
        await began.wait()
        await engine.cancel(task.id)
        await asyncio.wait_for(stopped.wait(), 1.0)
        assert swallowed.is_set()
        assert (await engine.view(task.id)).task.phase is Phase.CANCELLED


async def test_a_thread_sees_that_it_is_cancelled_and_its_later_writes_are_refused(harness: EngineHarness) -> None:
    began, ended = threading.Event(), threading.Event()
    seen: list[object] = []

    @harness.toolbox.tool
    def busy(task: SyncTaskContext) -> str:
        began.set()
        while not task.cancelled:
            time.sleep(0.01)
        try:
            task.step("after", seen.append, "ran")
            task.progress(1)
        except BaseException as error:
            seen.append(type(error).__name__)
            raise
        finally:
            ended.set()
        return "done all the same"

    async with harness.running() as engine:
        task = await engine.submit("busy")
        await asyncio.to_thread(began.wait, 10)
        await engine.cancel(task.id)
        await asyncio.to_thread(ended.wait, 10)
        assert seen == ["BodyStopped"]
        view = await engine.view(task.id)
        assert (view.task.phase, view.outcome, view.task.progress) == (Phase.CANCELLED, None, None)


async def test_cancelling_a_parent_cancels_its_children_and_theirs(harness: EngineHarness) -> None:
    running, stopping = asyncio.Semaphore(0), asyncio.Semaphore(0)
    stopped: list[TaskId] = []

    @harness.toolbox.tool
    async def family(depth: int, task: TaskContext) -> None:
        if depth:
            await task.spawn("family", {"depth": depth - 1})
        running.release()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(TaskId(task.id))
            stopping.release()

    async with harness.running() as engine:
        task = await engine.submit("family", {"depth": 2})
        for _ in range(3):
            await asyncio.wait_for(running.acquire(), 20)
        await engine.cancel(task.id, reason="enough")
        for _ in range(3):
            await asyncio.wait_for(stopping.acquire(), 20)
        for task_id in stopped:
            view = await engine.view(task_id)
            assert view.task.phase is Phase.CANCELLED


async def test_a_second_cancel_is_rejected_and_changes_nothing(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async with harness.running() as engine:
        task = await engine.submit("wait_for_ever")
        await harness.reach(task.id, Phase.RUNNING)
        ended = await engine.cancel(task.id)
        with pytest.raises(IllegalTransition, match="cancelled"):
            await engine.cancel(task.id)
        assert (await engine.view(task.id)).task == ended


async def test_a_cancel_just_before_the_completion_wins_and_the_result_is_dropped(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async def cancel_first(task: Task) -> None:
        await harness.engine.cancel(task.id, reason="first")

    harness.store = cast("Store", CommitHookStore(harness.store, Event.COMPLETE, cancel_first))
    async with harness.running() as engine:
        task = await engine.submit("quick")
        view = await engine.wait(task.id)
        assert (view.task.phase, view.outcome, view.task.status_message) == (Phase.CANCELLED, None, "first")
    assert await harness.events(task.id) == ["create", "claim", "cancel"]
    assert (await harness.store.view(task.id, Scope.everything(), now=view.task.updated_at)).task == view.task


async def test_a_completion_just_before_the_cancel_wins_and_the_cancel_is_rejected(harness: EngineHarness) -> None:
    may_end = asyncio.Event()

    @harness.toolbox.tool
    async def quick() -> str:
        await may_end.wait()
        return "done"

    async def complete_first(task: Task) -> None:
        may_end.set()
        await harness.engine.wait(task.id)

    harness.store = cast("Store", CommitHookStore(harness.store, Event.CANCEL, complete_first))
    async with harness.running() as engine:
        task = await engine.submit("quick")
        await harness.reach(task.id, Phase.RUNNING)
        with pytest.raises(IllegalTransition, match="is completed"):
            await engine.cancel(task.id, reason="too late")
        view = await engine.wait(task.id)
        assert (view.task.phase, view.outcome) == (Phase.COMPLETED, b'"done"')
    assert await harness.events(task.id) == ["create", "claim", "complete"]


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_process_that_computes_forever_is_gone_within_its_grace_period(
    harness: EngineHarness, is_stubborn: bool
) -> None:
    harness.toolbox.tool(isolation="process", grace=0.5)(isolated_bodies.spins_forever)
    async with harness.running() as engine:
        task = await engine.submit("spins_forever", {"is_stubborn": is_stubborn})
        await engine.wait(task.id, until=lambda task: task.entries > 2)  # created, claimed, and its artifact is kept
        process = str(await engine.artifact(task.id, "process"))
        assert process_exists(process)
        await engine.cancel(task.id)
        # It is asked at once, and killed when its grace is over. The rest is for a machine that is busy.
        async with asyncio.timeout(0.5 + 5):
            while process_exists(process):  # noqa: ASYNC110 - a process of another thread's can't be waited for
                await asyncio.sleep(0.01)
        assert (await engine.view(task.id)).task.phase is Phase.CANCELLED
