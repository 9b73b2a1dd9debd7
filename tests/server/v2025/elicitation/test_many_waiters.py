"""However many wait for a task that asks, one of them is asked, once."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck import TaskContext
from tests.server.v2025.elicitation.test_questions import MESSAGES, ON_BOTH, SAID, add_all_kinds, until_it_asks
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import Shop
from tests.support.server.tools import YES, Name, add_greeting, text_of
from tests.support.server.transports import over_http
from tests.support.server.v2025.elicitation_caller import Asked, Begun, G1Caller, connected, in_session

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

REFUSED = {"code": -1, "message": "not now"}


@asynccontextmanager
async def two(shop: Shop, way: str, second: dict[str, Any] | None = None) -> AsyncGenerator[tuple[G1Caller, G1Caller]]:
    """Two callers of the same owner, on connections of their own. The second declares what is given."""
    if way == "memory":
        async with connected(shop) as first, connected(shop, capabilities=second) as other:
            yield first, other
        return
    async with (
        over_http(shop.mcp.streamable_http_app()) as wire,
        in_session(wire) as (first, _),
        in_session(wire, capabilities=second) as (other, _),
    ):
        yield first, other


def asked(*callers: G1Caller) -> list[str]:
    """What was asked of all of them."""
    return [one.params["message"] for caller in callers for one in caller.all_asked]


async def question_of(*callers: G1Caller) -> tuple[G1Caller, Asked]:
    """The next question, and who is asked it."""
    jobs = {asyncio.create_task(caller.question()): caller for caller in callers}
    done, others = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    for job in others:
        job.cancel()
    await asyncio.wait(jobs)
    (job,) = done
    return jobs[job], job.result()


async def test_of_two_that_wait_on_one_connection_one_is_asked_and_both_get_the_result() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with connected(shop) as caller:
        task_id = await caller.start("greet")
        waiting = [await caller.wait(task_id) for _ in range(2)]
        question = await caller.question()
        assert await caller.asks_nothing()
        await caller.reply(question, result=YES)
        assert [text_of(await one.result()) for one in waiting] == ["Hello, Ada!"] * 2
        assert asked(caller) == ["Who are you?"]
    assert len(heard) == 1


@ON_BOTH
async def test_of_two_connections_of_one_owner_one_is_asked_and_both_get_the_result(way: str) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with two(shop, way) as (first, other):
        task_id = await first.start("greet")
        waiting = await first.wait(task_id)
        question = await first.question()
        waiting_too = await other.wait(task_id)
        assert await other.asks_nothing()
        await first.reply(question, result=YES)
        assert text_of(await waiting.result()) == text_of(await waiting_too.result()) == "Hello, Ada!"
        assert asked(first, other) == ["Who are you?"]
    assert len(heard) == 1


@ON_BOTH
@pytest.mark.parametrize("answer", [{"result": YES}, {"error": REFUSED}], ids=["answered", "refused"])
async def test_a_request_for_the_result_that_is_repeated_again_and_again_asks_once(
    way: str, answer: dict[str, Any]
) -> None:
    shop = Shop()
    add_greeting(shop)
    async with two(shop, way) as (first, other):
        task_id = await first.start("greet")
        waiting: list[Begun] = [await caller.wait(task_id) for _ in range(10) for caller in (first, other)]
        one, question = await question_of(first, other)
        assert await first.asks_nothing()
        assert await other.asks_nothing()
        await one.reply(question, **answer)
        ends = await asyncio.gather(*(one.answer for one in waiting))
        assert all("result" in end for end in ends) is ("result" in answer)
        # Nor is one asked who comes late.
        (end,) = await asyncio.gather(first.result(task_id), return_exceptions=True)
        assert isinstance(end, Refused) is ("error" in answer)
        assert asked(first, other) == ["Who are you?"]


@ON_BOTH
async def test_of_many_questions_each_is_asked_of_one(way: str) -> None:
    shop = Shop()
    add_all_kinds(shop)
    async with two(shop, way) as (first, other):
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
            first.all_asked.clear()
            other.all_asked.clear()


@ON_BOTH
@pytest.mark.parametrize("declared", [{}, {"sampling": {}}, {"elicitation": {"url": {}}}], ids=str)
async def test_who_did_not_declare_it_is_not_asked_and_another_who_did_is(way: str, declared: dict[str, Any]) -> None:
    shop = Shop()
    add_greeting(shop)
    async with two(shop, way, second=declared) as (able, unable):
        task_id = await able.start("greet")
        waiting_too = await unable.wait(task_id)
        await until_it_asks(shop, task_id, way)
        assert await unable.asks_nothing()
        waiting = await able.wait(task_id)
        await able.reply(await able.question(), result=YES)
        assert text_of(await waiting.result()) == text_of(await waiting_too.result()) == "Hello, Ada!"
        assert unable.all_asked == []


async def test_what_different_callers_can_be_asked_is_asked_of_each_at_the_same_time() -> None:
    shop = Shop()

    @shop.tasks.tool
    async def ask_both(task: TaskContext) -> str:
        name, said = await asyncio.gather(task.elicit("Who are you?", Name), task.sample(MESSAGES))
        assert isinstance(said, Mapping)
        return f"{name.content} {said['model']}"

    async with (
        connected(shop) as caller,
        connected(shop, capabilities={"elicitation": {}}) as human,
        connected(shop, capabilities={"sampling": {}}) as model,
    ):
        task_id = await caller.start("ask_both")
        waiting = [await human.wait(task_id), await model.wait(task_id)]
        asked_human, asked_model = await human.question(), await model.question()
        assert (asked_human.method, asked_model.method) == ("elicitation/create", "sampling/createMessage")
        await model.reply(asked_model, result=SAID)
        await human.reply(asked_human, result=YES)
        for one in waiting:
            assert text_of(await one.result()) == "{'name': 'Ada'} m"
        assert [len(one.all_asked) for one in (caller, human, model)] == [0, 1, 1]
