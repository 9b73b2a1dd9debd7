"""Hosts that can ask their user are asked on their connection before 2026, and in rounds since 2026."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck import TaskContext
from raincheck.core.lifecycle import Phase
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.fallback.hosts import (
    MODERN,
    ON_FALLBACK_TRANSPORTS,
    Model,
    connected_host,
    hosted_server,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.tools import YES, Gate, Name, add_gated, add_greeting, text_of
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import until
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio

ASKED: dict[str, Any] = {"elicitation": {}}
WAIT = 45.0

BEFORE_2026 = pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])


@asynccontextmanager
async def greeting_host(
    version: str, way: str = "memory", **capabilities: Any
) -> AsyncGenerator[tuple[Model, WatchedClock, list[object]]]:
    """A host that can ask its user, on a server whose only tool asks a question."""
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    received = add_greeting(server)
    async with connected_host(server, version, way, clock=clock, capabilities={**ASKED, **capabilities}) as model:
        yield model, clock, received


def legacy(model: Model) -> V2025Caller:
    assert isinstance(model.caller, V2025Caller)
    return model.caller


async def run_checks(model: Model, clock: WatchedClock) -> None:
    """Let the checks for disconnected callers run on every transport."""
    for _ in range(10):
        clock.advance(1)
        await legacy(model).ping()


async def next_round(
    model: Model, tool: str, asked: Message, answer: Any = YES, arguments: dict[str, Any] | None = None
) -> Message:
    """Call again, with the same answer to every question."""
    assert asked["resultType"] == "input_required"
    answers = dict.fromkeys(asked["inputRequests"], answer)
    return await model.call(tool, arguments, inputResponses=answers, requestState=asked["requestState"])


@ON_FALLBACK_TRANSPORTS
@BEFORE_2026
async def test_the_user_is_asked_on_the_connection_while_the_call_waits(version: str, way: str) -> None:
    async with greeting_host(version, way) as (model, _, received):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        assert question["params"]["message"] == "Who are you?"
        await legacy(model).reply(question, YES)
        assert model_text(await calling) == "Hello, Ada!"
    assert received == [("accept", {"name": "Ada"})]


@ON_FALLBACK_TRANSPORTS
@BEFORE_2026
async def test_an_open_question_at_the_end_of_the_wait_is_not_passed_to_the_model(version: str, way: str) -> None:
    async with greeting_host(version, way) as (model, _, received):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.finish_wait(calling)
        assert "The user has been asked" in model_text(answer)
        assert next_call(answer) == ("task_wait", {"task_id": task_id_of(answer)})
        await legacy(model).reply(question, YES)
        assert model_text(await model.call_next(answer)) == "Hello, Ada!"
    assert len(received) == 1


@ON_FALLBACK_TRANSPORTS
@BEFORE_2026
async def test_an_open_question_is_not_asked_again_by_the_next_two_calls(version: str, way: str) -> None:
    async with greeting_host(version, way) as (model, clock, received):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.finish_wait(calling)
        for _ in range(2):
            waiting = model.begin(*next_call(answer))
            await clock.asleep(WAIT)
            await run_checks(model, clock)
            answer = await model.finish_wait(waiting, WAIT, WAIT - 10)
            assert "The user has been asked" in model_text(answer)
            assert next_call(answer)[0] == "task_wait"
        waiting = model.begin(*next_call(answer))
        await clock.asleep(WAIT)
        await legacy(model).reply(question, YES)
        assert model_text(await waiting) == "Hello, Ada!"
        assert legacy(model).questions.empty(), "asked twice"
    assert received == [("accept", {"name": "Ada"})]


@ON_FALLBACK_TRANSPORTS
async def test_a_late_answer_of_the_user_counts_although_no_call_waits(way: str) -> None:
    async with greeting_host("2025-06-18", way) as (model, clock, received):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.finish_wait(calling)
        await run_checks(model, clock)
        await legacy(model).reply(question, YES)
        await until(lambda: received != [], legacy(model))
        assert model_text(await model.call_next(answer)) == "Hello, Ada!"
        assert model.open_for == [WAIT, 0.0]


@BEFORE_2026
async def test_a_decline_through_the_host_reaches_the_body(version: str) -> None:
    async with greeting_host(version) as (model, _, _heard):
        calling = model.begin("greet")
        await legacy(model).reply(await legacy(model).asked(), {"action": "decline"})
        assert model_text(await calling) == "You said decline."


async def test_a_question_that_comes_up_in_a_later_wait_is_asked_there() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_late_question(server)
    async with connected_host(server, clock=clock, capabilities=ASKED) as model:
        answer = await model.finish_wait(model.begin("ask_later"))
        waiting = model.begin(*next_call(answer))
        gate.open.set()
        await legacy(model).reply(await legacy(model).asked(), YES)
        assert model_text(await waiting) == "accept"


async def test_a_question_that_comes_up_between_two_calls_is_asked_in_the_next() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_late_question(server)
    async with connected_host(server, clock=clock, capabilities=ASKED) as model:
        answer = await model.finish_wait(model.begin("ask_later"))
        gate.open.set()
        await server.tasks.engine.wait(task_id_of(answer), until=lambda task: task.open_inputs > 0)
        waiting = model.begin(*next_call(answer))
        await legacy(model).reply(await legacy(model).asked(), YES)
        assert model_text(await waiting) == "accept"


def add_late_question(server: ExampleServer) -> Gate:
    """Add a tool that asks when its gate opens."""
    gate = Gate()

    @server.tasks.tool
    async def ask_later(task: TaskContext) -> str:
        await gate.pass_through(task)
        return (await task.elicit("Who are you?", Name)).action

    return gate


async def test_an_open_question_is_withdrawn_when_its_task_is_cancelled() -> None:
    async with greeting_host("2025-06-18") as (model, _, received):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        answer = await model.finish_wait(calling)
        await model.call("task_cancel", {"task_id": task_id_of(answer)})
        withdrawn = await legacy(model).seen(lambda one: one.get("method") == "notifications/cancelled")
        assert withdrawn.message["params"]["requestId"] == question["id"]
    assert received == []


async def test_an_answer_of_the_model_counts_and_withdraws_the_question_from_the_user() -> None:
    async with greeting_host("2025-06-18") as (model, _, received):
        calling = model.begin("greet")
        question = await legacy(model).asked()
        task_id = task_id_of(await model.finish_wait(calling))
        answer = await model.call("task_answer", {"task_id": task_id, "answer": {"name": "Eve"}})
        assert model_text(answer) == "Hello, Eve!"
        withdrawn = await legacy(model).seen(lambda one: one.get("method") == "notifications/cancelled")
        assert withdrawn.message["params"]["requestId"] == question["id"]
    assert received == [("accept", {"name": "Eve"})]


async def test_a_question_that_the_host_can_not_ask_goes_to_the_model_after_the_user_answered_the_rest() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    is_asked = asyncio.Event()

    @server.tasks.tool
    async def ask_both(task: TaskContext) -> str:
        async def sample_later() -> None:
            await is_asked.wait()
            message = {"role": "user", "content": {"type": "text", "text": "Say something."}}
            await task.sample([message], maxTokens=10)

        user, _ = await asyncio.gather(task.elicit("Who are you?", Name), sample_later())
        return user.action

    async with connected_host(server, clock=clock, capabilities=ASKED) as model:
        calling = model.begin("ask_both")
        question = await legacy(model).asked()
        is_asked.set()
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        await server.tasks.engine.wait(task.id, until=lambda task: task.open_inputs == 2)
        await legacy(model).reply(question, YES)
        await clock.asleep(0.05)
        clock.advance(0.05)
        answer = await calling
        assert "Reply yourself: Say something." in model_text(answer)
        assert "Who are you?" not in model_text(answer)
        assert model_text(await model.call_next(answer, text="Something.")) == "accept"


async def test_another_host_of_the_same_user_is_asked_when_the_first_disconnects() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    add_greeting(server)
    async with hosted_server(server) as hosts, hosts.host(clock=clock, capabilities=ASKED) as stays:
        async with hosts.host(clock=clock, capabilities=ASKED) as leaves:
            calling = leaves.begin("greet")
            await legacy(leaves).asked()
            answer = await leaves.finish_wait(calling)
        waiting = stays.begin(*next_call(answer))
        await legacy(stays).reply(await legacy(stays).asked(), YES)
        assert model_text(await waiting) == "Hello, Ada!"


@ON_FALLBACK_TRANSPORTS
async def test_since_2026_the_host_is_asked_in_rounds(way: str) -> None:
    async with greeting_host(MODERN, way) as (model, clock, received):
        calling = model.begin("greet")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        (request,) = asked["inputRequests"].values()
        assert request["params"]["message"] == "Who are you?"
        assert model_text(await next_round(model, "greet", asked)) == "Hello, Ada!"
    assert received == [("accept", {"name": "Ada"})]


@ON_FALLBACK_TRANSPORTS
async def test_since_2026_the_host_is_asked_in_rounds_of_task_wait_too(way: str) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_late_question(server)
    async with connected_host(server, MODERN, way, clock=clock, capabilities=ASKED) as model:
        answer = await model.finish_wait(model.begin("ask_later"))
        tool, arguments = next_call(answer)
        waiting = model.begin(tool, arguments)
        gate.open.set()
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await waiting
        # A call that is repeated without an answer is asked again.
        again = model.begin(tool, arguments)
        await clock.asleep(0.05)
        clock.advance(0.05)
        assert (await again)["inputRequests"] == asked["inputRequests"]
        assert model_text(await next_round(model, tool, asked, arguments=arguments)) == "accept"
        # A repeated answer gets the same result.
        assert model_text(await next_round(model, tool, asked, arguments=arguments)) == "accept"


async def test_a_round_of_task_wait_with_a_wrong_answer_is_rejected_and_the_question_stays_open() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    add_late_question(server).open.set()
    async with connected_host(server, MODERN, clock=clock, capabilities=ASKED) as model:
        calling = model.begin("ask_later")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        waiting = model.begin("task_wait", {"task_id": task.id})
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await waiting
        wrong = {"action": "accept", "content": {"name": 7}}
        refused = await next_round(model, "task_wait", asked, wrong, {"task_id": task.id})
        assert refused["isError"] is True
        assert "7 is not of type 'string'" in model_text(refused)
        assert text_of(await next_round(model, "task_wait", asked, arguments={"task_id": task.id})) == "accept"


async def test_a_round_whose_wait_ends_names_the_next_call() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_gated(server)

    @server.tasks.tool
    async def ask_first(task: TaskContext) -> str:
        reply = await task.elicit("Who are you?", Name)
        await gate.pass_through(task)
        return reply.action

    async with connected_host(server, MODERN, clock=clock, capabilities=ASKED) as model:
        calling = model.begin("ask_first")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        second = asyncio.create_task(next_round(model, "ask_first", asked))
        await gate.started.wait()
        answer = await model.finish_wait(second)
        assert model_text(answer).startswith("ask_first is still running")
        gate.open.set()
        assert model_text(await model.call_next(answer)) == "accept"
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        assert task.phase is Phase.COMPLETED
