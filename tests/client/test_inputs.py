"""What tasks ask: of the client's callbacks, each question once, or of whoever holds the handle."""

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
from tests.support.client.callers import BY_ALL_WAYS, ON_ALL, ON_BOTH, YES, User, begin, calling, text_of
from tests.support.client.example_server import Server, Sure
from tests.support.client.transports import HeldAnswers, in_memory

pytestmark = pytest.mark.anyio


@BY_ALL_WAYS
@ON_ALL
async def test_questions_go_to_the_callback_each_of_them_once(tier: str, way: str) -> None:
    user = User()
    async with calling(Server(), tier, way, elicitation_callback=user.answer) as client:
        assert text_of(await client.call_tool("confirm")) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]


@ON_BOTH
async def test_two_questions_of_the_same_words_are_two_questions(tier: str) -> None:
    user = User()
    async with calling(Server(), tier, elicitation_callback=user.answer) as client:
        assert text_of(await client.call_tool("confirm_both")) == "accept accept"
    assert user.asked == ["Sure?", "Sure?"]


@ON_BOTH
async def test_two_who_wait_are_not_both_asked(tier: str) -> None:
    user = User("Sure?")
    async with calling(Server(), tier, elicitation_callback=user.answer) as client:
        handle = await begin(client, "confirm")
        assert handle.task_ref is not None
        handles = [handle, client.resume(handle.task_ref), handle]
        waiting = [asyncio.create_task(one.result()) for one in handles]
        await user.is_asked.wait()
        # The one that has somebody asked goes, and another takes its place.
        gone = waiting.pop(0)
        gone.cancel()
        await asyncio.wait([gone])
        user.decides.set()
        assert [text_of(result) for result in await asyncio.gather(*waiting)] == ["accept accept"] * 2
    assert user.asked == ["Sure?", "Really?"]
    assert user.left_when == []


@BY_ALL_WAYS
@ON_BOTH
async def test_many_tasks_may_ask_at_once(tier: str, way: str) -> None:
    user = User()
    async with calling(Server(), tier, way, elicitation_callback=user.answer) as client:
        results = await asyncio.gather(*(client.call_tool("confirm") for _ in range(MAX_STREAMS + 4)))
        assert {text_of(result) for result in results} == {"accept accept"}
    assert len(user.asked) == 2 * (MAX_STREAMS + 4)


@ON_BOTH
async def test_models_are_asked_through_their_callback(tier: str) -> None:
    asked: list[object] = []

    async def write(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        del context
        asked.append(params.max_tokens)
        return CreateMessageResult(role="assistant", content=TextContent(text="Roses"), model="none")

    async with calling(Server(), tier, sampling_callback=write) as client:
        assert "Roses" in text_of(await client.call_tool("have_written"))
    assert asked == [9]


@ON_BOTH
async def test_a_question_that_nobody_declared_to_answer_is_not_asked(tier: str) -> None:
    async with calling(Server(), tier) as client:
        result = await client.call_tool("confirm")
        assert result.is_error
        assert "elicitation" in text_of(result)


async def answer_by_hand(client: TaskClient) -> str:
    """Wait for a task that asks twice, and answer what it asks."""
    handle = await begin(client, "confirm")
    for asked in ("Sure?", "Really?"):
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        (question,) = needed.value.questions
        assert (question.message, question.method) == (asked, "elicitation/create")
        assert asked in str(needed.value)
        assert needed.value.task_id == handle.task_id
        await handle.answer({question.key: YES})
    return text_of(await handle.result())


@BY_ALL_WAYS
@ON_BOTH
async def test_questions_may_be_answered_by_hand(tier: str, way: str) -> None:
    async with calling(Server(), tier, way, elicitation_callback=answer_later) as client:
        assert await answer_by_hand(client) == "accept accept"


@BY_ALL_WAYS
@pytest.mark.parametrize("tier", ["plain", "hidden"])
async def test_without_tasks_questions_are_answered_by_hand(tier: str, way: str) -> None:
    async with calling(Server(), tier, way) as client:
        assert await answer_by_hand(client) == "accept accept"


@ON_BOTH
async def test_questions_are_answered_while_one_looks_on(tier: str) -> None:
    async with calling(Server(), tier, elicitation_callback=answer_later) as client:
        handle, asked = await begin(client, "confirm"), list[str]()
        async for update in handle:
            for question in update.questions:
                if question.message not in asked:
                    asked.append(question.message)
                    await handle.answer({question.key: {"action": "decline"}})
        assert asked == ["Sure?", "Really?"]
        assert text_of(await handle.result()) == "decline decline"


async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays() -> None:
    nonsense: dict[str, Any] = {"action": "accept", "content": {"sure": ["what"]}}
    for tier, error in (("2026", MCPError), ("plain", InvalidValue)):
        callback: dict[str, Any] = {"elicitation_callback": answer_later} if tier == "2026" else {}
        async with calling(Server(), tier, **callback) as client:
            handle = await begin(client, "confirm")
            with pytest.raises(InputRequired) as needed:
                await handle.result()
            (question,) = needed.value.questions
            with pytest.raises(error, match="sure"):
                await handle.answer({question.key: nonsense})
            with pytest.raises(InputRequired):
                await handle.result()


@ON_BOTH
async def test_an_answer_to_what_is_not_asked_is_refused_with_what_is(tier: str) -> None:
    async with calling(Server(), tier, elicitation_callback=answer_later) as client:
        handle = await begin(client, "confirm")
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        (question,) = needed.value.questions
        with pytest.raises(InvalidValue, match=f"does not ask 'another': it asks {question.key}"):
            await handle.answer({question.key: YES, "another": YES})
        with pytest.raises(InvalidValue, match=r'is True: give \{"action": "accept"'):
            await handle.answer({question.key: cast("Any", True)})
        with pytest.raises(InputRequired):
            await handle.result()
        await handle.answer({question.key: YES})


async def test_what_is_asked_by_a_call_that_is_no_task_is_not_for_by_hand() -> None:
    server = Server()

    @server.mcp.tool()
    async def ask_now(ctx: Context[Any, Any]) -> str:
        return (await ctx.elicit("Sure?", Sure)).action

    async with calling(server, "2025", elicitation_callback=answer_later) as client:
        with pytest.raises(MCPError, match="only tasks may ask"):
            await client.call_tool("ask_now")


async def test_a_callback_that_refuses_is_told_to_whoever_waits() -> None:
    async def refuse(context: ClientRequestContext, params: object) -> ErrorData:
        del context, params
        return ErrorData(code=-32050, message="not now")

    async with calling(Server(), "2026", elicitation_callback=refuse) as client:
        with pytest.raises(MCPError, match="not now"):
            await client.call_tool("confirm")


async def test_a_callback_that_breaks_is_told_to_whoever_waits() -> None:
    async def burst(*_: object) -> ErrorData:
        raise LookupError("no such user")

    async with calling(Server(), "2026", elicitation_callback=burst) as client:
        with pytest.raises(LookupError, match="no such user"):
            await client.call_tool("confirm")


@ON_BOTH
async def test_what_somebody_else_has_answered_is_not_thought_about_any_more(tier: str) -> None:
    server, user = Server(), User("Sure?")
    async with (
        calling(server, tier, elicitation_callback=user.answer) as client,
        calling(server, "2026", elicitation_callback=answer_later) as other,
    ):
        handle = await begin(client, "confirm")
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


@ON_BOTH
async def test_a_question_stays_before_the_user_when_one_waits_again(tier: str) -> None:
    user = User("Sure?")
    async with calling(Server(), tier, elicitation_callback=user.answer) as client:
        handle = await begin(client, "confirm")
        waiting = asyncio.create_task(handle.result())
        await user.is_asked.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        user.decides.set()
        assert text_of(await handle.result()) == "accept accept"


@ON_BOTH
async def test_a_question_is_not_asked_again_although_its_answer_crosses_the_end_of_the_wait(tier: str) -> None:
    server, user, held = Server(), User(), HeldAnswers()
    options: dict[str, Any] = {"mode": "legacy"} if tier == "2025" else {}
    client = TaskClient(
        lambda: held.on(in_memory(server.mcp)), name="calls", elicitation_callback=user.answer, **options
    )
    async with client:
        handle = await begin(client, "confirm")
        waiting = asyncio.create_task(handle.result())
        await held.is_sent.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        if tier == "2025":
            await held.is_withdrawn.wait()
        held.may_pass.set()
        assert text_of(await handle.result()) == "accept accept"
    assert user.asked == ["Sure?", "Really?"]
