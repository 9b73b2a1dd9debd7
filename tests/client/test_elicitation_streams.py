"""Tests for servers of 2025-11-25 that ask outside the result request, or after it was answered."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, CallToolResult, ElicitResult, JSONRPCError, JSONRPCResponse

from tests.support.client.callers import User, text_of
from tests.support.client.fake_servers import DONE, FakeServer, NeverResponds
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

ASKING = {"status": "input_required"}
NOT_READY = MCPError(-32000, "not ready")
CUT_OFF = MCPError(CONNECTION_CLOSED, "SSE stream ended without a response")
YES = {"action": "accept", "content": {"sure": True}}


async def finish(
    fake: FakeServer,
    user: User,
    asking: "asyncio.Task[JSONRPCResponse | JSONRPCError]",
    waiting: "asyncio.Task[CallToolResult]",
) -> None:
    """Let the user decide: the server gets the answer, and ends the task."""
    user.decides.set()
    answer = await asyncio.wait_for(asking, 20)
    assert isinstance(answer, JSONRPCResponse)
    assert answer.result == YES
    fake.set_responses("tasks/result", DONE)
    fake.complete_after()
    assert text_of(await waiting) == "done"


@pytest.mark.parametrize("ended", [NOT_READY, CUT_OFF])
async def test_a_question_outside_the_result_request_is_answered_however_that_request_ends(ended: MCPError) -> None:
    fake, user = FakeServer("2025-11-25"), User("Sure?")
    fake.set_tasks({"status": "working"})
    fake.set_responses("tasks/result", ended)
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.wait_until(lambda: fake.count_requests("tasks/get") > 0)
        asking = asyncio.create_task(fake.ask("Sure?"))
        await user.is_asked.wait()
        fake.set_tasks(ASKING)
        # When it is asked for once more, the first one has ended.
        await fake.wait_until(lambda: fake.count_requests("tasks/result") > 1)
        await finish(fake, user, asking, waiting)
    assert user.asked == ["Sure?"]


async def test_a_question_is_answered_even_if_its_result_request_was_already_answered() -> None:
    fake, user = FakeServer("2025-11-25"), User("Sure?")
    asking: list[asyncio.Task[JSONRPCResponse | JSONRPCError]] = []

    async def ask_first(params: Mapping[str, Any]) -> Mapping[str, Any]:
        del params
        if not asking:
            asking.append(asyncio.create_task(fake.ask("Sure?")))
            await user.is_asked.wait()
        raise NOT_READY

    fake.set_tasks(ASKING)
    fake.set_responses("tasks/result", ask_first)
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.wait_until(lambda: fake.count_requests("tasks/result") > 1)
        await finish(fake, user, asking[0], waiting)
    assert user.asked == ["Sure?"]


async def test_the_server_gets_an_error_if_a_callback_cancels_itself() -> None:
    fake = FakeServer("2025-11-25")
    fake.set_tasks({"status": "working"})

    async def leave(*_: object) -> ElicitResult:
        raise asyncio.CancelledError

    async with fake.client(clock=SkippingClock(), elicitation_callback=leave) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.wait_until(lambda: fake.count_requests("tasks/get") > 0)
        answer = await asyncio.wait_for(fake.ask("Sure?"), 20)
        assert isinstance(answer, JSONRPCError)
        assert "before it answered" in answer.error.message
        fake.complete_after()
        assert text_of(await waiting) == "done"


async def test_a_saturated_client_stops_waiting_for_a_task_that_has_long_asked_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raincheck.client.session.MAX_STREAMS", 1)
    working = {"status": "working"}
    fake, user = FakeServer("2025-11-25"), User("Sure?")

    async def look(*shown: Mapping[str, Any]) -> None:
        """Have the client see these, the last one several times."""
        fake.set_tasks(*shown)
        observed = fake.count_requests("tasks/get")
        await fake.wait_until(lambda: fake.count_requests("tasks/get") > observed + len(shown) + 3)

    fake.set_tasks(ASKING)
    fake.set_responses("tasks/result", NeverResponds())
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.wait_until(lambda: fake.count_requests("tasks/result") == 1)
        asking = asyncio.create_task(fake.ask("Sure?"))
        await user.is_asked.wait()
        # The user thinks, whatever the server shows.
        await look(working)
        await look(ASKING)
        user.decides.set()
        await asyncio.wait_for(asking, 5)
        # It may be about to ask the next question.
        await look(working, ASKING)
        assert fake.count_requests("tasks/result") == 1
        await look(working)
        fake.set_tasks(ASKING)
        await fake.wait_until(lambda: fake.count_requests("tasks/result") == 2)
        fake.set_responses("tasks/result", DONE)
        fake.complete_after()
        assert text_of(await waiting) == "done"
    assert user.asked == ["Sure?"]
