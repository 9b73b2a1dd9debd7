"""Hosts that can't ask their user: their model is asked in words, and answers by calling a tool."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Annotated, Any

import pytest
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel

from raincheck import TaskContext
from raincheck.core.records import InputKind
from tests.support.server.example import Shop
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    LONGEST,
    MODERN,
    ON_PLAIN_WIRES,
    Model,
    calls_in,
    handle_of,
    hosted,
    next_call,
    told,
)
from tests.support.server.tools import Name, add_greeting
from tests.support.server.transports import Message

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class Order(BaseModel):
    item: str
    amount: int
    gift: bool = False
    note: str | None = None


def add_order(shop: Shop) -> list[Any]:
    """A tool that asks for several things in one form. What it got is in the list."""
    heard: list[Any] = []

    @shop.tasks.tool
    async def order(task: TaskContext) -> str:
        reply = await task.elicit("What shall it be?", Order)
        heard.append(reply.content)
        return reply.action

    return heard


async def answer(model: Model, task_id: str, **arguments: Any) -> Message:
    return await model.call("task_answer", {"task_id": task_id, **arguments})


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_a_model_is_asked_in_words_and_answers_by_the_call_that_is_spelled_out(version: str, way: str) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with hosted(shop, version, way) as model:
        asked = await model.call("greet")
        assert "Ask the user: Who are you? (name: string)" in told(asked)
        assert asked["structuredContent"]["status"] == "input_required"
        assert next_call(asked) == ("task_answer", {"task_id": handle_of(asked), "answer": {"name": "<string>"}})
        assert told(await model.go_on(asked, name="Ada")) == "Hello, Ada!"
    assert heard == [("accept", {"name": "Ada"})]


@BY_VERSIONS
async def test_whoever_waits_status_or_result_is_asked_for_is_told_the_question_again(version: str) -> None:
    shop = Shop()
    add_greeting(shop)
    async with hosted(shop, version) as model:
        asked = await model.call("greet")
        for tool in ("task_wait", "task_status", "task_result"):
            again = await model.call(tool, {"task_id": handle_of(asked)})
            assert told(again) == told(asked)
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
    shop = Shop()
    heard = add_greeting(shop)
    async with hosted(shop) as model:
        asked = await model.call("greet")
        assert told(await answer(model, handle_of(asked), answer=given)) == "Hello, Ada!"
    assert heard == [("accept", {"name": "Ada"})]


@pytest.mark.parametrize("unused", [{"key": None}, {"action": None}, {"key": None, "action": None}])
async def test_what_a_model_gives_as_null_it_has_not_given(unused: dict[str, None]) -> None:
    shop = Shop()
    add_greeting(shop)
    async with hosted(shop) as model:
        asked = await model.call("greet")
        assert told(await answer(model, handle_of(asked), answer={"name": "Ada"}, **unused)) == "Hello, Ada!"


async def test_a_field_that_need_not_be_answered_may_be_given_as_null() -> None:
    shop = Shop()
    heard = add_order(shop)
    async with hosted(shop) as model:
        asked = await model.call("order")
        given = {"item": "bread", "amount": 2, "gift": True, "note": None}
        assert told(await answer(model, handle_of(asked), answer=given)) == "accept"
    assert heard == [{"item": "bread", "amount": 2, "gift": True}]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"answer": {"item": "bread", "amount": "two"}}, "'two' is not of type 'integer'"),
        ({"answer": {"item": None, "amount": 2}}, "'item' is a required property"),
        ({"answer": {"item": "bread"}}, "'amount' is a required property"),
        ({"answer": {}}, "is a required property"),
        ({}, "the answer is an object with what was asked for"),
        ({"answer": "bread"}, "the answer is an object with what was asked for, not a text"),
        ({"answer": '["bread", 2]'}, "the answer is an object with what was asked for, not a text"),
        ({"answer": ["bread", 2]}, "task_answer can't be called like that: ['bread', 2] is not of type 'object'"),
        ({"answer": 2}, "task_answer can't be called like that: 2 is not of type 'object'"),
        ({"answer": {"item": "bread", "amount": 2}, "action": "perhaps"}, "'perhaps' is not one of"),
        ({"answer": {"item": "bread", "amount": 2}, "key": 7}, "7 is not of type 'string'"),
        ({"answer": {"item": "bread", "amount": 2}, "key": "elicit-7"}, "no question has the key 'elicit-7'"),
    ],
    ids=lambda one: str(one)[:40],
)
async def test_a_wrong_answer_is_refused_in_words_and_the_question_stays_open(
    given: dict[str, Any], reason: str
) -> None:
    shop = Shop()
    heard = add_order(shop)
    async with hosted(shop) as model:
        asked = await model.call("order")
        refused = await answer(model, handle_of(asked), **given)
        assert refused["isError"] is True
        assert reason in told(refused)
        assert heard == []
        assert told(await model.go_on(asked, item="bread", amount=2)) == "accept"


@pytest.mark.parametrize(
    "given",
    [{"answer": {"name": ["x"] * 10_000}}, {"answer": ["x"] * 10_000}, {"answer": {}, "key": "x" * 10_000}],
    ids=["of a wrong type", "no object", "to nothing"],
)
async def test_a_wrong_answer_that_is_very_long_is_refused_in_few_words(given: dict[str, Any]) -> None:
    shop = Shop()
    add_greeting(shop)
    async with hosted(shop) as model:
        asked = await model.call("greet")
        refused = await answer(model, handle_of(asked), **given)
        assert refused["isError"] is True
        assert len(told(refused)) < LONGEST


@BY_VERSIONS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_of_the_user_is_heard(action: str, version: str) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with hosted(shop, version) as model:
        asked = await model.call("greet")
        assert told(await answer(model, handle_of(asked), action=action)) == f"You said {action}."
    assert heard == [(action, None)]


async def test_a_no_counts_whatever_is_given_with_it() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with hosted(shop) as model:
        asked = await model.call("greet")
        await answer(model, handle_of(asked), action="decline", answer={"name": "Ada"})
    assert heard == [("decline", None)]


def add_interview(shop: Shop) -> None:
    @shop.tasks.tool
    async def interview(task: TaskContext) -> list[Any]:
        asked = [task.elicit(f"Who is {one}?", Name, name=one) for one in ("first", "second")]
        return [reply.content for reply in await asyncio.gather(*asked)]


async def both(model: Model, asked: Message) -> Message:
    """The answer that names both questions: on a busy machine, the second may come a little later."""
    while len(asked["structuredContent"]["questions"]) < 2:
        asked = await model.call("task_wait", {"task_id": handle_of(asked)})
    return asked


@BY_VERSIONS
async def test_several_questions_are_told_with_their_keys_and_answered_in_any_order(version: str) -> None:
    shop = Shop()
    add_interview(shop)
    async with hosted(shop, version) as model:
        asked = await both(model, await model.call("interview"))
        spelled_out = [(tool, arguments) for tool, arguments in calls_in(told(asked)) if "answer" in arguments]
        calls = {arguments["key"]: (tool, arguments) for tool, arguments in spelled_out}
        assert set(calls) == {"first-0", "second-0"}
        assert {tool for tool, _ in calls.values()} == {"task_answer"}
        tool, arguments = calls["second-0"]
        rest = await model.call(tool, {**arguments, "answer": {"name": "Bob"}})
        assert [one["key"] for one in rest["structuredContent"]["questions"]] == ["first-0"]
        result = await model.go_on(rest, name="Ada")
        assert result["structuredContent"] == {"result": [{"name": "Ada"}, {"name": "Bob"}]}


async def test_an_answer_to_one_of_several_says_which() -> None:
    shop = Shop()
    add_interview(shop)
    async with hosted(shop) as model:
        asked = await both(model, await model.call("interview"))
        for wrong in ({}, {"key": "third-0"}, {"key": ""}):
            refused = await answer(model, handle_of(asked), answer={"name": "Ada"}, **wrong)
            assert refused["isError"] is True
            # With the very calls to make.
            assert calls_in(told(refused)) == calls_in(told(asked))


@BY_VERSIONS
async def test_a_model_whose_host_can_not_be_asked_replies_itself(version: str) -> None:
    shop = Shop()

    @shop.tasks.tool
    async def summarize(task: TaskContext) -> str:
        message = {"role": "user", "content": {"type": "text", "text": "Summarize: it rained."}}
        said: Any = await task.sample([message], maxTokens=10)
        return f"{said['role']}: {said['content']['text']}"

    async with hosted(shop, version) as model:
        asked = await model.call("summarize")
        assert "Reply yourself: Summarize: it rained." in told(asked)
        assert "decline" not in told(asked)
        assert told(await model.go_on(asked, text="Rain.")) == "assistant: Rain."
        asked = await model.call("summarize")
        assert told(await answer(model, handle_of(asked), answer="Just rain.")) == "assistant: Just rain."


async def test_a_wrong_reply_of_a_model_is_refused_in_words_that_fit_what_it_was_asked() -> None:
    shop = Shop()

    @shop.tasks.tool
    async def summarize(task: TaskContext) -> str:
        message = {"role": "user", "content": {"type": "text", "text": "Summarize: it rained."}}
        said: Any = await task.sample([message], maxTokens=10)
        return said["content"]["text"]

    async with hosted(shop) as model:
        asked = await model.call("summarize")
        for wrong in ({"reply": "Rain."}, {}):
            refused = await answer(model, handle_of(asked), answer=wrong)
            assert refused["isError"] is True
            assert '"text"' in told(refused), told(refused)
        assert told(await model.go_on(asked, text="Rain.")) == "Rain."


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_page_that_the_user_has_to_open_is_told_with_its_address(action: str) -> None:
    shop = Shop()

    @shop.tasks.tool
    async def pay(task: TaskContext) -> str:
        request = {"mode": "url", "message": "Pay there.", "url": "https://pay.example/7", "elicitationId": "7"}
        reply: Any = await task.ask(InputKind.ELICITATION, request, name="pay")
        return reply["action"]

    async with hosted(shop) as model:
        asked = await model.call("pay")
        assert "Have the user open https://pay.example/7: Pay there." in told(asked)
        told_of = asked["structuredContent"]["questions"][0]
        assert (told_of["kind"], told_of["url"]) == ("url", "https://pay.example/7")
        if action == "accept":
            assert told(await model.go_on(asked)) == "accept"
        else:
            assert told(await answer(model, handle_of(asked), action="decline")) == "decline"


async def ask_for_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_what_a_tool_needs_to_know_before_it_begins_is_asked_in_words_too(version: str, way: str) -> None:
    shop = Shop()

    @shop.tasks.tool
    async def book(day: str, name: Annotated[Name, Resolve(ask_for_name)]) -> str:
        return f"{name.name} on {day}"

    async with hosted(shop, version, way) as model:
        asked = await model.call("book", {"day": "Monday"})
        assert "Ask the user: Who are you?" in told(asked)
        assert told(await model.go_on(asked, name="Ada")) == "Ada on Monday"


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
async def test_who_does_not_tell_what_a_tool_needs_to_know_gets_its_error(version: str) -> None:
    shop = Shop()

    @shop.tasks.tool
    async def book(name: Annotated[Name, Resolve(ask_for_name)]) -> str:
        return name.name

    @shop.tasks.tool
    async def take_no(answer: Annotated[ElicitationResult[Name], Resolve(ask_for_name)]) -> str:
        return f"they said {answer.action}"

    async with hosted(shop, version) as model:
        asked = await model.call("book")
        refused = await answer(model, handle_of(asked), action="decline")
        assert refused["isError"] is True
        assert "elicitation was decline" in told(refused)
        asked = await model.call("take_no")
        assert told(await answer(model, handle_of(asked), action="decline")) == "they said decline"
