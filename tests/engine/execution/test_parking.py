"""A waiting task parks without a slot, survives restarts, and resumes in time."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from raincheck.core.lifecycle import Event, Phase
from raincheck.core.records import Task, TaskId
from raincheck.core.values import Json
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.errors import TaskFailed
from raincheck.stores.base import Store
from raincheck.testing import FakeClock
from tests.support.engine.harness import QUICK, CommitHookStore, EngineHarness

pytestmark = pytest.mark.anyio

YES: Json = {"action": "accept", "content": {}}
ANYTHING: dict[str, Json] = {"type": "object"}


async def test_a_quick_answer_finds_the_same_coroutine_waiting(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> int:
        await task.elicit("now?", ANYTHING)
        return task.attempt

    async with harness.running(Settings(park_after=30)) as engine:
        task = await engine.submit("ask")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.answer(task.id, {"elicit-0": YES})
        assert (await engine.wait(task.id)).outcome == b"1"
        assert "park" not in await harness.events(task.id)


async def test_a_slow_answer_finds_the_task_parked_and_the_question_is_not_repeated(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> list[object]:
        first = await task.elicit("first?", ANYTHING)
        second = await task.elicit("second?", ANYTHING)
        return [first.content, second.action, task.attempt]

    async with harness.running() as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {"said": 1}}})
        await engine.wait(task.id, until=lambda task: task.phase is Phase.PARKED and task.attempt_number == 2)
        await engine.answer(task.id, {"elicit-1": {"action": "decline"}})
        assert (await engine.wait(task.id)).outcome == b'[{"said":1},"decline",3]'
        notes = [entry.note for entry in await harness.history(task.id) if entry.event == "note"]
        assert notes == ["asked elicit-0", "asked elicit-1"]


async def test_a_plain_body_is_parked_too(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    def ask(task: SyncTaskContext) -> list[object]:
        reply = task.elicit("now?", ANYTHING)
        return [reply.ok, task.attempt]

    async with harness.running() as engine:
        task = await engine.submit("ask")
        await harness.reach(task.id, Phase.PARKED)
        await engine.answer(task.id, {"elicit-0": YES})
        assert (await engine.wait(task.id)).outcome == b"[true,2]"


async def test_an_answer_just_before_the_park_is_not_missed(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> str:
        return (await task.elicit("now?", ANYTHING)).action

    async def answer_first(task: Task) -> None:
        await harness.engine.answer(task.id, {"elicit-0": YES})

    harness.store = cast("Store", CommitHookStore(harness.store, Event.PARK, answer_first))
    async with harness.running() as engine:
        task = await engine.submit("ask")
        assert (await engine.wait(task.id)).outcome == b'"accept"'
        assert await harness.events(task.id) == ["create", "claim", "note", "answer", "release", "claim", "complete"]


async def test_a_long_sleep_holds_no_worker_and_ends_in_time(harness: EngineHarness) -> None:
    clock = FakeClock()

    @harness.toolbox.tool
    async def nap(task: TaskContext) -> int:
        await task.sleep(3_600)
        return task.attempt

    async with harness.running(Settings(park_after=0), clock=clock) as engine:
        task = await engine.submit("nap")
        parked = await harness.reach(task.id, Phase.PARKED)
        assert parked.due_at == clock.now() + timedelta(hours=1)
        clock.advance(3_599)
        assert (await engine.view(task.id)).task.phase is Phase.PARKED
        clock.advance(1)
        assert (await engine.wait(task.id)).outcome == b"2"


async def test_a_sleep_continues_while_no_process_runs(harness: EngineHarness) -> None:
    clock = FakeClock()

    @harness.toolbox.tool
    async def nap(task: TaskContext) -> int:
        await task.sleep(3_600)
        return task.attempt

    async with harness.running(Settings(park_after=0), clock=clock) as engine:
        task = await engine.submit("nap")
        await harness.reach(task.id, Phase.PARKED)
    clock.advance(4_000)
    async with harness.running(Settings(park_after=0), clock=clock) as engine:
        assert (await engine.wait(task.id)).outcome == b"2"


async def test_a_waiting_task_gives_its_slot_to_one_that_can_run(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.elicit("now?", ANYTHING)

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with harness.running(Settings(concurrency=2, park_after=600)) as engine:
        asking = [await engine.submit("ask") for _ in range(2)]
        for task in asking:
            await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        assert await asyncio.wait_for(harness.result_of("quick"), 5) == "done"
        phases = {(await engine.view(task.id)).task.phase for task in asking}
        assert Phase.PARKED in phases


async def test_a_branch_in_a_step_keeps_the_task_from_parking(harness: EngineHarness) -> None:
    may_end = asyncio.Event()
    ran: list[int] = []

    @harness.toolbox.tool
    async def branches(task: TaskContext) -> int:
        async def work() -> None:
            ran.append(task.attempt)
            await may_end.wait()

        await asyncio.gather(task.elicit("now?", ANYTHING), task.step("work", work))
        return task.attempt

    async with harness.running() as engine:
        task = await engine.submit("branches")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await asyncio.sleep(4 * QUICK.park_after)
        assert (await engine.view(task.id)).task.phase is Phase.RUNNING
        may_end.set()
        await harness.reach(task.id, Phase.PARKED)
        await engine.answer(task.id, {"elicit-0": YES})
        assert (await engine.wait(task.id)).outcome == b"2"
    assert ran == [1], "the step was finished before the task was parked"


async def test_a_parent_waits_for_its_children_without_a_worker(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child(number: int, task: TaskContext) -> int:
        await task.elicit("ready?", ANYTHING)
        return number * 10

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> list[object]:
        children = [await task.spawn("child", {"number": number}) for number in (1, 2)]
        await task.artifact("children", [one.id for one in children])
        return [*await asyncio.gather(*(one.result() for one in children))]

    async with harness.running(Settings(concurrency=1, park_after=0.05)) as engine:
        task = await engine.submit("parent")
        await harness.reach(task.id, Phase.PARKED)
        for entry in await harness.history(task.id):
            for word in (entry.note or "").split("spawned "):
                if entry.event == "note" and "step" not in word and "stored" not in word:
                    await engine.wait(TaskId(word), until=lambda task: task.open_inputs == 1)
                    await engine.answer(TaskId(word), {"elicit-0": YES})
        assert (await engine.wait(task.id)).outcome == b"[10,20]"


async def test_a_parent_gets_the_error_of_its_child(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child(task: TaskContext) -> None:
        await task.step("bad", lambda: {1})

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> str:
        one = await task.spawn("child")
        try:
            await one.result()
        except TaskFailed as error:
            return f"{error.phase}: {error}"
        return "it did not fail"

    async with harness.running():
        result = str(await harness.result_of("parent"))
    assert result.startswith("failed: task ")
    assert "can't be written as JSON" in result
