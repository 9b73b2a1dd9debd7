"""A question that is settled in another way, while somebody thinks about it, is taken back; and so is the waiting."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from raincheck.testing import FakeClock
from tests.server.v2025.elicitation.test_questions import ON_BOTH, add_all_kinds, calling
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import Shop
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import over_http
from tests.support.server.v2025.elicitation_caller import Asked, Begun, G1Caller, connected, in_session

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

TOM = {"authorization": "Bearer tom"}


@asynccontextmanager
async def both_generations(shop: Shop) -> AsyncGenerator[tuple[G1Caller, Caller]]:
    """Two callers of one owner, each of its generation."""
    async with over_http(shop.mcp.streamable_http_app()) as wire, in_session(wire, TOM) as (old, _):
        yield old, Caller(wire, headers=TOM)


async def begin(caller: G1Caller, tool: str = "greet", task_id: str | None = None) -> tuple[str, Begun, Asked]:
    """A task that asks, somebody who waits for it, and what is asked."""
    task_id = await caller.start(tool) if task_id is None else task_id
    waiting = await caller.wait(task_id)
    return task_id, waiting, await caller.question()


async def test_an_answer_by_a_caller_of_2026_is_the_answer_and_the_question_is_withdrawn() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with both_generations(shop) as (old, new):
        task_id, waiting, question = await begin(old)
        await new.update(task_id, {"elicit-0": YES})
        assert await old.withdrawal() == question.id
        assert text_of(await waiting.result()) == "Hello, Ada!"
        # What is said now is said to nobody.
        await old.reply(question, result={"action": "decline"})
        assert text_of(await old.result(task_id)) == "Hello, Ada!"
        assert (await old.get(task_id))["status"] == "completed"
    assert heard == [("accept", {"name": "Ada"})]


async def test_what_one_answers_of_several_is_withdrawn_from_the_other_and_the_rest_is_asked() -> None:
    shop = Shop()
    add_all_kinds(shop)
    async with both_generations(shop) as (old, new):
        task_id, waiting, question = await begin(old, "multi_input")
        key = {"Who are you?": "user-0", "Are you sure?": "sure-0"}[question.params["message"]]
        await new.update(task_id, {key: {"action": "decline"}})
        assert await old.withdrawal() == question.id
        rest = await old.question()
        assert rest.params["message"] != question.params["message"]
        await old.reply(rest, result={"action": "decline"})
        assert text_of(await waiting.result()) == "None None"
        assert len(old.all_asked) == 2


async def test_what_a_caller_of_2025_answered_does_not_show_to_one_of_2026() -> None:
    shop = Shop()
    add_all_kinds(shop)
    async with both_generations(shop) as (old, new):
        task_id = await new.start("one_by_one")
        waiting = await old.wait(task_id)
        for number in range(4):
            question = await old.question()
            seen = await new.get(task_id)
            assert seen["status"] == "input_required"
            assert list(seen["inputRequests"]) == [f"elicit-{number}"]
            await old.reply(question, result={"action": "decline"})
        await waiting.result()
        assert (await new.get(task_id))["status"] == "completed"


@ON_BOTH
async def test_of_a_task_that_is_cancelled_the_question_is_withdrawn_and_who_waits_is_told(way: str) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with calling(shop, way) as caller:
        task_id, waiting, question = await begin(caller)
        assert (await caller.cancel(task_id))["status"] == "cancelled"
        assert await caller.withdrawal() == question.id
        with pytest.raises(Refused) as refused:
            await waiting.result()
        assert refused.value.code == -32000
        assert refused.value.data["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
        await caller.reply(question, result=YES)
        await caller.settle()
        assert (await caller.get(task_id))["status"] == "cancelled"
    assert heard == []


@ON_BOTH
async def test_of_a_task_whose_time_is_up_the_question_is_withdrawn_and_who_waits_is_told(way: str) -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    add_greeting(shop, timeout=60.0)
    async with calling(shop, way) as caller:
        task_id, waiting, question = await begin(caller)
        clock.advance(61)
        assert await caller.withdrawal() == question.id
        result = await waiting.result()
        assert result["isError"]
        assert (await caller.get(task_id))["status"] == "failed"


async def test_of_two_servers_on_one_file_each_may_ask_and_the_answer_to_one_withdraws_the_other(
    tmp_path: Path,
) -> None:
    """They know nothing of each other but the file: whoever is asked in vain is told so at once."""
    async with AsyncExitStack() as stack:
        callers: list[G1Caller] = []
        for _ in range(2):
            shop = Shop(tmp_path / "tasks.db")
            add_greeting(shop)
            callers.append(await stack.enter_async_context(connected(shop)))
        here, there = callers
        task_id, waiting, question = await begin(here)
        _, waiting_too, question_too = await begin(there, task_id=task_id)
        await there.reply(question_too, result=YES)
        assert await here.withdrawal() == question.id
        assert text_of(await waiting.result()) == text_of(await waiting_too.result()) == "Hello, Ada!"
        await here.reply(question, result={"action": "decline"})
        assert text_of(await here.result(task_id)) == "Hello, Ada!"
        assert [len(one.all_asked) for one in callers] == [1, 1]
