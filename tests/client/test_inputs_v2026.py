"""Questions of 2026-07-28: one is asked once, whoever waits, and what was answered is not shown again."""

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
from tests.support.client.callers import YES, User, begin, calling, text_of, updates_of
from tests.support.client.example_server import Server
from tests.support.client.fake_servers import WORKING, Fake
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])


def asking(*keys: str) -> dict[str, Any]:
    """A task that asks so many things."""
    params: dict[str, Any] = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    question: dict[str, Any] = {"method": "elicitation/create", "params": params}
    return {"status": "input_required", "inputRequests": dict.fromkeys(keys, question)}


def answered(fake: Fake) -> list[str]:
    """The keys of the answers that it got."""
    return [key for method, params in fake.asked if method == "tasks/update" for key in params["inputResponses"]]


async def test_a_callback_that_breaks_is_told_to_all_who_wait_and_asked_once() -> None:
    asked, breaks = 0, asyncio.Event()

    async def burst(*_: object) -> ElicitResult:
        nonlocal asked
        asked += 1
        await breaks.wait()
        raise LookupError("no such user")

    async with calling(Server(), elicitation_callback=burst) as client:
        handle = await begin(client, "confirm")
        waiting = [asyncio.create_task(handle.result()) for _ in range(2)]
        # Each of them has seen it, and had time to ask.
        for _ in range(2):
            async for update in handle:
                if update.questions:
                    break
        breaks.set()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(error) for error in told] == ["no such user"] * 2
    assert asked == 1


async def test_nobody_is_asked_on_when_the_last_one_stops_waiting() -> None:
    user = User("Sure?")
    async with calling(Server(), elicitation_callback=user.answer) as client:
        handle = await begin(client, "confirm")
        waiting = [asyncio.create_task(handle.result()) for _ in range(2)]
        await user.is_asked.wait()
        for job, left in zip(waiting, ([], [1]), strict=True):
            job.cancel()
            await asyncio.wait([job])
            # What is cancelled notices in the next turn of the loop.
            await asyncio.sleep(0)
            assert user.left_when == left
    assert user.asked == ["Sure?"]


async def test_what_was_answered_by_hand_is_not_asked_again_while_the_server_still_shows_it() -> None:
    fake = Fake()
    fake.shows(asking("q"))
    fake.says("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=answer_later) as client:
        handle = await client.call("work")
        with pytest.raises(InputRequired):
            await handle.result()
        await handle.answer({"q": YES})
        update = await handle.poll()
        assert update is not None
        assert (update.status, update.questions) == (Status.INPUT_REQUIRED, ())
        fake.ends(asking("q"), asking("q"), WORKING)
        assert text_of(await handle.result()) == "done"
    assert answered(fake) == ["q"]


async def test_of_several_questions_only_what_is_not_answered_is_shown() -> None:
    fake, shown = Fake(), list[list[str]]()
    # Each answer takes a look, to see that it was asked for.
    both, last = asking("a", "b"), asking("b", "c")
    fake.ends(both, both, both, both, asking("b"), last, last)
    fake.says("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=answer_later) as client:
        handle = await client.call("work")
        async for update in handle:
            shown.append([question.key for question in update.questions])
            await handle.answer({question.key: YES for question in update.questions[:1]})
    assert shown == [["a", "b"], ["b"], [], ["c"], []]
    assert answered(fake) == ["a", "b", "c"]


async def test_what_the_server_refused_is_still_to_be_answered() -> None:
    fake = Fake()
    fake.shows(asking("q"))
    fake.says("tasks/update", MCPError(INVALID_PARAMS, "no such choice"))
    async with fake.client(clock=SkippingClock(), elicitation_callback=answer_later) as client:
        handle = await client.call("work")
        with pytest.raises(MCPError, match="no such choice"):
            await handle.answer({"q": YES})
        with pytest.raises(InputRequired):
            await handle.result(timeout=60)


async def test_what_was_answered_by_hand_is_not_asked_of_the_callback() -> None:
    fake, user = Fake(), User()
    fake.ends(asking("q"), asking("q"))
    fake.says("tasks/update", {"resultType": "complete"})
    async with fake.client(clock=SkippingClock(), elicitation_callback=user.answer) as client:
        handle = await client.call("work")
        await handle.answer({"q": YES})
        assert text_of(await handle.result()) == "done"
    assert user.asked == []
    assert answered(fake) == ["q"]


async def test_what_the_server_got_and_asks_all_the_same_is_a_question_again_after_a_while() -> None:
    fake, clock = Fake(), SkippingClock()
    fake.shows(asking("q"))
    fake.says("tasks/update", {"resultType": "complete"})
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


async def test_an_answer_that_arrived_is_given_even_if_another_one_to_the_same_got_lost() -> None:
    consulting = PendingInputs2026(FakeClock())

    def lose(key: str) -> None:
        with consulting.sending([key]):
            assert consulting.is_answered(key)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        lose("q")
    assert not consulting.is_answered("q")
    with consulting.sending(["q"]):
        with pytest.raises(ConnectionError):
            lose("q")
        assert consulting.is_answered("q")
    with pytest.raises(ConnectionError):
        lose("q")
    assert consulting.is_answered("q")


async def test_a_callback_that_is_cancelled_by_others_is_told_and_asked_once() -> None:
    fake, asked = Fake(), list[str]()
    fake.shows(asking("q"))

    async def leave(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        asked.append(params.message)
        raise asyncio.CancelledError

    async with fake.client(clock=SkippingClock(), elicitation_callback=leave) as client:
        with pytest.raises(MCPError, match="has not answered"):
            await (await client.call("work")).result(timeout=100)
    assert asked == ["Sure?"]


@BOTH
async def test_an_update_in_which_nothing_but_the_pace_is_new_is_not_told(version: str) -> None:
    fake = Fake(version)
    fake.ends(*({**WORKING, "pollIntervalMs": pace, "pollInterval": pace} for pace in (100, 200, 300)))
    async with fake.client(clock=SkippingClock()) as client:
        updates = await updates_of(await client.call("work"))
    assert [update.status for update in updates] == [Status.WORKING, Status.COMPLETED]
