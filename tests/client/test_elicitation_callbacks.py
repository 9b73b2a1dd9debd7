"""Tests for questions that are sent over a connection, and sent again over the next one."""

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import Question
from raincheck.client.inputs import PendingInputs2025, question_key
from raincheck.errors import InvalidValue

pytestmark = pytest.mark.anyio


class SlowCallback:
    """A callback that answers when `may_answer` is set, and counts its calls and cancellations."""

    def __init__(self) -> None:
        self.asked = 0
        self.cancelled = 0
        self.may_answer = asyncio.Event()

    async def think(self) -> int:
        self.asked += 1
        number = self.asked
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return number


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def start_callback(
    inputs: PendingInputs2025, callback: SlowCallback, key: str = "Sure?", *, is_named: bool = False
) -> "asyncio.Task[int]":
    running = asyncio.create_task(inputs.run_callback(key, callback.think, has_input_key=is_named))
    await settle()
    return running


async def test_a_question_that_was_disconnected_is_continued_on_the_next_connection() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    first = await start_callback(inputs, callback)
    first.cancel()
    await settle()
    second = await start_callback(inputs, callback)
    callback.may_answer.set()
    assert await second == 1
    assert (callback.asked, callback.cancelled) == (1, 0)


async def test_an_answer_given_while_disconnected_is_not_lost() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    (await start_callback(inputs, callback)).cancel()
    await settle()
    callback.may_answer.set()
    await settle()
    assert await (await start_callback(inputs, callback)) == 1


async def test_equal_questions_at_the_same_time_are_separate() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    both = [await start_callback(inputs, callback), await start_callback(inputs, callback)]
    callback.may_answer.set()
    assert await asyncio.gather(*both) == [1, 2]


async def test_an_equal_question_after_an_answer_is_a_new_question() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    callback.may_answer.set()
    assert await (await start_callback(inputs, callback)) == 1
    assert await (await start_callback(inputs, callback)) == 2


async def test_callbacks_are_cancelled_when_no_caller_waits() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    running = await start_callback(inputs, callback)
    inputs.abandon()
    await settle()
    # The server is still there to take the answer.
    assert callback.cancelled == 0
    running.cancel()
    await settle()
    assert callback.cancelled == 1
    inputs.resume()
    (await start_callback(inputs, callback)).cancel()
    await settle()
    assert callback.cancelled == 1
    inputs.abandon()
    await settle()
    assert callback.cancelled == 2


async def test_an_answer_from_the_handle_is_used_once_when_the_question_is_asked_again() -> None:
    inputs, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    waiting = asyncio.create_task(inputs.wait_for_answer(question))
    await settle()
    assert inputs.awaiting_answer == {"k": question}
    # The waiter leaves before the answer.
    waiting.cancel()
    await settle()
    inputs.answer("k", {"action": "accept"})
    inputs.answer("k", {"action": "decline"})
    assert await inputs.wait_for_answer(question) == {"action": "accept"}
    assert inputs.awaiting_answer == {}


async def test_an_answer_without_a_question_is_refused_and_not_used_for_the_next_one() -> None:
    inputs, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    with pytest.raises(InvalidValue, match="no open question 'k'"):
        inputs.answer("k", {"action": "accept"})
    for _ in range(2):
        waiting = asyncio.create_task(inputs.wait_for_answer(question))
        await settle()
        assert not waiting.done()
        inputs.answer("k", {"action": "accept"})
        await waiting
        with pytest.raises(InvalidValue):
            inputs.answer("k", {"action": "accept"})


async def test_an_answer_is_dropped_if_another_client_answered_first() -> None:
    inputs, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    waiting = asyncio.create_task(inputs.wait_for_answer(question))
    await settle()
    waiting.cancel()
    await settle()
    inputs.answer("k", {"action": "accept"})
    inputs.cancel_disconnected()
    again = asyncio.create_task(inputs.wait_for_answer(question))
    await settle()
    assert not again.done()
    again.cancel()


def test_a_question_key_depends_only_on_the_content() -> None:
    words: dict[str, Any] = {"message": "Sure?", "requestedSchema": {"type": "object"}}
    assert question_key("elicitation/create", words) == question_key("elicitation/create", {**words, "_meta": {"a": 1}})
    assert question_key("elicitation/create", words) != question_key(
        "elicitation/create", {**words, "message": "Really?"}
    )
    assert question_key("elicitation/create", words) != question_key("sampling/createMessage", words)


async def test_a_question_asked_again_before_its_withdrawal_is_the_same_question() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    first = await start_callback(inputs, callback)
    inputs.mark_disconnected()
    second = await start_callback(inputs, callback)
    first.cancel()
    await settle()
    callback.may_answer.set()
    assert await second == 1
    assert (callback.asked, callback.cancelled) == (1, 0)


async def test_an_answer_after_the_request_ended_is_stored_for_the_next_request() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    first = await start_callback(inputs, callback)
    inputs.mark_disconnected()
    callback.may_answer.set()
    await settle()
    assert not first.done()
    assert await (await start_callback(inputs, callback)) == 1
    # It has been sent now, so the same words are another question.
    assert await (await start_callback(inputs, callback)) == 2
    first.cancel()


async def test_a_stored_answer_does_not_outlive_its_question() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    first = await start_callback(inputs, callback)
    inputs.mark_disconnected()
    callback.may_answer.set()
    await settle()
    inputs.cancel_disconnected()
    first.cancel()
    await settle()
    assert await (await start_callback(inputs, callback)) == 2


async def test_only_callbacks_of_dropped_questions_are_cancelled() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    first = await start_callback(inputs, callback)
    inputs.mark_disconnected()
    inputs.cancel_disconnected()
    await settle()
    assert (callback.cancelled, first.done()) == (1, False)
    first.cancel()


async def test_a_question_from_before_a_lost_request_is_still_answered() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    first = await start_callback(inputs, callback)
    before = inputs.open_requests
    second = await start_callback(inputs, callback)
    inputs.mark_disconnected(before)
    callback.may_answer.set()
    await settle()
    assert await first == 1
    assert not second.done()
    second.cancel()


async def test_a_callback_that_cancels_itself_raises_an_error() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()

    async def leave() -> int:
        raise asyncio.CancelledError

    with pytest.raises(MCPError, match="before it answered"):
        await asyncio.wait_for(inputs.run_callback("Sure?", leave), 20)
    # The same words are another question then.
    callback.may_answer.set()
    assert await (await start_callback(inputs, callback)) == 1


async def test_the_answer_to_a_question_with_an_input_key_is_reused() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    callback.may_answer.set()
    assert await (await start_callback(inputs, callback, is_named=True)) == 1
    # By now another look may have shown that the task asks nothing.
    inputs.cancel_disconnected()
    inputs.abandon()
    inputs.resume()
    assert await (await start_callback(inputs, callback, is_named=True)) == 1
    assert await (await start_callback(inputs, callback, "Really?", is_named=True)) == 2


async def test_a_failed_callback_is_called_again_when_the_server_asks_again() -> None:
    inputs, calls = PendingInputs2025(), 0

    async def answer() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("no screen")
        return "yes"

    with pytest.raises(ConnectionError):
        await inputs.run_callback("Sure?", answer, has_input_key=True)
    assert await inputs.run_callback("Sure?", answer, has_input_key=True) == "yes"
    assert await inputs.run_callback("Sure?", answer, has_input_key=True) == "yes"
    assert calls == 2


async def test_concurrent_questions_with_the_same_input_key_are_one_question() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    both = [await start_callback(inputs, callback, is_named=True) for _ in range(2)]
    callback.may_answer.set()
    assert await asyncio.gather(*both) == [1, 1]


async def test_an_answer_from_the_handle_to_a_question_with_an_input_key_is_reused() -> None:
    inputs, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    waiting = asyncio.create_task(inputs.wait_for_answer(question, has_input_key=True))
    await settle()
    inputs.answer("k", {"action": "accept"})
    await waiting
    inputs.cancel_disconnected()
    again = asyncio.create_task(inputs.wait_for_answer(question, has_input_key=True))
    await settle()
    assert again.done()
    assert again.result() == {"action": "accept"}


async def test_a_poll_from_before_a_question_does_not_cancel_its_callback() -> None:
    inputs, callback = PendingInputs2025(), SlowCallback()
    before = inputs.in_progress
    (await start_callback(inputs, callback)).cancel()
    await settle()
    inputs.cancel_disconnected(before)
    again = await start_callback(inputs, callback)
    callback.may_answer.set()
    assert await again == 1
    assert (callback.asked, callback.cancelled) == (1, 0)


def test_equal_questions_with_different_input_keys_are_different() -> None:
    words: dict[str, Any] = {"message": "Sure?"}
    keys = {question_key("elicitation/create", words, name) for name in (None, "elicit-0", "elicit-1")}
    assert len(keys) == 3
    # Nor does a server get the answer to other words by the same key.
    assert question_key("elicitation/create", {"message": "Really?"}, "elicit-0") not in keys
