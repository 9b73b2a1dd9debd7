"""A paused task stops at its next checkpoint and resumes there."""

import asyncio
import threading
from typing import cast

import pytest

from raincheck.core.lifecycle import Event, Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Progress, Task
from raincheck.core.values import Json
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.errors import IllegalTransition
from raincheck.stores.base import Store
from tests.support.engine.harness import QUICK, CommitHookStore, EngineHarness

pytestmark = pytest.mark.anyio

ANYTHING = {"type": "object"}
YES: Json = {"action": "accept", "content": {}}


async def test_a_running_body_stops_at_its_next_checkpoint_and_resumes_there(harness: EngineHarness) -> None:
    began, may_go_on, ran = asyncio.Event(), asyncio.Event(), list[str]()

    @harness.toolbox.tool
    async def three_steps(task: TaskContext) -> int:
        await task.step("first", ran.append, "first")
        began.set()
        await may_go_on.wait()
        await task.step("second", ran.append, "second")
        await task.step("third", ran.append, "third")
        return task.attempt

    async with harness.running() as engine:
        task = await engine.submit("three_steps")
        await began.wait()
        pausing = await engine.pause(task.id, actor="alice", reason="the disk is full")
        assert (pausing.phase, pausing.pausing) == (Phase.RUNNING, True)
        may_go_on.set()
        await harness.reach(task.id, Phase.PAUSED)
        # A step may have started before the attempt was notified of the pause. When it is recorded, the attempt knows.
        assert "third" not in ran
        await engine.resume(task.id)
        assert (await engine.wait(task.id)).outcome == b"2"
    assert ran == ["first", "second", "third"]
    events = [event for event in await harness.events(task.id) if event != "note"]
    assert events == ["create", "claim", "pause", "yield", "resume", "due", "claim", "complete"]


async def test_a_thread_stops_at_its_next_checkpoint_and_resumes_there(harness: EngineHarness) -> None:
    began, may_go_on, ran = threading.Event(), threading.Event(), list[str]()

    @harness.toolbox.tool
    def three_steps(task: SyncTaskContext) -> int:
        task.step("first", ran.append, "first")
        began.set()
        may_go_on.wait(20)
        task.step("second", ran.append, "second")
        task.step("third", ran.append, "third")
        return task.attempt

    async with harness.running() as engine:
        task = await engine.submit("three_steps")
        assert await asyncio.to_thread(began.wait, 10)
        await engine.pause(task.id)
        may_go_on.set()
        await harness.reach(task.id, Phase.PAUSED)
        assert "third" not in ran
        await engine.resume(task.id)
        assert (await engine.wait(task.id)).outcome == b"2"
    assert ran == ["first", "second", "third"]


async def test_a_body_that_waits_is_paused_where_it_waits(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> int:
        await task.elicit("now?", ANYTHING)
        return task.attempt

    async with harness.running(Settings(park_after=600)) as engine:
        task = await engine.submit("ask")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.pause(task.id)
        await harness.reach(task.id, Phase.PAUSED)
        answered = await engine.answer(task.id, {"elicit-0": YES})
        assert answered.phase is Phase.PAUSED, "an answer does not end a pause"
        await engine.resume(task.id)
        assert (await engine.wait(task.id)).outcome == b"2"


async def test_a_task_that_is_resumed_before_its_checkpoint_continues(harness: EngineHarness) -> None:
    began, may_go_on = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def two_steps(task: TaskContext) -> int:
        began.set()
        await may_go_on.wait()
        await task.step("second", lambda: None)
        return task.attempt

    async with harness.running() as engine:
        task = await engine.submit("two_steps")
        await began.wait()
        await engine.pause(task.id)
        # The attempt has heard of the pause, and not of what comes next.
        await asyncio.sleep(0.05)
        await engine.resume(task.id)
        may_go_on.set()
        assert (await engine.wait(task.id)).outcome == b"1"
    assert "yield" not in await harness.events(task.id)


async def test_a_body_that_reaches_no_checkpoint_ends_as_usual(harness: EngineHarness) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def no_checkpoint() -> str:
        began.set()
        await may_end.wait()
        return "done"

    async with harness.running() as engine:
        task = await engine.submit("no_checkpoint")
        await began.wait()
        await engine.pause(task.id)
        may_end.set()
        assert (await engine.wait(task.id)).outcome == b'"done"'


async def test_a_paused_body_has_unwound_before_another_attempt_starts(harness: EngineHarness) -> None:
    began, unwinding, may_end, said = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[str]()

    @harness.toolbox.tool
    async def tidy(task: TaskContext) -> None:
        said.append(f"{task.attempt} begins")
        try:
            began.set()
            await task.elicit("now?", ANYTHING)
        finally:
            if task.attempt == 1:
                unwinding.set()
                while not may_end.is_set():
                    try:
                        await may_end.wait()
                    except asyncio.CancelledError:
                        continue
            said.append(f"{task.attempt} is over")

    async with harness.running(Settings(park_after=600)) as engine:
        task = await engine.submit("tidy")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.pause(task.id)
        try:
            await asyncio.wait_for(unwinding.wait(), 20)
            assert (await engine.view(task.id)).task.phase is Phase.RUNNING
        finally:
            may_end.set()
        await harness.reach(task.id, Phase.PAUSED)
        await engine.resume(task.id)
        await engine.answer(task.id, {"elicit-0": YES})
        await engine.wait(task.id)
    assert said == ["1 begins", "1 is over", "2 begins", "2 is over"]


async def test_a_task_that_must_not_run_twice_can_be_paused_at_a_checkpoint(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    async def ask(task: TaskContext) -> int:
        await task.elicit("now?", ANYTHING)
        return task.attempt

    async with harness.running(Settings(park_after=600)) as engine:
        task = await engine.submit("ask")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.pause(task.id)
        await harness.reach(task.id, Phase.PAUSED)
        await engine.resume(task.id)
        await engine.answer(task.id, {"elicit-0": YES})
        assert (await engine.wait(task.id)).outcome == b"2"


async def test_a_task_that_is_resumed_while_it_stops_continues_in_another_attempt(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> int:
        await task.elicit("now?", ANYTHING)
        return task.attempt

    async def resume_first(task: Task) -> None:
        await harness.engine.resume(task.id)
        await harness.engine.answer(task.id, {"elicit-0": YES})

    harness.store = cast("Store", CommitHookStore(harness.store, Event.YIELD, resume_first))
    async with harness.running(Settings(park_after=600)) as engine:
        task = await engine.submit("ask")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.pause(task.id)
        assert (await engine.wait(task.id)).outcome == b"2"
    assert "yield" not in await harness.events(task.id)


async def test_progress_just_before_the_pause_is_stored(harness: EngineHarness) -> None:
    began, may_go_on = asyncio.Event(), asyncio.Event()

    @harness.toolbox.tool
    async def count(task: TaskContext) -> None:
        await task.progress(1, 3)
        began.set()
        await may_go_on.wait()
        await task.progress(2, 3)
        await task.step("second", lambda: None)
        await task.step("third", lambda: None)

    async with harness.running(Settings(progress_interval=600)) as engine:
        task = await engine.submit("count")
        await began.wait()
        await engine.pause(task.id)
        may_go_on.set()
        paused = await harness.reach(task.id, Phase.PAUSED)
        assert paused.progress == Progress(2, 3)


async def queued(harness: EngineHarness) -> Task:
    """A task behind another one, which takes the only place."""
    hanging = await harness.engine.submit("hang")
    await harness.reach(hanging.id, Phase.RUNNING)
    return await harness.engine.submit("ask")


async def test_a_queued_task_that_is_paused_is_not_started(harness: EngineHarness) -> None:
    may_end = asyncio.Event()

    @harness.toolbox.tool
    async def hang() -> None:
        await may_end.wait()

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> int:
        return task.attempt

    async with harness.running(Settings(concurrency=1)) as engine:
        task = await queued(harness)
        assert (await engine.pause(task.id)).phase is Phase.PAUSED
        other = await engine.submit("ask")
        may_end.set()
        await engine.wait(other.id)
        assert (await engine.view(task.id)).task.phase is Phase.PAUSED, "it was passed over"
        await engine.resume(task.id)
        assert (await engine.wait(task.id)).outcome == b"1"


async def test_a_parked_task_that_is_paused_does_not_wake(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> int:
        await task.elicit("now?", ANYTHING)
        return task.attempt

    async with harness.running(QUICK) as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
        await engine.pause(task.id)
        await engine.answer(task.id, {"elicit-0": YES})
        assert (await engine.view(task.id)).task.phase is Phase.PAUSED
        await engine.resume(task.id)
        assert (await engine.wait(task.id)).outcome == b"2"


async def test_a_paused_task_can_be_cancelled_and_then_not_resumed(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.elicit("now?", ANYTHING)

    async with harness.running(QUICK) as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
        await engine.pause(task.id)
        assert (await engine.cancel(task.id)).phase is Phase.CANCELLED
        with pytest.raises(IllegalTransition, match="is cancelled"):
            await engine.resume(task.id)
        with pytest.raises(IllegalTransition, match="is cancelled"):
            await engine.pause(task.id)


async def test_pausing_twice_is_pausing_once(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.elicit("now?", ANYTHING)

    async with harness.running(QUICK) as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
        paused = await engine.pause(task.id)
        assert await engine.pause(task.id) == paused
