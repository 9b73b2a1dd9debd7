"""`tasks/update`: answers reach the body, invalid ones are refused, and unknown ones are ignored."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any

import pytest

from raincheck import TaskContext
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import (
    ON_BOTH_TRANSPORTS,
    YES,
    Name,
    add_gated,
    add_greeting,
    refusal,
    text_of,
    without_meta,
)
from tests.support.server.transports import Message

pytestmark = pytest.mark.anyio

SHAPELESS: list[Any] = [YES, {}, {"action": "maybe"}, [], None, "yes", 7, True, {"a": {"deep": [None]}}]


def add_interview(server: ExampleServer) -> None:
    """A tool that asks two things at once."""

    @server.tasks.tool()
    async def interview(task: TaskContext) -> list[str]:
        replies = await asyncio.gather(*(task.elicit(f"{one}?", Name, name=one) for one in ("first", "second")))
        return [reply.value.name if reply.value else reply.action for reply in replies]


async def until_asked(caller: Caller, task_id: str, *keys: str) -> Message:
    """Listen until exactly these questions are open."""
    async with caller.listening(task_id) as pushed:
        async for task in pushed:
            if set(task.get("inputRequests", {})) == set(keys):
                return await caller.get(task_id)
    raise AssertionError(f"never asked {keys}")


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("update-ack-empty", "update-result-type", "update-resumes")
async def test_an_answer_is_acknowledged_and_the_task_continues_to_its_end(way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        answer = await caller.update(task_id, {"elicit-0": YES})
        assert without_meta(answer) == {"resultType": "complete"}
        assert text_of(await caller.result(task_id)) == "Hello, Ada!"
        assert received == [("accept", {"name": "Ada"})]


@pytest.mark.requirement("update-resumes")
async def test_a_parked_task_resumes_when_it_is_answered() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open() as caller:
        task_id = await caller.start("greet")
        await server.tasks.engine.wait(task_id, until=lambda task: task.phase == "parked")
        assert (await caller.get(task_id))["status"] == "input_required"
        await caller.update(task_id, {"elicit-0": YES})
        await caller.result(task_id)
        # Asked once, although the body has run twice.
        assert received == [("accept", {"name": "Ada"})]


@ON_BOTH_TRANSPORTS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_decline_and_a_cancel_reach_the_body(action: str, way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        await caller.update(task_id, {"elicit-0": {"action": action}})
        assert text_of(await caller.result(task_id)) == f"You said {action}."
        assert received == [(action, None)]


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("partial-answers")
async def test_after_some_of_the_answers_only_the_other_questions_are_open(way: str) -> None:
    server = ExampleServer()
    add_interview(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("interview")
        await until_asked(caller, task_id, "first-0", "second-0")
        await caller.update(task_id, {"second-0": YES})
        task = await caller.get(task_id)
        assert task["status"] == "input_required"
        assert list(task["inputRequests"]) == ["first-0"]
        await caller.update(task_id, {"first-0": {"action": "decline"}})
        assert (await caller.result(task_id))["structuredContent"] == {"result": ["decline", "Ada"]}


@pytest.mark.requirement("partial-answers", "update-ignores-unknown-keys")
async def test_all_answers_may_come_at_once_among_unknown_ones() -> None:
    server = ExampleServer()
    add_interview(server)
    async with server.open() as caller:
        task_id = await caller.start("interview")
        await until_asked(caller, task_id, "first-0", "second-0")
        await caller.update(task_id, {"first-0": YES, "third-0": YES, "second-0": YES})
        assert (await caller.result(task_id))["structuredContent"] == {"result": ["Ada", "Ada"]}


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("update-ignores-unknown-keys", "update-ack-empty")
async def test_answers_to_unknown_questions_are_ignored_whatever_they_are(way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("greet")
        before = await caller.until(task_id, "input_required")
        for value in SHAPELESS:
            for key in ("elicit-1", "", "ELICIT-0", "a" * 300):
                await caller.update(task_id, {key: value})
        await caller.update(task_id, {})
        after = await caller.get(task_id)
        assert (after["status"], after["inputRequests"]) == ("input_required", before["inputRequests"])
        assert received == []


@pytest.mark.parametrize("value", SHAPELESS)
@pytest.mark.requirement("update-ignores-unknown-keys")
async def test_a_second_answer_to_a_question_is_ignored_whatever_it_is(value: Any) -> None:
    server = ExampleServer()
    received: list[str] = []
    gate = asyncio.Event()

    @server.tasks.tool()
    async def greet(task: TaskContext) -> None:
        reply = await task.elicit("Who are you?", Name)
        received.append(reply.value.name if reply.value else reply.action)
        await gate.wait()

    async with server.open() as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        await caller.update(task_id, {"elicit-0": YES})
        await caller.update(task_id, {"elicit-0": value})
        gate.set()
        await caller.result(task_id)
        assert set(received) == {"Ada"}


@pytest.mark.requirement("update-ignores-unknown-keys", "update-ack-empty")
async def test_answers_to_a_task_that_does_not_ask_or_has_ended_are_acknowledged() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        await caller.update(task_id, {"elicit-0": YES})
        gate.open.set()
        ended = await caller.until(task_id)
        await caller.update(task_id, {"elicit-0": YES, "x": None})
        assert await caller.get(task_id) == ended
        cancelled = await caller.start("gated")
        await caller.cancel(cancelled)
        await caller.update(cancelled, {"elicit-0": YES})


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("update-ignores-unknown-keys")
async def test_of_many_answers_at_once_to_one_question_one_is_taken_and_all_are_acknowledged(way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        names = [{"action": "accept", "content": {"name": str(number)}} for number in range(8)]
        await asyncio.gather(*(caller.update(task_id, {"elicit-0": one}) for one in names))
        await caller.result(task_id)
        assert len(received) == 1


@pytest.mark.parametrize("end", ["completed", "cancelled"])
@pytest.mark.requirement("update-ignores-unknown-keys", "update-ack-empty")
async def test_answers_to_a_question_of_an_ended_task_are_acknowledged(end: str) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with server.open() as caller:
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        await (caller.cancel(task_id) if end == "cancelled" else caller.update(task_id, {"elicit-0": YES}))
        ended = await caller.until(task_id)
        assert ended["status"] == end
        assert without_meta(await caller.update(task_id, {"elicit-0": YES})) == {"resultType": "complete"}
        assert await caller.get(task_id) == ended


WRONG: list[tuple[Any, str]] = [
    ("yes", "must be an object, not str"),
    (None, "must be an object"),
    ({}, '"action": "accept"'),
    ({"action": "maybe"}, '"decline" or "cancel"'),
    ({"action": "accept"}, "content must be an object"),
    ({"action": "accept", "content": {}}, "'name' is a required property"),
    ({"action": "accept", "content": {"name": 7}}, "7 is not of type 'string'"),
]


@pytest.mark.parametrize(("answer", "why"), WRONG)
@pytest.mark.requirement("informative-messages", "standard-errors")
async def test_an_answer_that_does_not_fit_is_refused_with_the_reason_and_the_question_stays_open(
    answer: Any, why: str
) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open() as caller:
        task_id = await caller.start("greet")
        before = await caller.until(task_id, "input_required")
        parked = await server.tasks.engine.wait(task_id, until=lambda task: task.phase == "parked")
        refused = await refusal(caller, "tasks/update", {"taskId": task_id, "inputResponses": {"elicit-0": answer}})
        assert refused.code == -32602
        assert "elicit-0" in refused.message
        assert why in refused.message
        after = await caller.get(task_id)
        assert (after["status"], after["inputRequests"]) == ("input_required", before["inputRequests"])
        # No attempt was made because of it.
        view = await server.tasks.engine.view(task_id)
        assert (view.task.phase, view.task.version) == (parked.task.phase, parked.task.version)
        await caller.update(task_id, {"elicit-0": YES})
        await caller.result(task_id)
        assert received == [("accept", {"name": "Ada"})]


async def test_several_answers_are_all_rejected_if_one_does_not_fit() -> None:
    server = ExampleServer()
    add_interview(server)
    async with server.open() as caller:
        task_id = await caller.start("interview")
        await until_asked(caller, task_id, "first-0", "second-0")
        answers: dict[str, Any] = {"first-0": YES, "second-0": {"action": "accept", "content": {}}}
        refused = await refusal(caller, "tasks/update", {"taskId": task_id, "inputResponses": answers})
        assert "second-0" in refused.message
        assert set((await caller.get(task_id))["inputRequests"]) == {"first-0", "second-0"}


async def test_a_sampling_reply_reaches_the_body() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def consult(task: TaskContext) -> Any:
        return await task.sample([{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}])

    said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}}
    async with server.open() as caller:
        task_id = await caller.start("consult")
        task = await caller.until(task_id, "input_required")
        assert task["inputRequests"]["sample-0"]["method"] == "sampling/createMessage"
        refused = await refusal(caller, "tasks/update", {"taskId": task_id, "inputResponses": {"sample-0": YES}})
        assert refused.code == -32602
        await caller.update(task_id, {"sample-0": said})
        assert "Paris" in str(await caller.result(task_id))


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("input-key-unique", "input-key-no-reuse", "input-key-one-request")
async def test_every_question_of_a_task_has_a_unique_key(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def interrogate(task: TaskContext) -> int:
        for number in range(3):
            await task.elicit(f"question {number}", Name)
            await task.elicit(f"question {number} again", Name, name="again")
        return task.attempt

    asked: dict[str, str] = {}
    async with server.open_by(way) as caller:
        task_id = await caller.start("interrogate")
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                for key, request in task.get("inputRequests", {}).items():
                    message = request["params"]["message"]
                    assert asked.setdefault(key, message) == message
                    # Answered twice, to see that the second goes to no later question.
                    await caller.update(task_id, {key: YES})
                    await caller.update(task_id, {key: YES})
        assert (await caller.get(task_id))["status"] == "completed"
    assert sorted(asked.values()) == sorted(f"question {one}{again}" for one in range(3) for again in ("", " again"))


@pytest.mark.requirement("input-key-no-reuse", "input-key-one-request")
async def test_a_question_repeated_after_a_crash_of_the_body_is_the_same_one() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def greet(task: TaskContext) -> str:
        reply = await task.elicit("Who are you?", Name)
        if "crashed" not in task.variables:
            await task.variables.set("crashed", True)
            raise OSError("once")
        again = await task.elicit("Really?", Name)
        return f"{reply.content} {again.content}"

    seen: list[str] = []
    async with server.open() as caller:
        task_id = await caller.start("greet")
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                for key in task.get("inputRequests", {}):
                    seen.append(key)
                    await caller.update(task_id, {key: {"action": "accept", "content": {"name": key}}})
        result = text_of((await caller.get(task_id))["result"])
        assert result == "{'name': 'elicit-0'} {'name': 'elicit-1'}"
        assert seen == ["elicit-0", "elicit-1"]
