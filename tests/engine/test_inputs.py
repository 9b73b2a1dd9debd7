"""Answers that do not match their question are rejected, and the question stays open."""

from collections.abc import Callable
from typing import cast

import pytest

from raincheck.core.values import Json
from raincheck.engine import Settings, SyncTaskContext, TaskContext
from raincheck.errors import ConfigurationError, InvalidValue, TaskFailed, ToolError
from tests.support.engine.harness import EngineHarness

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
}

WRONG: list[tuple[Json, str]] = [
    ("yes", "the answer to 'elicit-0' must be an object, not str"),
    (None, "must be an object, not NoneType"),
    ({}, 'is {"action": "accept", "content": …}'),
    ({"count": 3}, 'is {"action": "accept", "content": …}'),
    ({"action": "maybe"}, 'or has the action "decline" or "cancel"'),
    ({"action": "accept"}, "its content must be an object, not NoneType"),
    ({"action": "accept", "content": {}}, "'count' is a required property"),
    ({"action": "accept", "content": {"count": "x"}}, "'x' is not of type 'integer' at $.count"),
]


@pytest.mark.parametrize(("answer", "why"), WRONG)
async def test_an_answer_that_does_not_match_is_rejected_and_the_question_stays_open(
    harness: EngineHarness, answer: Json, why: str
) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> Json:
        return (await task.elicit("How many?", SCHEMA)).content

    async with harness.running(Settings(park_after=600)) as engine:
        task = await engine.submit("ask")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        with pytest.raises(InvalidValue) as refused:
            await engine.answer(task.id, {"elicit-0": answer})
        assert why in str(refused.value)
        assert (await engine.view(task.id)).task.open_inputs == 1
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {"count": 3}}})
        assert await engine.result(task.id) == {"count": 3}


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "#/$defs/missing"}, {"$ref": "#"}])
async def test_a_question_with_an_invalid_schema_can_be_answered(
    harness: EngineHarness, schema: dict[str, Json]
) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> Json:
        return (await task.elicit("How many?", schema)).content

    async with harness.running(Settings(park_after=600)) as engine:
        task = await engine.submit("ask")
        await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {"count": 3}}})
        assert await engine.result(task.id) == {"count": 3}


async def test_a_model_of_the_caller_answers_with_an_object(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def ask(task: TaskContext) -> Json:
        return await task.sample([{"role": "user", "content": {"type": "text", "text": "Hi"}}], maxTokens=10)

    async with harness.running(Settings(park_after=600)) as engine:
        task = await engine.submit("ask")
        view = await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        assert view.inputs[0].request == (
            b'{"messages":[{"role":"user","content":{"type":"text","text":"Hi"}}],"maxTokens":10}'
        )
        with pytest.raises(InvalidValue, match="must be an object, not str"):
            await engine.answer(task.id, {"sample-0": "nonsense"})
        said: Json = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello"}}
        await engine.answer(task.id, {"sample-0": said})
        assert await engine.result(task.id) == said


async def test_waiting_for_a_result_that_does_not_exist_raises_the_reason(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def refuse() -> None:
        raise ToolError("no such year", content=[1])

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.elicit("?", SCHEMA)

    async with harness.running() as engine:
        task = await engine.submit("refuse")
        with pytest.raises(TaskFailed, match="reported an error: no such year") as reported:
            await engine.result(task.id)
        assert (reported.value.phase, reported.value.error) == ("completed", [1])
        task = await engine.submit("ask")
        await engine.cancel(task.id, reason="enough")
        with pytest.raises(TaskFailed, match="cancelled: enough"):
            await engine.result(task.id)


async def test_waiting_on_an_engine_that_is_not_running_is_rejected(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def quick() -> None: ...

    async with harness.running() as engine:
        task = await engine.submit("quick")
        await engine.result(task.id)
    with pytest.raises(ConfigurationError, match="this engine is not running"):
        await engine.result(task.id)


async def test_a_step_is_a_function_and_its_arguments(harness: EngineHarness) -> None:
    async def load() -> int:
        return 1

    @harness.toolbox.tool
    async def called(task: TaskContext) -> None:
        await task.step("load", load())  # type: ignore[call-overload] # that is the point

    @harness.toolbox.tool
    def plain(task: SyncTaskContext) -> None:
        task.step("load", cast("Callable[[], int]", load))

    async with harness.running():
        _, error = await harness.failure_of("called")
        assert "step 'load' takes a function and its arguments" in error["message"]
        _, error = await harness.failure_of("plain")
        assert "step 'load' is a coroutine, but its tool is a plain function" in error["message"]


async def test_a_thread_that_a_plain_body_left_behind_does_not_block_the_loop(harness: EngineHarness) -> None:
    left: list[SyncTaskContext] = []

    @harness.toolbox.tool
    def leak(task: SyncTaskContext) -> None:
        left.append(task)

    async with harness.running():
        await harness.result_of("leak")
        with pytest.raises(InvalidValue, match="a SyncTaskContext is for plain functions"):
            left[0].progress(1)
