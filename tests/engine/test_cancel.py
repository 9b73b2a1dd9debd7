"""Cancelling stops work: coroutines at once, threads at their next call, and children wherever they run."""

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
from tests.support.engine.harness import Bench, Interposed
from tests.support.engine.isolation import is_there

pytestmark = pytest.mark.anyio


async def test_a_coroutine_that_awaits_is_stopped_within_a_second(bench: Bench) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @bench.toolbox.tool
    async def wait_for_ever() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with bench.working() as engine:
        task = await engine.submit("wait_for_ever")
        await began.wait()
        cancelled = await engine.cancel(task.id, actor="alice", reason="not needed any more")
        assert cancelled.phase is Phase.CANCELLED
        await asyncio.wait_for(stopped.wait(), 1.0)
        entry = (await bench.history(task.id))[-1]
        assert (entry.event, entry.actor, entry.note) == ("cancel", "alice", "not needed any more")


async def test_a_coroutine_that_swallows_its_cancellation_is_told_again(bench: Bench) -> None:
    began, swallowed, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @bench.toolbox.tool(grace=1)
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

    async with bench.working() as engine:
        task = await engine.submit("stubborn")
        await began.wait()
        await engine.cancel(task.id)
        await asyncio.wait_for(stopped.wait(), 1.0)
        assert swallowed.is_set()
        assert (await engine.view(task.id)).task.phase is Phase.CANCELLED


async def test_a_thread_sees_that_it_is_cancelled_and_its_later_writes_are_refused(bench: Bench) -> None:
    began, ended = threading.Event(), threading.Event()
    seen: list[object] = []

    @bench.toolbox.tool
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

    async with bench.working() as engine:
        task = await engine.submit("busy")
        await asyncio.to_thread(began.wait, 10)
        await engine.cancel(task.id)
        await asyncio.to_thread(ended.wait, 10)
        assert seen == ["BodyStopped"]
        view = await engine.view(task.id)
        assert (view.task.phase, view.outcome, view.task.progress) == (Phase.CANCELLED, None, None)


async def test_cancelling_a_parent_cancels_its_children_and_theirs(bench: Bench) -> None:
    running, stopping = asyncio.Semaphore(0), asyncio.Semaphore(0)
    stopped: list[TaskId] = []

    @bench.toolbox.tool
    async def family(depth: int, task: TaskContext) -> None:
        if depth:
            await task.spawn("family", {"depth": depth - 1})
        running.release()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(TaskId(task.id))
            stopping.release()

    async with bench.working() as engine:
        task = await engine.submit("family", {"depth": 2})
        for _ in range(3):
            await asyncio.wait_for(running.acquire(), 20)
        await engine.cancel(task.id, reason="enough")
        for _ in range(3):
            await asyncio.wait_for(stopping.acquire(), 20)
        for task_id in stopped:
            view = await engine.view(task_id)
            assert view.task.phase is Phase.CANCELLED


async def test_a_second_cancel_says_that_it_is_over_and_changes_nothing(bench: Bench) -> None:
    @bench.toolbox.tool
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async with bench.working() as engine:
        task = await engine.submit("wait_for_ever")
        await bench.reach(task.id, Phase.RUNNING)
        ended = await engine.cancel(task.id)
        with pytest.raises(IllegalTransition, match="cancelled"):
            await engine.cancel(task.id)
        assert (await engine.view(task.id)).task == ended


async def test_a_cancel_just_before_the_completion_wins_and_the_result_is_dropped(bench: Bench) -> None:
    @bench.toolbox.tool
    async def quick() -> str:
        return "done"

    async def cancel_first(task: Task) -> None:
        await bench.engine.cancel(task.id, reason="first")

    bench.store = cast("Store", Interposed(bench.store, Event.COMPLETE, cancel_first))
    async with bench.working() as engine:
        task = await engine.submit("quick")
        view = await engine.wait(task.id)
        assert (view.task.phase, view.outcome, view.task.status_message) == (Phase.CANCELLED, None, "first")
    assert await bench.events(task.id) == ["create", "claim", "cancel"]
    assert (await bench.store.view(task.id, Scope.everything(), now=view.task.updated_at)).task == view.task


async def test_a_completion_just_before_the_cancel_wins_and_the_cancel_is_told(bench: Bench) -> None:
    may_end = asyncio.Event()

    @bench.toolbox.tool
    async def quick() -> str:
        await may_end.wait()
        return "done"

    async def complete_first(task: Task) -> None:
        may_end.set()
        await bench.engine.wait(task.id)

    bench.store = cast("Store", Interposed(bench.store, Event.CANCEL, complete_first))
    async with bench.working() as engine:
        task = await engine.submit("quick")
        await bench.reach(task.id, Phase.RUNNING)
        with pytest.raises(IllegalTransition, match="is completed"):
            await engine.cancel(task.id, reason="too late")
        view = await engine.wait(task.id)
        assert (view.task.phase, view.outcome) == (Phase.COMPLETED, b'"done"')
    assert await bench.events(task.id) == ["create", "claim", "complete"]


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_process_that_computes_without_end_is_gone_within_its_grace(bench: Bench, is_stubborn: bool) -> None:
    bench.toolbox.tool(isolation="process", grace=0.5)(isolated_bodies.spins_for_ever)
    async with bench.working() as engine:
        task = await engine.submit("spins_for_ever", {"is_stubborn": is_stubborn})
        await engine.wait(task.id, until=lambda task: task.entries > 2)  # created, claimed, and its artifact is kept
        process = str(await engine.artifact(task.id, "process"))
        assert is_there(process)
        await engine.cancel(task.id)
        # It is asked at once, and killed when its grace is over. The rest is for a machine that is busy.
        async with asyncio.timeout(0.5 + 5):
            while is_there(process):  # noqa: ASYNC110 - a process of another thread's can't be waited for
                await asyncio.sleep(0.01)
        assert (await engine.view(task.id)).task.phase is Phase.CANCELLED
