"""Hosts that can ask their user are asked: on their connection before 2026, and since then in rounds."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck import TaskContext
from raincheck.core.lifecycle import Phase
from tests.support.server.caller_v2025 import G1Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.fallback.hosts import (
    MODERN,
    ON_PLAIN_WIRES,
    Model,
    handle_of,
    hosted,
    next_call,
    opened,
    told,
)
from tests.support.server.tools import YES, Gate, Name, add_gated, add_greeting, text_of
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

ASKED: dict[str, Any] = {"elicitation": {}}
WAIT = 45.0

BEFORE_2026 = pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])


@asynccontextmanager
async def greeted(
    version: str, way: str = "memory", **capabilities: Any
) -> AsyncGenerator[tuple[Model, WatchedClock, list[object]]]:
    """A host that can ask its user, of a shop that has only a tool that asks."""
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    heard = add_greeting(shop)
    async with hosted(shop, version, way, clock=clock, capabilities={**ASKED, **capabilities}) as model:
        yield model, clock, heard


def legacy(model: Model) -> G1Caller:
    assert isinstance(model.caller, G1Caller)
    return model.caller


async def go_by(model: Model, clock: WatchedClock) -> None:
    """Let looks at whoever may be gone come and go, on every way."""
    for _ in range(10):
        clock.advance(1)
        await legacy(model).ping()


async def next_round(
    model: Model, tool: str, asked: Message, answer: Any = YES, arguments: dict[str, Any] | None = None
) -> Message:
    """Call again, with the same answer to all that was asked."""
    assert asked["resultType"] == "input_required"
    answers = dict.fromkeys(asked["inputRequests"], answer)
    return await model.call(tool, arguments, inputResponses=answers, requestState=asked["requestState"])


@ON_PLAIN_WIRES
@BEFORE_2026
async def test_the_user_is_asked_on_the_connection_while_the_call_waits(version: str, way: str) -> None:
    async with greeted(version, way) as (model, _, heard):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        assert question["params"]["message"] == "Who are you?"
        await legacy(model).reply(question, YES)
        assert told(await calling) == "Hello, Ada!"
    assert heard == [("accept", {"name": "Ada"})]


@ON_PLAIN_WIRES
@BEFORE_2026
async def test_a_question_that_is_before_the_user_when_the_wait_ends_is_not_put_to_the_model(
    version: str, way: str
) -> None:
    async with greeted(version, way) as (model, _, heard):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.window(calling)
        assert "The user has been asked" in told(answer)
        assert next_call(answer) == ("task_wait", {"task_id": handle_of(answer)})
        await legacy(model).reply(question, YES)
        assert told(await model.go_on(answer)) == "Hello, Ada!"
    assert len(heard) == 1


@ON_PLAIN_WIRES
@BEFORE_2026
async def test_a_question_that_is_before_the_user_is_not_asked_again_by_the_next_call_nor_the_one_after(
    version: str, way: str
) -> None:
    async with greeted(version, way) as (model, clock, heard):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.window(calling)
        for _ in range(2):
            waiting = model.begin(*next_call(answer))
            await clock.asleep(WAIT)
            await go_by(model, clock)
            answer = await model.window(waiting, WAIT, WAIT - 10)
            assert "The user has been asked" in told(answer)
            assert next_call(answer)[0] == "task_wait"
        waiting = model.begin(*next_call(answer))
        await clock.asleep(WAIT)
        await legacy(model).reply(question, YES)
        assert told(await waiting) == "Hello, Ada!"
        assert legacy(model).questions.empty(), "asked twice"
    assert heard == [("accept", {"name": "Ada"})]


@ON_PLAIN_WIRES
async def test_the_late_answer_of_a_user_counts_though_nobody_waits_for_it(way: str) -> None:
    async with greeted("2025-06-18", way) as (model, clock, heard):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.window(calling)
        await go_by(model, clock)
        await legacy(model).reply(question, YES)
        await until(lambda: heard != [], legacy(model))
        assert told(await model.go_on(answer)) == "Hello, Ada!"
        assert model.open_for == [WAIT, 0.0]


@BEFORE_2026
async def test_a_user_who_says_no_is_heard_through_the_host(version: str) -> None:
    async with greeted(version) as (model, _, _heard):
        calling = model.begin("greet")
        await legacy(model).reply(await legacy(model).asked(), {"action": "decline"})
        assert told(await calling) == "You said decline."


async def test_a_question_that_comes_up_in_a_later_wait_is_asked_there() -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_asking_later(shop)
    async with hosted(shop, clock=clock, capabilities=ASKED) as model:
        answer = await model.window(model.begin("ask_later"))
        waiting = model.begin(*next_call(answer))
        gate.open.set()
        await legacy(model).reply(await legacy(model).asked(), YES)
        assert told(await waiting) == "accept"


async def test_a_question_that_comes_up_between_two_calls_is_asked_in_the_next() -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_asking_later(shop)
    async with hosted(shop, clock=clock, capabilities=ASKED) as model:
        answer = await model.window(model.begin("ask_later"))
        gate.open.set()
        await shop.tasks.engine.wait(handle_of(answer), until=lambda task: task.open_inputs > 0)
        waiting = model.begin(*next_call(answer))
        await legacy(model).reply(await legacy(model).asked(), YES)
        assert told(await waiting) == "accept"


def add_asking_later(shop: Shop) -> Gate:
    """A tool that asks when its gate opens."""
    gate = Gate()

    @shop.tasks.tool
    async def ask_later(task: TaskContext) -> str:
        await gate.pass_through(task)
        return (await task.elicit("Who are you?", Name)).action

    return gate


async def test_a_question_before_the_user_is_withdrawn_when_its_task_is_cancelled() -> None:
    async with greeted("2025-06-18") as (model, _, heard):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.window(calling)
        await model.call("task_cancel", {"task_id": handle_of(answer)})
        withdrawn = await legacy(model).seen(lambda one: one.get("method") == "notifications/cancelled")
        assert withdrawn.message["params"]["requestId"] == question["id"]
    assert heard == []


async def test_what_the_model_answers_itself_counts_and_the_question_is_withdrawn_from_the_user() -> None:
    async with greeted("2025-06-18") as (model, _, heard):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        task_id = handle_of(await model.window(calling))
        answer = await model.call("task_answer", {"task_id": task_id, "answer": {"name": "Eve"}})
        assert told(answer) == "Hello, Eve!"
        withdrawn = await legacy(model).seen(lambda one: one.get("method") == "notifications/cancelled")
        assert withdrawn.message["params"]["requestId"] == question["id"]
    assert heard == [("accept", {"name": "Eve"})]


async def test_what_a_host_can_not_put_to_anybody_is_asked_in_words_when_the_user_has_answered_the_rest() -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    is_asked = asyncio.Event()

    @shop.tasks.tool
    async def ask_both(task: TaskContext) -> str:
        async def sample_later() -> None:
            await is_asked.wait()
            message = {"role": "user", "content": {"type": "text", "text": "Say something."}}
            await task.sample([message], maxTokens=10)

        user, _ = await asyncio.gather(task.elicit("Who are you?", Name), sample_later())
        return user.action

    async with hosted(shop, clock=clock, capabilities=ASKED) as model:
        calling = model.begin("ask_both")
        question = await legacy(model).asked()
        is_asked.set()
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        await shop.tasks.engine.wait(task.id, until=lambda task: task.open_inputs == 2)
        await legacy(model).reply(question, YES)
        await clock.asleep(0.05)
        clock.advance(0.05)
        answer = await calling
        assert "Reply yourself: Say something." in told(answer)
        assert "Who are you?" not in told(answer)
        assert told(await model.go_on(answer, text="Something.")) == "accept"


async def test_another_host_of_the_same_user_may_be_asked_when_the_first_is_gone() -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    add_greeting(shop)
    async with opened(shop) as place, place.host(clock=clock, capabilities=ASKED) as stays:
        async with place.host(clock=clock, capabilities=ASKED) as leaves:
            calling = leaves.begin("greet")
            await legacy(leaves).asked()
            answer = await leaves.window(calling)
        waiting = stays.begin(*next_call(answer))
        await legacy(stays).reply(await legacy(stays).asked(), YES)
        assert told(await waiting) == "Hello, Ada!"


@ON_PLAIN_WIRES
async def test_since_2026_the_host_is_asked_in_rounds(way: str) -> None:
    async with greeted(MODERN, way) as (model, clock, heard):
        calling = model.begin("greet")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        (request,) = asked["inputRequests"].values()
        assert request["params"]["message"] == "Who are you?"
        assert told(await next_round(model, "greet", asked)) == "Hello, Ada!"
    assert heard == [("accept", {"name": "Ada"})]


@ON_PLAIN_WIRES
async def test_since_2026_the_host_is_asked_in_rounds_of_task_wait_too(way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_asking_later(shop)
    async with hosted(shop, MODERN, way, clock=clock, capabilities=ASKED) as model:
        answer = await model.window(model.begin("ask_later"))
        tool, arguments = next_call(answer)
        waiting = model.begin(tool, arguments)
        gate.open.set()
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await waiting
        # Whoever asks again without an answer is asked again.
        again = model.begin(tool, arguments)
        await clock.asleep(0.05)
        clock.advance(0.05)
        assert (await again)["inputRequests"] == asked["inputRequests"]
        assert told(await next_round(model, tool, asked, arguments=arguments)) == "accept"
        # And whoever answers twice gets the same.
        assert told(await next_round(model, tool, asked, arguments=arguments)) == "accept"


async def test_a_round_of_task_wait_with_a_wrong_answer_is_refused_in_words_and_the_question_stays() -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    add_asking_later(shop).open.set()
    async with hosted(shop, MODERN, clock=clock, capabilities=ASKED) as model:
        calling = model.begin("ask_later")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        waiting = model.begin("task_wait", {"task_id": task.id})
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await waiting
        wrong = {"action": "accept", "content": {"name": 7}}
        refused = await next_round(model, "task_wait", asked, wrong, {"task_id": task.id})
        assert refused["isError"] is True
        assert "7 is not of type 'string'" in told(refused)
        assert text_of(await next_round(model, "task_wait", asked, arguments={"task_id": task.id})) == "accept"


async def test_a_round_whose_wait_ends_is_told_how_to_go_on() -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop)

    @shop.tasks.tool
    async def ask_first(task: TaskContext) -> str:
        said = await task.elicit("Who are you?", Name)
        await gate.pass_through(task)
        return said.action

    async with hosted(shop, MODERN, clock=clock, capabilities=ASKED) as model:
        calling = model.begin("ask_first")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        second = asyncio.create_task(next_round(model, "ask_first", asked))
        await gate.begun.wait()
        answer = await model.window(second)
        assert told(answer).startswith("ask_first is still running")
        gate.open.set()
        assert told(await model.go_on(answer)) == "accept"
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        assert task.phase is Phase.COMPLETED
