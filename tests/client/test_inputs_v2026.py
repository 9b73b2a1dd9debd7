"""Tests for questions of 2026-07-28: each is asked once, and an answered question is not reported again."""

import asyncio
from typing import Any

import pytest
from mcp.client import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ElicitRequestParams, ElicitResult

from raincheck.client import InputRequired, answer_later
from raincheck.client.inputs import ANSWER_GRACE_PERIOD, PendingInputs2026
from raincheck.core.lifecycle import Status
from raincheck.testing import FakeClock
from tests.support.client.callers import YES, User, open_client, start_task, text_of, updates_of
from tests.support.client.example_server import ExampleServer
from tests.support.client.fake_servers import WORKING, FakeServer
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])


def asking(*keys: str) -> dict[str, Any]:
    """A task that asks so many things."""
    params: dict[str, Any] = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    question: dict[str, Any] = {"method": "elicitation/create", "params": params}
    return {"status": "input_required", "inputRequests": dict.fromkeys(keys, question)}


def answered(fake: FakeServer) -> list[str]:
    """The keys of the answers that it got."""
    return [key for method, params in fake.asked if method == "tasks/update" for key in params["inputResponses"]]


async def test_a_failing_callback_raises_for_all_waiters_and_is_called_once() -> None:
    asked, breaks = 0, asyncio.Event()

    async def burst(*_: object) -> ElicitResult:
        nonlocal asked
        asked += 1
        await breaks.wait()
        raise LookupError("no such user")

    async with open_client(ExampleServer(), elicitation_callback=burst) as client:
        handle = await start_task(client, "confirm")
        waiting = [asyncio.create_task(handle.result()) for _ in range(2)]
        # Each of them has seen it, and had time to ask.
        for _ in range(2):
            async for update in handle:
                if update.questions:
                    break
        breaks.set()
        reported = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(error) for error in reported] == ["no such user"] * 2
    assert asked == 1


async def test_the_callback_is_cancelled_when_the_last_waiter_leaves() -> None:
    user = User("Sure?")
    async with open_client(ExampleServer(), elicitation_callback=user.answer) as client:
        handle = await start_task(client, "confirm")
        waiting = [asyncio.create_task(handle.result()) for _ in range(2)]
        await user.is_asked.wait()
        for running, left in zip(waiting, ([], [1]), strict=True):
            running.cancel()
            await asyncio.wait([running])
            # What is cancelled notices in the next turn of the loop.
            await asyncio.sleep(0)
            assert user.left_when == left
    assert user.asked == ["Sure?"]


async def test_an_answered_question_is_not_asked_again_while_the_server_still_reports_it() -> None:
    fake = FakeServer()
    fake.set_tasks(asking("q"))
    fake.set_responses("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=answer_later) as client:
        handle = await client.call("work")
        with pytest.raises(InputRequired):
            await handle.result()
        await handle.answer({"q": YES})
        update = await handle.poll()
        assert update is not None
        assert (update.status, update.questions) == (Status.INPUT_REQUIRED, ())
        fake.complete_after(asking("q"), asking("q"), WORKING)
        assert text_of(await handle.result()) == "done"
    assert answered(fake) == ["q"]


async def test_updates_contain_only_unanswered_questions() -> None:
    fake, shown = FakeServer(), list[list[str]]()
    # Each answer takes a look, to see that it was asked for.
    both, last = asking("a", "b"), asking("b", "c")
    fake.complete_after(both, both, both, both, asking("b"), last, last)
    fake.set_responses("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=answer_later) as client:
        handle = await client.call("work")
        async for update in handle:
            shown.append([question.key for question in update.questions])
            await handle.answer({question.key: YES for question in update.questions[:1]})
    assert shown == [["a", "b"], ["b"], [], ["c"], []]
    assert answered(fake) == ["a", "b", "c"]


async def test_a_question_stays_open_if_the_server_refuses_the_answer() -> None:
    fake = FakeServer()
    fake.set_tasks(asking("q"))
    fake.set_responses("tasks/update", MCPError(INVALID_PARAMS, "no such choice"))
    async with fake.client(clock=SkippingClock(), elicitation_callback=answer_later) as client:
        handle = await client.call("work")
        with pytest.raises(MCPError, match="no such choice"):
            await handle.answer({"q": YES})
        with pytest.raises(InputRequired):
            await handle.result(timeout=60)


async def test_a_question_that_the_handle_answered_does_not_reach_the_callback() -> None:
    fake, user = FakeServer(), User()
    fake.complete_after(asking("q"), asking("q"))
    fake.set_responses("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        handle = await client.call("work")
        await handle.answer({"q": YES})
        assert text_of(await handle.result()) == "done"
    assert user.asked == []
    assert answered(fake) == ["q"]


async def test_a_question_that_stays_open_after_its_answer_is_asked_again_after_the_grace_period() -> None:
    fake, clock = FakeServer(), SkippingClock()
    fake.set_tasks(asking("q"))
    fake.set_responses("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=clock, elicitation_callback=answer_later) as client:
        handle = await client.call("work")
        for _ in range(2):
            await handle.answer({"q": YES})
            given_at = clock.monotonic()
            with pytest.raises(InputRequired):
                await handle.result(timeout=10 * ANSWER_GRACE_PERIOD)
            assert ANSWER_GRACE_PERIOD <= clock.monotonic() - given_at <= ANSWER_GRACE_PERIOD + 2
            update = await handle.poll()
            assert update is not None
            assert [question.key for question in update.questions] == ["q"]
    assert answered(fake) == ["q", "q"]


async def test_an_acknowledged_answer_counts_even_if_a_second_answer_was_lost() -> None:
    inputs = PendingInputs2026(FakeClock())

    def lose(key: str) -> None:
        with inputs.sending([key]):
            assert inputs.is_answered(key)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        lose("q")
    assert not inputs.is_answered("q")
    with inputs.sending(["q"]):
        with pytest.raises(ConnectionError):
            lose("q")
        assert inputs.is_answered("q")
    with pytest.raises(ConnectionError):
        lose("q")
    assert inputs.is_answered("q")


async def test_a_callback_that_cancels_itself_raises_an_error_and_is_called_once() -> None:
    fake, asked = FakeServer(), list[str]()
    fake.set_tasks(asking("q"))

    async def leave(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        asked.append(params.message)
        raise asyncio.CancelledError

    async with fake.client(clock=SkippingClock(), elicitation_callback=leave) as client:
        with pytest.raises(MCPError, match="before it answered"):
            await (await client.call("work")).result(timeout=100)
    assert asked == ["Sure?"]


@BOTH
async def test_an_update_that_differs_only_in_the_poll_interval_is_not_yielded(version: str) -> None:
    fake = FakeServer(version)
    fake.complete_after(*({**WORKING, "pollIntervalMs": pace, "pollInterval": pace} for pace in (100, 200, 300)))
    async with fake.client(clock=SkippingClock()) as client:
        updates = await updates_of(await client.call("work"))
    assert [update.status for update in updates] == [Status.WORKING, Status.COMPLETED]
