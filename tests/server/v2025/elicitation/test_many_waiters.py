"""Of all callers that wait for a task, exactly one is asked its question, once."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck import TaskContext
from tests.server.v2025.elicitation.test_questions import MESSAGES, ON_BOTH, SAID, add_all_kinds, until_it_asks
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, Name, add_greeting, text_of
from tests.support.server.transports import over_http
from tests.support.server.v2025.elicitation_caller import (
    ElicitationCaller,
    PendingRequest,
    ServerRequest,
    connected,
    http_session,
)

pytestmark = pytest.mark.anyio

REFUSED = {"code": -1, "message": "not now"}


@asynccontextmanager
async def two(
    server: ExampleServer, way: str, second: dict[str, Any] | None = None
) -> AsyncGenerator[tuple[ElicitationCaller, ElicitationCaller]]:
    """Two callers of the same owner on separate connections. The second declares the given capabilities."""
    if way == "memory":
        async with connected(server) as first, connected(server, capabilities=second) as other:
            yield first, other
        return
    async with (
        over_http(server.mcp.streamable_http_app()) as transport,
        http_session(transport) as (first, _),
        http_session(transport, capabilities=second) as (other, _),
    ):
        yield first, other


def asked(*callers: ElicitationCaller) -> list[str]:
    """The questions that all callers were asked."""
    return [one.params["message"] for caller in callers for one in caller.all_requests]


async def question_of(*callers: ElicitationCaller) -> tuple[ElicitationCaller, ServerRequest]:
    """The next question, and the caller that is asked."""
    callers_by_task = {asyncio.create_task(caller.question()): caller for caller in callers}
    done, others = await asyncio.wait(callers_by_task, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.wait(callers_by_task)
    (task,) = done
    return callers_by_task[task], task.result()


async def test_of_two_waits_on_one_connection_one_is_asked_and_both_get_the_result() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected(server) as caller:
        task_id = await caller.start("greet")
        waiting = [await caller.wait(task_id) for _ in range(2)]
        question = await caller.question()
        assert await caller.has_no_question()
        await caller.reply(question, result=YES)
        assert [text_of(await one.result()) for one in waiting] == ["Hello, Ada!"] * 2
        assert asked(caller) == ["Who are you?"]
    assert len(received) == 1


@ON_BOTH
async def test_of_two_connections_of_one_owner_one_is_asked_and_both_get_the_result(way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with two(server, way) as (first, other):
        task_id = await first.start("greet")
        waiting = await first.wait(task_id)
        question = await first.question()
        waiting_too = await other.wait(task_id)
        assert await other.has_no_question()
        await first.reply(question, result=YES)
        assert text_of(await waiting.result()) == text_of(await waiting_too.result()) == "Hello, Ada!"
        assert asked(first, other) == ["Who are you?"]
    assert len(received) == 1


@ON_BOTH
@pytest.mark.parametrize("answer", [{"result": YES}, {"error": REFUSED}], ids=["answered", "refused"])
async def test_a_request_for_the_result_that_is_repeated_again_and_again_asks_once(
    way: str, answer: dict[str, Any]
) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with two(server, way) as (first, other):
        task_id = await first.start("greet")
        waiting: list[PendingRequest] = [await caller.wait(task_id) for _ in range(10) for caller in (first, other)]
        one, question = await question_of(first, other)
        assert await first.has_no_question()
        assert await other.has_no_question()
        await one.reply(question, **answer)
        ends = await asyncio.gather(*(one.answer for one in waiting))
        assert all("result" in end for end in ends) is ("result" in answer)
        # A caller that starts to wait later is not asked either.
        (end,) = await asyncio.gather(first.result(task_id), return_exceptions=True)
        assert isinstance(end, Refused) is ("error" in answer)
        assert asked(first, other) == ["Who are you?"]


@ON_BOTH
async def test_of_many_questions_each_is_asked_of_one(way: str) -> None:
    server = ExampleServer()
    add_all_kinds(server)
    async with two(server, way) as (first, other):
        for tool, messages in (
            ("one_by_one", [f"Number {number}?" for number in range(4)]),
            ("multi_input", ["Are you sure?", "Who are you?"]),
        ):
            task_id = await first.start(tool)
            waiting = [await caller.wait(task_id) for caller in (first, other, first)]
            for _ in messages:
                one, question = await question_of(first, other)
                await one.reply(question, result={"action": "decline"})
            ends = await asyncio.gather(*(begun.result() for begun in waiting))
            assert ends == [ends[0]] * 3
            assert sorted(asked(first, other)) == messages
            first.all_requests.clear()
            other.all_requests.clear()


@ON_BOTH
@pytest.mark.parametrize("declared", [{}, {"sampling": {}}, {"elicitation": {"url": {}}}], ids=str)
async def test_a_caller_that_declared_the_capability_is_asked_instead_of_one_that_did_not(
    way: str, declared: dict[str, Any]
) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with two(server, way, second=declared) as (able, unable):
        task_id = await able.start("greet")
        waiting_too = await unable.wait(task_id)
        await until_it_asks(server, task_id, way)
        assert await unable.has_no_question()
        waiting = await able.wait(task_id)
        await able.reply(await able.question(), result=YES)
        assert text_of(await waiting.result()) == text_of(await waiting_too.result()) == "Hello, Ada!"
        assert unable.all_requests == []


async def test_callers_with_different_capabilities_are_asked_different_questions_concurrently() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def ask_both(task: TaskContext) -> str:
        name, sample = await asyncio.gather(task.elicit("Who are you?", Name), task.sample(MESSAGES))
        assert isinstance(sample, Mapping)
        return f"{name.content} {sample['model']}"

    async with (
        connected(server) as caller,
        connected(server, capabilities={"elicitation": {}}) as human,
        connected(server, capabilities={"sampling": {}}) as model,
    ):
        task_id = await caller.start("ask_both")
        waiting = [await human.wait(task_id), await model.wait(task_id)]
        asked_human, asked_model = await human.question(), await model.question()
        assert (asked_human.method, asked_model.method) == ("elicitation/create", "sampling/createMessage")
        await model.reply(asked_model, result=SAID)
        await human.reply(asked_human, result=YES)
        for one in waiting:
            assert text_of(await one.result()) == "{'name': 'Ada'} m"
        assert [len(one.all_requests) for one in (caller, human, model)] == [0, 1, 1]
