"""Several hosts of one user: who is asked what a task asks, and who is not asked twice."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck.server.v2025.elicitation import REASK_AFTER
from tests.support.server.caller_v2025 import G1Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.fallback.hosts import (
    ON_PLAIN_WIRES,
    Model,
    Place,
    calls_in,
    handle_of,
    next_call,
    opened,
    told,
)
from tests.support.server.tools import YES, add_greeting
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

ASKED: dict[str, Any] = {"elicitation": {}}
WAIT = 45.0


class Scene:
    """A server whose only tool asks, a host whose user has the question, and what its model was told meanwhile."""

    def __init__(self, place: Place, clock: WatchedClock, heard: list[object]) -> None:
        self.place = place
        self.clock = clock
        self.heard = heard

    @asynccontextmanager
    async def host(self, **capabilities: Any) -> AsyncGenerator[Model]:
        async with self.place.host(clock=self.clock, capabilities=capabilities) as model:
            yield model

    async def window(self, model: Model, answer: Message) -> Message:
        """What `task_wait` says when its wait is over."""
        return await model.window(model.begin(*next_call(answer)))


@asynccontextmanager
async def scene(way: str = "memory") -> AsyncGenerator[Scene]:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    heard = add_greeting(shop)
    async with opened(shop, way) as place:
        yield Scene(place, clock, heard)


async def asked_in_vain(model: Model) -> tuple[Message, Message]:
    """The question that is before the user of a host, and what its model was told when the wait was over."""
    calling = model.begin("greet")
    question = await legacy(model).asked()
    return question, await model.window(calling)


def legacy(model: Model) -> G1Caller:
    assert isinstance(model.caller, G1Caller)
    return model.caller


def is_withdrawn(model: Model, question: Message) -> bool:
    told_so = legacy(model).pushed("notifications/cancelled")
    return question["id"] in [one["requestId"] for one in told_so]


@ON_PLAIN_WIRES
async def test_a_host_that_can_not_ask_gets_the_question_in_words_while_the_user_has_it_in_another(way: str) -> None:
    """To be told that the user has been asked would send it into a loop: it can't wait for that."""
    async with scene(way) as shown, shown.host(**ASKED) as asking, shown.host() as other:
        question, answer = await asked_in_vain(asking)
        calling = other.begin(*next_call(answer))
        await shown.clock.asleep(0.05)
        shown.clock.advance(0.05)
        in_words = await calling
        assert "has been asked" not in told(in_words)
        assert next_call(in_words)[0] == "task_answer"
        assert told(await other.go_on(in_words, name="Eve")) == "Hello, Eve!"
        await until(lambda: is_withdrawn(asking, question), legacy(asking))
    assert shown.heard == [("accept", {"name": "Eve"})]


async def test_a_host_that_can_not_ask_gets_the_question_in_words_while_another_waits_for_its_user() -> None:
    async with scene() as shown, shown.host(**ASKED) as asking, shown.host() as other:
        calling = asking.begin("greet")
        await legacy(asking).asked()
        (task,) = (await other.call("task_status"))["structuredContent"]["tasks"]
        waiting = other.begin("task_wait", {"task_id": task["task_id"]})
        await shown.clock.asleep(0.05)
        shown.clock.advance(0.05)
        assert next_call(await waiting)[0] == "task_answer"
        assert not calling.done()
        await other.go_on(await waiting, name="Eve")
        assert told(await calling) == "Hello, Eve!"


@ON_PLAIN_WIRES
async def test_a_host_that_comes_back_is_asked_at_once_though_nobody_said_that_it_had_gone(way: str) -> None:
    async with scene(way) as shown, shown.host(**ASKED) as gone:
        _, answer = await asked_in_vain(gone)
        if way == "http":
            # Its session goes on: a laptop that is closed ends nothing.
            await legacy(gone).http.leave()
        async with shown.host(**ASKED) as back:
            waiting = back.begin(*next_call(answer))
            await legacy(back).reply(await legacy(back).asked(), YES)
            assert told(await waiting) == "Hello, Ada!"
    assert shown.clock.monotonic() == WAIT
    assert shown.heard == [("accept", {"name": "Ada"})]


@ON_PLAIN_WIRES
async def test_who_was_asked_first_may_answer_while_another_is_asked_which_is_then_withdrawn(way: str) -> None:
    async with scene(way) as shown, shown.host(**ASKED) as first, shown.host(**ASKED) as second:
        question, answer = await asked_in_vain(first)
        waiting = second.begin(*next_call(answer))
        again = await legacy(second).asked()
        await legacy(first).reply(question, YES)
        assert told(await waiting) == "Hello, Ada!"
        await until(lambda: is_withdrawn(second, again), legacy(second))
        assert not is_withdrawn(first, question)
    assert len(shown.heard) == 1


@ON_PLAIN_WIRES
async def test_hosts_that_wait_by_turns_are_each_asked_once(way: str) -> None:
    async with scene(way) as shown, shown.host(**ASKED) as first, shown.host(**ASKED) as second:
        question, answer = await asked_in_vain(first)
        waiting = second.begin(*next_call(answer))
        await legacy(second).asked()
        assert "The user has been asked" in told(await second.window(waiting))
        for model in (first, second, first):
            assert "The user has been asked" in told(await shown.window(model, answer))
            assert legacy(model).questions.empty()
        assert not is_withdrawn(first, question)
        await legacy(first).reply(question, YES)
        assert told(await second.go_on(answer)) == "Hello, Ada!"
    assert len(shown.heard) == 1


async def test_a_host_is_not_asked_twice_when_another_that_was_asked_after_it_is_gone() -> None:
    async with scene() as shown, shown.host(**ASKED) as stays:
        question, answer = await asked_in_vain(stays)
        async with shown.host(**ASKED) as leaves:
            waiting = leaves.begin(*next_call(answer))
            await legacy(leaves).asked()
            await leaves.window(waiting)
        assert "The user has been asked" in told(await shown.window(stays, answer))
        assert legacy(stays).questions.empty()
        await legacy(stays).reply(question, YES)
        assert told(await stays.go_on(answer)) == "Hello, Ada!"


async def test_whoever_does_not_answer_for_very_long_is_asked_again() -> None:
    async with scene() as shown, shown.host(**ASKED) as model:
        first, answer = await asked_in_vain(model)
        shown.clock.advance(REASK_AFTER - 1)
        waiting = model.begin(*next_call(answer))
        await shown.clock.asleep(WAIT)
        await legacy(model).ping()
        assert legacy(model).questions.empty()
        shown.clock.advance(1)
        second = await legacy(model).asked()
        assert second["id"] != first["id"]
        await legacy(model).reply(second, YES)
        assert told(await waiting) == "Hello, Ada!"


async def test_a_model_whose_user_lost_the_question_is_told_how_to_ask_and_answer_it_itself() -> None:
    """Some hosts close a question together with the call that it came with."""
    async with scene() as shown, shown.host(**ASKED) as model:
        _, answer = await asked_in_vain(model)
        assert "Ask the user: Who are you? (name: string)" in told(answer)
        (one,) = answer["structuredContent"]["questions"]
        assert (one["kind"], one["message"]) == ("form", "Who are you?")
        waits, (tool, arguments) = calls_in(told(answer))
        assert waits == next_call(answer)
        assert (tool, arguments) == ("task_answer", {"task_id": handle_of(answer), "answer": {"name": "<string>"}})
        assert told(await model.call(tool, {**arguments, "answer": {"name": "Eve"}})) == "Hello, Eve!"
