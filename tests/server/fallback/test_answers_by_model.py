"""Hosts that can't ask their user: their model is asked as text, and answers by calling a tool."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Annotated, Any

import pytest
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel

from raincheck import TaskContext
from raincheck.core.records import InputKind
from tests.support.server.example import ExampleServer
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    MAX_TEXT_LENGTH,
    MODERN,
    ON_FALLBACK_TRANSPORTS,
    Model,
    connected_host,
    find_calls,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.tools import Name, add_greeting
from tests.support.server.transports import Message

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    item: str
    amount: int
    gift: bool = False
    note: str | None = None


def add_order(server: ExampleServer) -> list[Any]:
    """Add a tool that asks for several values in one form. Returns a list of its answers."""
    received: list[Any] = []

    @server.tasks.tool
    async def order(task: TaskContext) -> str:
        reply = await task.elicit("What shall it be?", Order)
        received.append(reply.content)
        return reply.action

    return received


async def answer(model: Model, task_id: str, **arguments: Any) -> Message:
    return await model.call("task_answer", {"task_id": task_id, **arguments})


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_a_model_is_asked_as_text_and_answers_with_the_call_in_the_text(version: str, way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected_host(server, version, way) as model:
        asked = await model.call("greet")
        assert "Ask the user: Who are you? (name: string)" in model_text(asked)
        assert asked["structuredContent"]["status"] == "input_required"
        assert next_call(asked) == ("task_answer", {"task_id": task_id_of(asked), "answer": {"name": "<string>"}})
        assert model_text(await model.call_next(asked, name="Ada")) == "Hello, Ada!"
    assert received == [("accept", {"name": "Ada"})]


@BY_VERSIONS
async def test_wait_status_and_result_repeat_the_open_question(version: str) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with connected_host(server, version) as model:
        asked = await model.call("greet")
        for tool in ("task_wait", "task_status", "task_result"):
            again = await model.call(tool, {"task_id": task_id_of(asked)})
            assert model_text(again) == model_text(asked)
            assert again["structuredContent"] == asked["structuredContent"]


@pytest.mark.parametrize(
    "given",
    [
        {"name": "Ada"},
        '{"name": "Ada"}',
        ' {"name":\n"Ada"} ',
    ],
    ids=["an object", "as text", "as text with spaces"],
)
async def test_an_answer_may_be_an_object_or_its_text(given: Any) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected_host(server) as model:
        asked = await model.call("greet")
        assert model_text(await answer(model, task_id_of(asked), answer=given)) == "Hello, Ada!"
    assert received == [("accept", {"name": "Ada"})]


@pytest.mark.parametrize("unused", [{"key": None}, {"action": None}, {"key": None, "action": None}])
async def test_null_arguments_count_as_absent(unused: dict[str, None]) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with connected_host(server) as model:
        asked = await model.call("greet")
        assert model_text(await answer(model, task_id_of(asked), answer={"name": "Ada"}, **unused)) == "Hello, Ada!"


async def test_an_optional_field_of_an_answer_may_be_null() -> None:
    server = ExampleServer()
    received = add_order(server)
    async with connected_host(server) as model:
        asked = await model.call("order")
        given = {"item": "bread", "amount": 2, "gift": True, "note": None}
        assert model_text(await answer(model, task_id_of(asked), answer=given)) == "accept"
    assert received == [{"item": "bread", "amount": 2, "gift": True}]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"answer": {"item": "bread", "amount": "two"}}, "'two' is not of type 'integer'"),
        ({"answer": {"item": None, "amount": 2}}, "'item' is a required property"),
        ({"answer": {"item": "bread"}}, "'amount' is a required property"),
        ({"answer": {}}, "is a required property"),
        ({}, "the answer must be an object with the requested values"),
        ({"answer": "bread"}, "the answer must be an object with the requested values, not a text"),
        ({"answer": '["bread", 2]'}, "the answer must be an object with the requested values, not a text"),
        ({"answer": ["bread", 2]}, "invalid arguments for task_answer: ['bread', 2] is not of type 'object'"),
        ({"answer": 2}, "invalid arguments for task_answer: 2 is not of type 'object'"),
        ({"answer": {"item": "bread", "amount": 2}, "action": "perhaps"}, "'perhaps' is not one of"),
        ({"answer": {"item": "bread", "amount": 2}, "key": 7}, "7 is not of type 'string'"),
        ({"answer": {"item": "bread", "amount": 2}, "key": "elicit-7"}, "no question has the key 'elicit-7'"),
    ],
    ids=lambda one: str(one)[:40],
)
async def test_a_wrong_answer_is_rejected_with_a_reason_and_the_question_stays_open(
    given: dict[str, Any], reason: str
) -> None:
    server = ExampleServer()
    received = add_order(server)
    async with connected_host(server) as model:
        asked = await model.call("order")
        refused = await answer(model, task_id_of(asked), **given)
        assert refused["isError"] is True
        assert reason in model_text(refused)
        assert received == []
        assert model_text(await model.call_next(asked, item="bread", amount=2)) == "accept"


@pytest.mark.parametrize(
    "given",
    [{"answer": {"name": ["x"] * 10_000}}, {"answer": ["x"] * 10_000}, {"answer": {}, "key": "x" * 10_000}],
    ids=["of a wrong type", "no object", "to nothing"],
)
async def test_the_rejection_of_a_very_long_answer_is_short(given: dict[str, Any]) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with connected_host(server) as model:
        asked = await model.call("greet")
        refused = await answer(model, task_id_of(asked), **given)
        assert refused["isError"] is True
        assert len(model_text(refused)) < MAX_TEXT_LENGTH


@BY_VERSIONS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_decline_reaches_the_body(action: str, version: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected_host(server, version) as model:
        asked = await model.call("greet")
        assert model_text(await answer(model, task_id_of(asked), action=action)) == f"You said {action}."
    assert received == [(action, None)]


async def test_a_decline_counts_even_if_an_answer_is_passed_with_it() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected_host(server) as model:
        asked = await model.call("greet")
        await answer(model, task_id_of(asked), action="decline", answer={"name": "Ada"})
    assert received == [("decline", None)]


def add_interview(server: ExampleServer) -> None:
    @server.tasks.tool
    async def interview(task: TaskContext) -> list[Any]:
        asked = [task.elicit(f"Who is {one}?", Name, name=one) for one in ("first", "second")]
        return [reply.content for reply in await asyncio.gather(*asked)]


async def both(model: Model, asked: Message) -> Message:
    """The answer that names both questions. On a busy machine, the second may arrive later."""
    while len(asked["structuredContent"]["questions"]) < 2:
        asked = await model.call("task_wait", {"task_id": task_id_of(asked)})
    return asked


@BY_VERSIONS
async def test_several_questions_are_listed_with_their_keys_and_answered_in_any_order(version: str) -> None:
    server = ExampleServer()
    add_interview(server)
    async with connected_host(server, version) as model:
        asked = await both(model, await model.call("interview"))
        spelled_out = [(tool, arguments) for tool, arguments in find_calls(model_text(asked)) if "answer" in arguments]
        calls = {arguments["key"]: (tool, arguments) for tool, arguments in spelled_out}
        assert set(calls) == {"first-0", "second-0"}
        assert {tool for tool, _ in calls.values()} == {"task_answer"}
        tool, arguments = calls["second-0"]
        rest = await model.call(tool, {**arguments, "answer": {"name": "Bob"}})
        assert [one["key"] for one in rest["structuredContent"]["questions"]] == ["first-0"]
        result = await model.call_next(rest, name="Ada")
        assert result["structuredContent"] == {"result": [{"name": "Ada"}, {"name": "Bob"}]}


async def test_an_answer_to_one_of_several_questions_needs_a_valid_key() -> None:
    server = ExampleServer()
    add_interview(server)
    async with connected_host(server) as model:
        asked = await both(model, await model.call("interview"))
        for wrong in ({}, {"key": "third-0"}, {"key": ""}):
            refused = await answer(model, task_id_of(asked), answer={"name": "Ada"}, **wrong)
            assert refused["isError"] is True
            # With the very calls to make.
            assert find_calls(model_text(refused)) == find_calls(model_text(asked))


@BY_VERSIONS
async def test_a_model_whose_host_can_not_sample_replies_itself(version: str) -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def summarize(task: TaskContext) -> str:
        message = {"role": "user", "content": {"type": "text", "text": "Summarize: it rained."}}
        reply: Any = await task.sample([message], maxTokens=10)
        return f"{reply['role']}: {reply['content']['text']}"

    async with connected_host(server, version) as model:
        asked = await model.call("summarize")
        assert "Reply yourself: Summarize: it rained." in model_text(asked)
        assert "decline" not in model_text(asked)
        assert model_text(await model.call_next(asked, text="Rain.")) == "assistant: Rain."
        asked = await model.call("summarize")
        assert model_text(await answer(model, task_id_of(asked), answer="Just rain.")) == "assistant: Just rain."


async def test_a_wrong_reply_of_a_model_is_rejected_with_the_expected_form() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def summarize(task: TaskContext) -> str:
        message = {"role": "user", "content": {"type": "text", "text": "Summarize: it rained."}}
        reply: Any = await task.sample([message], maxTokens=10)
        return reply["content"]["text"]

    async with connected_host(server) as model:
        asked = await model.call("summarize")
        for wrong in ({"reply": "Rain."}, {}):
            refused = await answer(model, task_id_of(asked), answer=wrong)
            assert refused["isError"] is True
            assert '"text"' in model_text(refused), model_text(refused)
        assert model_text(await model.call_next(asked, text="Rain.")) == "Rain."


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_url_question_names_the_address_to_open(action: str) -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def pay(task: TaskContext) -> str:
        request = {"mode": "url", "message": "Pay there.", "url": "https://pay.example/7", "elicitationId": "7"}
        reply: Any = await task.ask(InputKind.ELICITATION, request, name="pay")
        return reply["action"]

    async with connected_host(server) as model:
        asked = await model.call("pay")
        assert "Have the user open https://pay.example/7: Pay there." in model_text(asked)
        told_of = asked["structuredContent"]["questions"][0]
        assert (told_of["kind"], told_of["url"]) == ("url", "https://pay.example/7")
        if action == "accept":
            assert model_text(await model.call_next(asked)) == "accept"
        else:
            assert model_text(await answer(model, task_id_of(asked), action="decline")) == "decline"


async def ask_for_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_a_resolved_parameter_is_asked_as_text_too(version: str, way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def book(day: str, name: Annotated[Name, Resolve(ask_for_name)]) -> str:
        return f"{name.name} on {day}"

    async with connected_host(server, version, way) as model:
        asked = await model.call("book", {"day": "Monday"})
        assert "Ask the user: Who are you?" in model_text(asked)
        assert model_text(await model.call_next(asked, name="Ada")) == "Ada on Monday"


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
async def test_declining_a_resolved_parameter_returns_the_tools_error(version: str) -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def book(name: Annotated[Name, Resolve(ask_for_name)]) -> str:
        return name.name

    @server.tasks.tool
    async def take_no(answer: Annotated[ElicitationResult[Name], Resolve(ask_for_name)]) -> str:
        return f"they said {answer.action}"

    async with connected_host(server, version) as model:
        asked = await model.call("book")
        refused = await answer(model, task_id_of(asked), action="decline")
        assert refused["isError"] is True
        assert "elicitation was decline" in model_text(refused)
        asked = await model.call("take_no")
        assert model_text(await answer(model, task_id_of(asked), action="decline")) == "they said decline"
