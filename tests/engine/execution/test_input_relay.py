"""Input requests of children are relayed to their parent, and the answers back to the children."""

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.values import Json
from raincheck.engine import Settings, TaskContext
from tests.support.engine.harness import EngineHarness, outcome_of

pytestmark = pytest.mark.anyio

ANYTHING = {"type": "object"}


def yes(what: str) -> Json:
    return {"action": "accept", "content": {"what": what}}


def add_family(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child(name: str, task: TaskContext) -> Json:
        reply = await task.elicit(f"What of {name}?", ANYTHING)
        again = await task.elicit(f"And of {name}?", ANYTHING)
        return [reply.content, again.content]

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> Json:
        one, two = await task.spawn("child", {"name": "one"}), await task.spawn("child", {"name": "two"})
        return [await one.result(), await two.result()]

    @harness.toolbox.tool
    async def grandparent(task: TaskContext) -> Json:
        await task.step("before", lambda: None)
        result = await (await task.spawn("parent")).result()
        await task.step("after", lambda: None)
        return result


async def answer_all(harness: EngineHarness, task_id: str, count: int) -> list[str]:
    """Answer so many questions of the task, one after the other."""
    asked: list[str] = []
    for number in range(count):
        view = await harness.engine.wait(task_id, until=lambda task: task.open_inputs > 0 or task.is_terminal)
        question = view.inputs[0]
        asked.append(str(question.request))
        await harness.engine.answer(task_id, {question.key: yes(str(number))})
    return asked


async def wait_until_asked(harness: EngineHarness, task_id: str, key: str) -> None:
    """Until this is what the task asks, and nothing else."""
    seen = 0
    while True:
        view = await harness.engine.wait(task_id, until=lambda task, seen=seen: task.version > seen)
        if [question.key for question in view.inputs] == [key]:
            return
        seen = view.task.version


@pytest.mark.parametrize(("tool", "patience"), [("parent", 600), ("parent", 0.0), ("grandparent", 0.0)])
async def test_a_childs_question_is_relayed_to_its_parents_caller_and_the_answer_back(
    harness: EngineHarness, tool: str, patience: float
) -> None:
    add_family(harness)
    async with harness.running(Settings(park_after=patience, concurrency=8)) as engine:
        task = await engine.submit(tool)
        asked = await answer_all(harness, task.id, 4)
        view = await engine.wait(task.id)
        assert outcome_of(view) == [
            [{"what": "0"}, {"what": "1"}],
            [{"what": "2"}, {"what": "3"}],
        ]
        assert [("one" in one, "two" in one) for one in asked] == [(True, False)] * 2 + [(False, True)] * 2


async def test_an_error_answer_is_relayed_to_the_child(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child(task: TaskContext) -> str:
        return (await task.elicit("Really?", ANYTHING)).action

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> Json:
        return await (await task.spawn("child")).result()

    async with harness.running() as engine:
        task = await engine.submit("parent")
        view = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.answer(task.id, {view.inputs[0].key: {"action": "decline"}})
        assert outcome_of(await engine.wait(task.id)) == "decline"


async def test_a_question_is_withdrawn_when_the_child_that_asked_it_ends(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def child(task: TaskContext) -> None:
        await task.elicit("Really?", ANYTHING)

    @harness.toolbox.tool
    async def parent(task: TaskContext) -> str:
        spawned = await task.spawn("child")
        try:
            await spawned.result()
        except Exception:  # noqa: BLE001 - that it failed is what it waits for
            await task.elicit("What now?", ANYTHING, name="now")
        return "went on"

    async with harness.running() as engine:
        task = await engine.submit("parent")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        (child_task,) = [one for one in (await engine.list_tasks()).tasks if one.parent_id == task.id]
        await engine.cancel(child_task.id)
        await wait_until_asked(harness, task.id, "now-0")
        await engine.answer(task.id, {"now-0": yes("on")})
        ended = await engine.wait(task.id)
        assert (ended.task.phase, outcome_of(ended)) == (Phase.COMPLETED, "went on")
