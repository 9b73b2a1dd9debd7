"""Tests for answering the questions of tasks, with callbacks or with the handle."""

import asyncio
from typing import Any, cast

import pytest
from mcp.client import ClientRequestContext
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageRequestParams, CreateMessageResult, ErrorData, TextContent

from raincheck.client import InputRequired, TaskClient, answer_later
from raincheck.client.session import MAX_STREAMS
from raincheck.core.lifecycle import Status
from raincheck.errors import InvalidValue
from tests.support.client.callers import (
    ON_ALL_PROTOCOLS,
    ON_ALL_TRANSPORTS,
    ON_TASK_PROTOCOLS,
    YES,
    User,
    open_client,
    start_task,
    text_of,
)
from tests.support.client.example_server import ExampleServer, Sure
from tests.support.client.transports import DelayedAnswers, in_memory

pytestmark = pytest.mark.anyio


@ON_ALL_TRANSPORTS
@ON_ALL_PROTOCOLS
async def test_each_question_reaches_the_callback_once(tier: str, way: str) -> None:
    user = User()
    async with open_client(ExampleServer(), tier, way, elicitation_callback=user.answer) as client:
        assert text_of(await client.call_tool("confirm")) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]


@ON_TASK_PROTOCOLS
async def test_two_questions_with_the_same_text_are_asked_separately(tier: str) -> None:
    user = User()
    async with open_client(ExampleServer(), tier, elicitation_callback=user.answer) as client:
        assert text_of(await client.call_tool("confirm_both")) == "accept accept"
    assert user.asked == ["Sure?", "Sure?"]


@ON_TASK_PROTOCOLS
async def test_concurrent_waiters_share_one_callback(tier: str) -> None:
    user = User("Sure?")
    async with open_client(ExampleServer(), tier, elicitation_callback=user.answer) as client:
        handle = await start_task(client, "confirm")
        assert handle.task_ref is not None
        handles = [handle, client.resume(handle.task_ref), handle]
        waiting = [asyncio.create_task(one.result()) for one in handles]
        await user.is_asked.wait()
        # The waiter that runs the callback leaves, and the other one takes over.
        gone = waiting.pop(0)
        gone.cancel()
        await asyncio.wait([gone])
        user.decides.set()
        assert [text_of(result) for result in await asyncio.gather(*waiting)] == ["accept accept"] * 2
    assert user.asked == ["Sure?", "Really?"]
    assert user.left_when == []


@ON_ALL_TRANSPORTS
@ON_TASK_PROTOCOLS
async def test_many_tasks_can_ask_questions_at_once(tier: str, way: str) -> None:
    user = User()
    async with open_client(ExampleServer(), tier, way, elicitation_callback=user.answer) as client:
        results = await asyncio.gather(*(client.call_tool("confirm") for _ in range(MAX_STREAMS + 4)))
        assert {text_of(result) for result in results} == {"accept accept"}
    assert len(user.asked) == 2 * (MAX_STREAMS + 4)


@ON_TASK_PROTOCOLS
async def test_sampling_requests_reach_the_sampling_callback(tier: str) -> None:
    asked: list[object] = []

    async def write(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        del context
        asked.append(params.max_tokens)
        return CreateMessageResult(role="assistant", content=TextContent(text="Roses"), model="none")

    async with open_client(ExampleServer(), tier, sampling_callback=write) as client:
        assert "Roses" in text_of(await client.call_tool("have_written"))
    assert asked == [9]


@ON_TASK_PROTOCOLS
async def test_a_question_without_a_callback_raises_input_required(tier: str) -> None:
    async with open_client(ExampleServer(), tier) as client:
        result = await client.call_tool("confirm")
        assert result.is_error
        assert "elicitation" in text_of(result)


async def answer_by_hand(client: TaskClient) -> str:
    """Wait for a task that asks twice, and answer what it asks."""
    handle = await start_task(client, "confirm")
    for asked in ("Sure?", "Really?"):
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        (question,) = needed.value.questions
        assert (question.message, question.method) == (asked, "elicitation/create")
        assert asked in str(needed.value)
        assert needed.value.task_id == handle.task_id
        await handle.answer({question.key: YES})
    return text_of(await handle.result())


@ON_ALL_TRANSPORTS
@ON_TASK_PROTOCOLS
async def test_questions_can_be_answered_with_the_handle(tier: str, way: str) -> None:
    async with open_client(ExampleServer(), tier, way, elicitation_callback=answer_later) as client:
        assert await answer_by_hand(client) == "accept accept"


@ON_ALL_TRANSPORTS
@pytest.mark.parametrize("tier", ["plain", "hidden"])
async def test_questions_over_fallback_tools_are_answered_with_the_handle(tier: str, way: str) -> None:
    async with open_client(ExampleServer(), tier, way) as client:
        assert await answer_by_hand(client) == "accept accept"


@ON_TASK_PROTOCOLS
async def test_questions_are_answered_while_the_handle_is_iterated(tier: str) -> None:
    async with open_client(ExampleServer(), tier, elicitation_callback=answer_later) as client:
        handle, asked = await start_task(client, "confirm"), list[str]()
        async for update in handle:
            for question in update.questions:
                if question.message not in asked:
                    asked.append(question.message)
                    await handle.answer({question.key: {"action": "decline"}})
        assert asked == ["Sure?", "Really?"]
        assert text_of(await handle.result()) == "decline decline"


async def test_an_invalid_answer_is_refused_and_the_question_stays_open() -> None:
    nonsense: dict[str, Any] = {"action": "accept", "content": {"sure": ["what"]}}
    for tier, error in (("2026", MCPError), ("plain", InvalidValue)):
        callback: dict[str, Any] = {"elicitation_callback": answer_later} if tier == "2026" else {}
        async with open_client(ExampleServer(), tier, **callback) as client:
            handle = await start_task(client, "confirm")
            with pytest.raises(InputRequired) as needed:
                await handle.result()
            (question,) = needed.value.questions
            with pytest.raises(error, match="sure"):
                await handle.answer({question.key: nonsense})
            with pytest.raises(InputRequired):
                await handle.result()


@ON_TASK_PROTOCOLS
async def test_an_answer_to_an_unknown_question_is_refused_and_names_the_open_ones(tier: str) -> None:
    async with open_client(ExampleServer(), tier, elicitation_callback=answer_later) as client:
        handle = await start_task(client, "confirm")
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        (question,) = needed.value.questions
        with pytest.raises(
            InvalidValue, match=f"'another' is not an open question of the task: its open questions are {question.key}"
        ):
            await handle.answer({question.key: YES, "another": YES})
        with pytest.raises(InvalidValue, match=r'is True: pass \{"action": "accept"'):
            await handle.answer({question.key: cast("Any", True)})
        with pytest.raises(InputRequired):
            await handle.result()
        await handle.answer({question.key: YES})


async def test_answer_later_refuses_questions_of_calls_that_are_not_tasks() -> None:
    server = ExampleServer()

    @server.mcp.tool()
    async def ask_now(ctx: Context[Any, Any]) -> str:
        return (await ctx.elicit("Sure?", Sure)).action

    async with open_client(server, "2025", elicitation_callback=answer_later) as client:
        with pytest.raises(MCPError, match="only tasks may ask questions"):
            await client.call_tool("ask_now")


async def test_a_refusal_of_the_callback_is_raised_for_the_waiter() -> None:
    async def refuse(context: ClientRequestContext, params: object) -> ErrorData:
        del context, params
        return ErrorData(code=-32050, message="not now")

    async with open_client(ExampleServer(), "2026", elicitation_callback=refuse) as client:
        with pytest.raises(MCPError, match="not now"):
            await client.call_tool("confirm")


async def test_an_exception_of_the_callback_is_raised_for_the_waiter() -> None:
    async def burst(*_: object) -> ErrorData:
        raise LookupError("no such user")

    async with open_client(ExampleServer(), "2026", elicitation_callback=burst) as client:
        with pytest.raises(LookupError, match="no such user"):
            await client.call_tool("confirm")


@ON_TASK_PROTOCOLS
async def test_a_callback_is_cancelled_when_another_client_answers_its_question(tier: str) -> None:
    server, user = ExampleServer(), User("Sure?")
    async with (
        open_client(server, tier, elicitation_callback=user.answer) as client,
        open_client(server, "2026", elicitation_callback=answer_later) as other,
    ):
        handle = await start_task(client, "confirm")
        waiting = asyncio.create_task(handle.result())
        await user.is_asked.wait()
        assert handle.task_ref is not None
        elsewhere = other.resume(handle.task_ref)
        update = await elsewhere.poll()
        assert update is not None
        assert update.status is Status.INPUT_REQUIRED
        await elsewhere.answer({update.questions[0].key: YES})
        assert text_of(await waiting) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]
    assert len(user.left_when) == 1
    # A server of 2025 takes a question back by itself, which may come a little later.
    assert tier == "2025" or user.left_when == [1]


@ON_TASK_PROTOCOLS
async def test_a_callback_keeps_running_between_two_waits(tier: str) -> None:
    user = User("Sure?")
    async with open_client(ExampleServer(), tier, elicitation_callback=user.answer) as client:
        handle = await start_task(client, "confirm")
        waiting = asyncio.create_task(handle.result())
        await user.is_asked.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        user.decides.set()
        assert text_of(await handle.result()) == "accept accept"


@ON_TASK_PROTOCOLS
async def test_a_question_is_not_asked_again_if_its_answer_is_in_flight_when_the_wait_ends(tier: str) -> None:
    server, user, held = ExampleServer(), User(), DelayedAnswers()
    options: dict[str, Any] = {"mode": "legacy"} if tier == "2025" else {}
    client = TaskClient(
        lambda: held.on(in_memory(server.mcp)), name="calls", elicitation_callback=user.answer, **options
    )
    async with client:
        handle = await start_task(client, "confirm")
        waiting = asyncio.create_task(handle.result())
        await held.is_sent.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        if tier == "2025":
            await held.is_withdrawn.wait()
        held.may_pass.set()
        assert text_of(await handle.result()) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]
