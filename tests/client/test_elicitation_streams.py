"""Servers of 2025-11-25 that ask beside the request for the result, or answer that while they wait for an answer."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, CallToolResult, ElicitResult, JSONRPCError, JSONRPCResponse

from tests.support.client.callers import User, text_of
from tests.support.client.fake_servers import DONE, Fake, Hung
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

ASKING = {"status": "input_required"}
NOT_READY = MCPError(-32000, "not ready")
CUT_OFF = MCPError(CONNECTION_CLOSED, "SSE stream ended without a response")
YES = {"action": "accept", "content": {"sure": True}}


async def finish(
    fake: Fake,
    user: User,
    asking: "asyncio.Task[JSONRPCResponse | JSONRPCError]",
    waiting: "asyncio.Task[CallToolResult]",
) -> None:
    """Let the user decide: the server gets the answer, and ends the task."""
    user.decides.set()
    answer = await asyncio.wait_for(asking, 20)
    assert isinstance(answer, JSONRPCResponse)
    assert answer.result == YES
    fake.says("tasks/result", DONE)
    fake.ends()
    assert text_of(await waiting) == "done"


@pytest.mark.parametrize("ended", [NOT_READY, CUT_OFF])
async def test_what_was_asked_beside_is_answered_however_the_request_for_the_result_ends(ended: MCPError) -> None:
    fake, user = Fake("2025-11-25"), User("Sure?")
    fake.shows({"status": "working"})
    fake.says("tasks/result", ended)
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.until(lambda: fake.times("tasks/get") > 0)
        asking = asyncio.create_task(fake.ask("Sure?"))
        await user.is_asked.wait()
        fake.shows(ASKING)
        # When it is asked for once more, the first one has ended.
        await fake.until(lambda: fake.times("tasks/result") > 1)
        await finish(fake, user, asking, waiting)
    assert user.asked == ["Sure?"]


async def test_what_was_asked_in_a_request_that_the_server_has_answered_is_answered() -> None:
    fake, user = Fake("2025-11-25"), User("Sure?")
    asking: list[asyncio.Task[JSONRPCResponse | JSONRPCError]] = []

    async def ask_first(params: Mapping[str, Any]) -> Mapping[str, Any]:
        del params
        if not asking:
            asking.append(asyncio.create_task(fake.ask("Sure?")))
            await user.is_asked.wait()
        raise NOT_READY

    fake.shows(ASKING)
    fake.says("tasks/result", ask_first)
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.until(lambda: fake.times("tasks/result") > 1)
        await finish(fake, user, asking[0], waiting)
    assert user.asked == ["Sure?"]


async def test_a_server_is_told_of_a_callback_that_is_cancelled_by_others() -> None:
    fake = Fake("2025-11-25")
    fake.shows({"status": "working"})

    async def leave(*_: object) -> ElicitResult:
        raise asyncio.CancelledError

    async with fake.client(clock=SkippingClock(), elicitation_callback=leave) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.until(lambda: fake.times("tasks/get") > 0)
        answer = await asyncio.wait_for(fake.ask("Sure?"), 20)
        assert isinstance(answer, JSONRPCError)
        assert "has not answered" in answer.error.message
        fake.ends()
        assert text_of(await waiting) == "done"


async def test_a_crowded_client_waits_for_a_task_until_looks_have_shown_for_a_while_that_it_asks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raincheck.client.session.MAX_STREAMS", 1)
    working = {"status": "working"}
    fake, user = Fake("2025-11-25"), User("Sure?")

    async def look(*shown: Mapping[str, Any]) -> None:
        """Have the client see these, the last one several times."""
        fake.shows(*shown)
        seen = fake.times("tasks/get")
        await fake.until(lambda: fake.times("tasks/get") > seen + len(shown) + 3)

    fake.shows(ASKING)
    fake.says("tasks/result", Hung())
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        waiting = asyncio.create_task((await client.call("work")).result())
        await fake.until(lambda: fake.times("tasks/result") == 1)
        asking = asyncio.create_task(fake.ask("Sure?"))
        await user.is_asked.wait()
        # The user thinks, whatever the server shows.
        await look(working)
        await look(ASKING)
        user.decides.set()
        await asyncio.wait_for(asking, 5)
        # It may be about to ask the next question.
        await look(working, ASKING)
        assert fake.times("tasks/result") == 1
        await look(working)
        fake.shows(ASKING)
        await fake.until(lambda: fake.times("tasks/result") == 2)
        fake.says("tasks/result", DONE)
        fake.ends()
        assert text_of(await waiting) == "done"
    assert user.asked == ["Sure?"]
