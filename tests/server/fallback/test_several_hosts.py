"""Several hosts of one user: which host is asked a question, and which is not asked twice."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raincheck.server.v2025.elicitation import REASK_AFTER
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.fallback.hosts import (
    ON_FALLBACK_TRANSPORTS,
    HostedServer,
    Model,
    find_calls,
    hosted_server,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.tools import YES, add_greeting
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import until
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio

ASKED: dict[str, Any] = {"elicitation": {}}
WAIT = 45.0


class SharedServer:
    """A server whose only tool asks a question, with the hosts of one user."""

    def __init__(self, hosts: HostedServer, clock: WatchedClock, received: list[object]) -> None:
        self.hosts = hosts
        self.clock = clock
        self.received = received

    @asynccontextmanager
    async def host(self, **capabilities: Any) -> AsyncGenerator[Model]:
        async with self.hosts.host(clock=self.clock, capabilities=capabilities) as model:
            yield model

    async def finish_wait(self, model: Model, answer: Message) -> Message:
        """The answer of `task_wait` at the end of its wait."""
        return await model.finish_wait(model.begin(*next_call(answer)))


@asynccontextmanager
async def shared_server(way: str = "memory") -> AsyncGenerator[SharedServer]:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    received = add_greeting(server)
    async with hosted_server(server, way) as hosts:
        yield SharedServer(hosts, clock, received)


async def ask_without_answer(model: Model) -> tuple[Message, Message]:
    """The question that a host's user has, and the answer that its model got at the end of the wait."""
    calling = model.begin("greet")
    question = await legacy(model).asked()
    return question, await model.finish_wait(calling)


def legacy(model: Model) -> V2025Caller:
    assert isinstance(model.caller, V2025Caller)
    return model.caller


def is_withdrawn(model: Model, question: Message) -> bool:
    told_so = legacy(model).pushed("notifications/cancelled")
    return question["id"] in [one["requestId"] for one in told_so]


@ON_FALLBACK_TRANSPORTS
async def test_a_host_that_can_not_ask_gets_the_question_as_text_while_the_user_has_it_in_another_host(
    way: str,
) -> None:
    """A text that the user has been asked would send it into a loop, because it can't wait for that answer."""
    async with shared_server(way) as shared, shared.host(**ASKED) as asking, shared.host() as other:
        question, answer = await ask_without_answer(asking)
        calling = other.begin(*next_call(answer))
        await shared.clock.asleep(0.05)
        shared.clock.advance(0.05)
        in_words = await calling
        assert "has been asked" not in model_text(in_words)
        assert next_call(in_words)[0] == "task_answer"
        assert model_text(await other.call_next(in_words, name="Eve")) == "Hello, Eve!"
        await until(lambda: is_withdrawn(asking, question), legacy(asking))
    assert shared.received == [("accept", {"name": "Eve"})]


async def test_a_host_that_can_not_ask_gets_the_question_as_text_while_another_host_waits_for_its_user() -> None:
    async with shared_server() as shared, shared.host(**ASKED) as asking, shared.host() as other:
        calling = asking.begin("greet")
        await legacy(asking).asked()
        (task,) = (await other.call("task_status"))["structuredContent"]["tasks"]
        waiting = other.begin("task_wait", {"task_id": task["task_id"]})
        await shared.clock.asleep(0.05)
        shared.clock.advance(0.05)
        assert next_call(await waiting)[0] == "task_answer"
        assert not calling.done()
        await other.call_next(await waiting, name="Eve")
        assert model_text(await calling) == "Hello, Eve!"


@ON_FALLBACK_TRANSPORTS
async def test_a_host_that_reconnects_is_asked_immediately_although_its_disconnect_was_not_noticed(way: str) -> None:
    async with shared_server(way) as shared, shared.host(**ASKED) as gone:
        _, answer = await ask_without_answer(gone)
        if way == "http":
            # Its session stays open: closing a laptop ends no session.
            await legacy(gone).http.leave()
        async with shared.host(**ASKED) as back:
            waiting = back.begin(*next_call(answer))
            await legacy(back).reply(await legacy(back).asked(), YES)
            assert model_text(await waiting) == "Hello, Ada!"
    assert shared.clock.monotonic() == WAIT
    assert shared.received == [("accept", {"name": "Ada"})]


@ON_FALLBACK_TRANSPORTS
async def test_the_first_host_may_answer_while_a_second_is_asked_whose_question_is_then_withdrawn(way: str) -> None:
    async with shared_server(way) as shared, shared.host(**ASKED) as first, shared.host(**ASKED) as second:
        question, answer = await ask_without_answer(first)
        waiting = second.begin(*next_call(answer))
        again = await legacy(second).asked()
        await legacy(first).reply(question, YES)
        assert model_text(await waiting) == "Hello, Ada!"
        await until(lambda: is_withdrawn(second, again), legacy(second))
        assert not is_withdrawn(first, question)
    assert len(shared.received) == 1


@ON_FALLBACK_TRANSPORTS
async def test_hosts_that_wait_alternately_are_each_asked_once(way: str) -> None:
    async with shared_server(way) as shared, shared.host(**ASKED) as first, shared.host(**ASKED) as second:
        question, answer = await ask_without_answer(first)
        waiting = second.begin(*next_call(answer))
        await legacy(second).asked()
        assert "The user has been asked" in model_text(await second.finish_wait(waiting))
        for model in (first, second, first):
            assert "The user has been asked" in model_text(await shared.finish_wait(model, answer))
            assert legacy(model).questions.empty()
        assert not is_withdrawn(first, question)
        await legacy(first).reply(question, YES)
        assert model_text(await second.call_next(answer)) == "Hello, Ada!"
    assert len(shared.received) == 1


async def test_a_host_is_not_asked_twice_when_a_host_that_was_asked_later_disconnects() -> None:
    async with shared_server() as shared, shared.host(**ASKED) as stays:
        question, answer = await ask_without_answer(stays)
        async with shared.host(**ASKED) as leaves:
            waiting = leaves.begin(*next_call(answer))
            await legacy(leaves).asked()
            await leaves.finish_wait(waiting)
        assert "The user has been asked" in model_text(await shared.finish_wait(stays, answer))
        assert legacy(stays).questions.empty()
        await legacy(stays).reply(question, YES)
        assert model_text(await stays.call_next(answer)) == "Hello, Ada!"


async def test_a_host_that_does_not_answer_for_very_long_is_asked_again() -> None:
    async with shared_server() as shared, shared.host(**ASKED) as model:
        first, answer = await ask_without_answer(model)
        shared.clock.advance(REASK_AFTER - 1)
        waiting = model.begin(*next_call(answer))
        await shared.clock.asleep(WAIT)
        await legacy(model).ping()
        assert legacy(model).questions.empty()
        shared.clock.advance(1)
        second = await legacy(model).asked()
        assert second["id"] != first["id"]
        await legacy(model).reply(second, YES)
        assert model_text(await waiting) == "Hello, Ada!"


async def test_a_model_whose_user_lost_the_question_can_ask_and_answer_it_itself() -> None:
    """Some hosts close a question together with the call that it belonged to."""
    async with shared_server() as shared, shared.host(**ASKED) as model:
        _, answer = await ask_without_answer(model)
        assert "Ask the user: Who are you? (name: string)" in model_text(answer)
        (one,) = answer["structuredContent"]["questions"]
        assert (one["kind"], one["message"]) == ("form", "Who are you?")
        waits, (tool, arguments) = find_calls(model_text(answer))
        assert waits == next_call(answer)
        assert (tool, arguments) == ("task_answer", {"task_id": task_id_of(answer), "answer": {"name": "<string>"}})
        assert model_text(await model.call(tool, {**arguments, "answer": {"name": "Eve"}})) == "Hello, Eve!"
