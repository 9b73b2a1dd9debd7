"""Questions that come over a connection, and again over the next one."""

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import Question
from raincheck.client.inputs import PendingInputs2025, question_key
from raincheck.errors import InvalidValue

pytestmark = pytest.mark.anyio


class Thinker:
    """Answers when told, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = 0
        self.knows = asyncio.Event()

    async def think(self) -> int:
        self.asked += 1
        number = self.asked
        try:
            await self.knows.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        return number


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def begin(
    asked: PendingInputs2025, thinker: Thinker, key: str = "Sure?", *, is_named: bool = False
) -> "asyncio.Task[int]":
    job = asyncio.create_task(asked.run_callback(key, thinker.think, has_input_key=is_named))
    await settle()
    return job


async def test_what_a_connection_broke_off_is_joined_by_the_next_one() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    first = await begin(asked, thinker)
    first.cancel()
    await settle()
    second = await begin(asked, thinker)
    thinker.knows.set()
    assert await second == 1
    assert (thinker.asked, thinker.left) == (1, 0)


async def test_what_was_found_while_there_was_no_connection_is_not_lost() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    (await begin(asked, thinker)).cancel()
    await settle()
    thinker.knows.set()
    await settle()
    assert await (await begin(asked, thinker)) == 1


async def test_the_same_words_at_the_same_time_are_two_questions() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    both = [await begin(asked, thinker), await begin(asked, thinker)]
    thinker.knows.set()
    assert await asyncio.gather(*both) == [1, 2]


async def test_the_same_words_after_an_answer_are_another_question() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    thinker.knows.set()
    assert await (await begin(asked, thinker)) == 1
    assert await (await begin(asked, thinker)) == 2


async def test_nobody_thinks_on_when_nobody_waits() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    job = await begin(asked, thinker)
    asked.abandon()
    await settle()
    # The server is still there to take the answer.
    assert thinker.left == 0
    job.cancel()
    await settle()
    assert thinker.left == 1
    asked.resume()
    (await begin(asked, thinker)).cancel()
    await settle()
    assert thinker.left == 1
    asked.abandon()
    await settle()
    assert thinker.left == 2


async def test_an_answer_by_hand_is_good_when_the_same_is_asked_again_and_once() -> None:
    asked, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    waiting = asyncio.create_task(asked.wait_for_answer(question))
    await settle()
    assert asked.awaiting_answer == {"k": question}
    # Whoever waited leaves, and then answers.
    waiting.cancel()
    await settle()
    asked.answer("k", {"action": "accept"})
    asked.answer("k", {"action": "decline"})
    assert await asked.wait_for_answer(question) == {"action": "accept"}
    assert asked.awaiting_answer == {}


async def test_an_answer_to_what_is_not_asked_is_refused_and_does_not_consent_to_what_is_asked_next() -> None:
    asked, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    with pytest.raises(InvalidValue, match="asks nothing under the key 'k' now"):
        asked.answer("k", {"action": "accept"})
    for _ in range(2):
        waiting = asyncio.create_task(asked.wait_for_answer(question))
        await settle()
        assert not waiting.done()
        asked.answer("k", {"action": "accept"})
        await waiting
        with pytest.raises(InvalidValue):
            asked.answer("k", {"action": "accept"})


async def test_an_answer_that_somebody_else_gave_first_is_forgotten() -> None:
    asked, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    waiting = asyncio.create_task(asked.wait_for_answer(question))
    await settle()
    waiting.cancel()
    await settle()
    asked.answer("k", {"action": "accept"})
    asked.cancel_disconnected()
    again = asyncio.create_task(asked.wait_for_answer(question))
    await settle()
    assert not again.done()
    again.cancel()


def test_a_question_is_known_by_its_words_whatever_else_comes_with_it() -> None:
    words: dict[str, Any] = {"message": "Sure?", "requestedSchema": {"type": "object"}}
    assert question_key("elicitation/create", words) == question_key("elicitation/create", {**words, "_meta": {"a": 1}})
    assert question_key("elicitation/create", words) != question_key(
        "elicitation/create", {**words, "message": "Really?"}
    )
    assert question_key("elicitation/create", words) != question_key("sampling/createMessage", words)


async def test_what_is_asked_again_before_it_was_taken_back_is_the_same_question() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    first = await begin(asked, thinker)
    asked.mark_disconnected()
    second = await begin(asked, thinker)
    first.cancel()
    await settle()
    thinker.knows.set()
    assert await second == 1
    assert (thinker.asked, thinker.left) == (1, 0)


async def test_what_is_found_when_the_request_has_ended_is_kept_for_the_next_one_and_not_sent() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    first = await begin(asked, thinker)
    asked.mark_disconnected()
    thinker.knows.set()
    await settle()
    assert not first.done()
    assert await (await begin(asked, thinker)) == 1
    # It has been sent now, so the same words are another question.
    assert await (await begin(asked, thinker)) == 2
    first.cancel()


async def test_what_is_kept_for_the_next_one_does_not_outlive_its_question() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    first = await begin(asked, thinker)
    asked.mark_disconnected()
    thinker.knows.set()
    await settle()
    asked.cancel_disconnected()
    first.cancel()
    await settle()
    assert await (await begin(asked, thinker)) == 2


async def test_somebody_who_thinks_about_what_was_forgotten_stops_and_nobody_else_does() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    first = await begin(asked, thinker)
    asked.mark_disconnected()
    asked.cancel_disconnected()
    await settle()
    assert (thinker.left, first.done()) == (1, False)
    first.cancel()


async def test_what_was_asked_before_a_request_got_lost_is_still_answered() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    first = await begin(asked, thinker)
    before = asked.open_requests
    second = await begin(asked, thinker)
    asked.mark_disconnected(before)
    thinker.knows.set()
    await settle()
    assert await first == 1
    assert not second.done()
    second.cancel()


async def test_somebody_who_is_cancelled_by_others_has_not_answered_and_that_is_told() -> None:
    asked, thinker = PendingInputs2025(), Thinker()

    async def leave() -> int:
        raise asyncio.CancelledError

    with pytest.raises(MCPError, match="has not answered"):
        await asyncio.wait_for(asked.run_callback("Sure?", leave), 20)
    # The same words are another question then.
    thinker.knows.set()
    assert await (await begin(asked, thinker)) == 1


async def test_an_answer_to_a_question_with_a_key_is_good_whenever_the_server_asks_it_again() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    thinker.knows.set()
    assert await (await begin(asked, thinker, is_named=True)) == 1
    # By now another look may have shown that the task asks nothing.
    asked.cancel_disconnected()
    asked.abandon()
    asked.resume()
    assert await (await begin(asked, thinker, is_named=True)) == 1
    assert await (await begin(asked, thinker, "Really?", is_named=True)) == 2


async def test_a_callback_that_failed_is_called_when_the_server_asks_again() -> None:
    asked, calls = PendingInputs2025(), 0

    async def answer() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("no screen")
        return "yes"

    with pytest.raises(ConnectionError):
        await asked.run_callback("Sure?", answer, has_input_key=True)
    assert await asked.run_callback("Sure?", answer, has_input_key=True) == "yes"
    assert await asked.run_callback("Sure?", answer, has_input_key=True) == "yes"
    assert calls == 2


async def test_a_question_with_a_key_that_is_asked_twice_at_the_same_time_is_one_question() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    both = [await begin(asked, thinker, is_named=True) for _ in range(2)]
    thinker.knows.set()
    assert await asyncio.gather(*both) == [1, 1]


async def test_an_answer_by_hand_to_a_question_with_a_key_is_good_when_the_server_asks_it_again() -> None:
    asked, question = PendingInputs2025(), Question("k", {"method": "elicitation/create"})
    waiting = asyncio.create_task(asked.wait_for_answer(question, has_input_key=True))
    await settle()
    asked.answer("k", {"action": "accept"})
    await waiting
    asked.cancel_disconnected()
    again = asyncio.create_task(asked.wait_for_answer(question, has_input_key=True))
    await settle()
    assert again.done()
    assert again.result() == {"action": "accept"}


async def test_a_look_from_before_a_question_does_not_take_it_from_the_user() -> None:
    asked, thinker = PendingInputs2025(), Thinker()
    before = asked.in_progress
    (await begin(asked, thinker)).cancel()
    await settle()
    asked.cancel_disconnected(before)
    again = await begin(asked, thinker)
    thinker.knows.set()
    assert await again == 1
    assert (thinker.asked, thinker.left) == (1, 0)


def test_questions_of_the_same_words_with_other_keys_of_the_server_are_others() -> None:
    words: dict[str, Any] = {"message": "Sure?"}
    keys = {question_key("elicitation/create", words, name) for name in (None, "elicit-0", "elicit-1")}
    assert len(keys) == 3
    # Nor does a server get the answer to other words by the same key.
    assert question_key("elicitation/create", {"message": "Really?"}, "elicit-0") not in keys
