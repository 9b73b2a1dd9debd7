"""Absent callers: how long other callers wait for them, and whether their late answers count."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from raincheck import Owner, ProtocolError, TaskContext
from raincheck.clock import Clock
from raincheck.core.lifecycle import Phase
from raincheck.server import disconnect
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.v2025 import client_tasks, elicitation
from raincheck.testing import FakeClock
from tests.server.v2025.elicitation.test_questions import ON_BOTH, calling
from tests.server.v2025.test_client_tasks import WITH_TASKS, expect, theirs
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import HttpTransport, over_http
from tests.support.server.transports_v2025 import StoredEvents
from tests.support.server.v2025.elicitation_caller import (
    GET,
    ElicitationCaller,
    HttpLink,
    PendingRequest,
    ServerRequest,
    connected,
    http_session,
)

pytestmark = pytest.mark.anyio

LOOK = 15.0
"""Seconds on a manually advanced clock."""


@pytest.fixture(autouse=True)
def looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the clock need not be moved so often."""
    monkeypatch.setattr(disconnect, "POLL_INTERVAL", LOOK)


async def begin(caller: ElicitationCaller) -> tuple[str, PendingRequest, ServerRequest]:
    task_id = await caller.start("greet")
    waiting = await caller.wait(task_id)
    return task_id, waiting, await caller.question()


async def until_parked(server: ExampleServer, task_id: str, clock: FakeClock) -> None:
    """From here on nothing of the task depends on the time."""
    parked = asyncio.ensure_future(
        server.tasks.engine.wait(task_id, owner=Owner.anonymous(), until=lambda task: task.phase is Phase.PARKED)
    )
    while not parked.done():
        clock.advance(0.05)
        await asyncio.wait([parked], timeout=0.01)
    await parked


@asynccontextmanager
async def absent_caller(
    server: ExampleServer, clock: FakeClock
) -> AsyncGenerator[tuple[str, ElicitationCaller, HttpLink, PendingRequest, ServerRequest, ElicitationCaller]]:
    """A caller that was asked and whose resumable stream broke, and another caller."""
    async with (
        over_http(server.mcp.streamable_http_app(event_store=StoredEvents())) as transport,
        http_session(transport) as (first, link),
        http_session(transport) as (other, _),
    ):
        task_id, waiting, question = await begin(first)
        await until_parked(server, task_id, clock)
        await link.disconnect(waiting.id)
        await first.settle()
        yield task_id, first, link, waiting, question, other


async def until_asked(caller: ElicitationCaller, clock: FakeClock) -> tuple[float, ServerRequest]:
    """The question, and the seconds until it arrived."""
    seconds = 0.0
    while await caller.has_no_question():
        assert seconds <= 2 * disconnect.RECONNECT_TIMEOUT, "never asked"
        clock.advance(LOOK)
        seconds += LOOK
    return seconds, await caller.question()


async def test_an_absent_caller_is_awaited_for_a_limited_time_before_another_is_asked() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    received = add_greeting(server)
    async with absent_caller(server, clock) as (task_id, _, link, waiting, asked, other):
        waiting_too = await other.wait(task_id)
        seconds, question = await until_asked(other, clock)
        # It takes a look or two to see that it is away.
        assert disconnect.RECONNECT_TIMEOUT <= seconds <= disconnect.RECONNECT_TIMEOUT + 3 * LOOK
        assert (question.params, question.stream) == (asked.params, waiting_too.id)
        await other.reply(question, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        # A caller that reconnects late finds the result.
        link.resume(waiting.id)
        assert text_of(await waiting.result()) == "Hello, Ada!"
    assert received == [("accept", {"name": "Ada"})]


async def test_a_late_answer_of_an_absent_caller_counts_and_the_other_caller_is_no_longer_asked() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    received = add_greeting(server)
    async with absent_caller(server, clock) as (task_id, first, _, _, asked, other):
        waiting_too = await other.wait(task_id)
        _, question = await until_asked(other, clock)
        await first.reply(asked, result=YES)
        assert await other.withdrawal() == question.id
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert (len(first.all_requests), len(other.all_requests)) == (1, 1)
    assert received == [("accept", {"name": "Ada"})]


async def test_a_caller_that_answers_before_the_time_limit_is_the_only_one_asked() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    received = add_greeting(server)
    async with absent_caller(server, clock) as (task_id, first, _, _, asked, other):
        waiting_too = await other.wait(task_id)
        for _ in range(int(disconnect.RECONNECT_TIMEOUT / LOOK) - 1):
            clock.advance(LOOK)
            assert await other.has_no_question()
        await first.reply(asked, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert other.all_requests == []
    assert received == [("accept", {"name": "Ada"})]


@asynccontextmanager
async def own_task_under_way(
    server: ExampleServer, clock: FakeClock, *, listens: bool = True
) -> AsyncGenerator[tuple[ElicitationCaller, HttpLink, str, HttpTransport]]:
    """A caller that answered with its own task, and whose stream then broke."""
    async with (
        over_http(server.mcp.streamable_http_app()) as transport,
        http_session(transport, capabilities=WITH_TASKS) as (caller, link),
    ):
        if listens:
            await link.listen()
        task_id, waiting, question = await begin(caller)
        await until_parked(server, task_id, clock)
        await caller.reply(question, result={"task": theirs(pollInterval=60_000)})
        await caller.settle()
        await link.disconnect(waiting.id)
        await caller.settle()
        # One check, so that the server notices that no caller waits.
        clock.advance(LOOK)
        await caller.settle()
        yield caller, link, task_id, transport


def times_asked(caller: ElicitationCaller) -> int:
    return len([one for one in caller.all_requests if one.method == "elicitation/create"])


async def test_the_task_of_a_caller_with_a_broken_stream_is_still_polled_and_its_answer_used() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    received = add_greeting(server)
    async with own_task_under_way(server, clock) as (caller, _, task_id, _):
        for status in ("working", "completed"):
            clock.advance(60)
            asked = await expect(caller, "tasks/get")
            assert asked.stream == GET
            await caller.reply(asked, result=theirs(status, pollInterval=60_000))
            await caller.settle()
        asked = await expect(caller, "tasks/result")
        assert asked.stream == GET
        await caller.reply(asked, result=YES)
        await server.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert text_of(await caller.result(task_id)) == "Hello, Ada!"
        assert times_asked(caller) == 1
    assert received == [("accept", {"name": "Ada"})]


async def test_a_caller_whose_own_task_still_runs_is_not_asked_again_when_it_waits_again() -> None:
    """It is present, because it answers polls of its task, and its user already has the question."""
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    received = add_greeting(server)
    async with own_task_under_way(server, clock) as (caller, _, task_id, _):
        waiting = await caller.wait(task_id)
        assert await caller.has_no_question()
        clock.advance(60)
        await caller.reply(await expect(caller, "tasks/get"), result=theirs("completed"))
        await caller.reply(await expect(caller, "tasks/result"), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert times_asked(caller) == 1
    assert received == [("accept", {"name": "Ada"})]


async def test_a_caller_whose_streams_are_all_broken_is_polled_again_when_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_tasks, "RESPONSE_TIMEOUT", 0.3)
    # However long this test takes.
    monkeypatch.setattr(client_tasks, "MAX_FETCH_TRIES", 100)
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    received = add_greeting(server)
    async with own_task_under_way(server, clock, listens=False) as (caller, link, task_id, _):
        clock.advance(60)
        # Into the void.
        assert await caller.has_no_question()
        await link.listen()
        await caller.reply(await expect(caller, "tasks/get"), result=theirs("completed"))
        asked = await caller.question()
        while asked.method != "tasks/result":
            # An answer may have arrived too late.
            await caller.reply(asked, result=theirs("completed"))
            asked = await caller.question()
        await caller.reply(asked, result=YES)
        await server.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert times_asked(caller) == 1
    assert received == [("accept", {"name": "Ada"})]


async def test_when_a_caller_with_a_running_task_disappears_another_caller_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_tasks, "RESPONSE_TIMEOUT", 0.05)
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    received = add_greeting(server)
    async with (
        own_task_under_way(server, clock, listens=False) as (_, _, task_id, transport),
        http_session(transport) as (other, _),
    ):
        waiting = await other.wait(task_id)
        assert await other.has_no_question()
        clock.advance(60)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
    assert received == [("accept", {"name": "Ada"})]


@ON_BOTH
async def test_an_error_with_the_code_of_a_closed_connection_counts_as_an_answer_if_the_connection_is_open(
    way: str,
) -> None:
    """Some clients forward the error of another connection."""
    server = ExampleServer()
    received: list[tuple[int, str]] = []

    @server.tasks.tool
    async def greet(task: TaskContext) -> str:  # pyright: ignore[reportUnusedFunction]
        try:
            await task.elicit("Who are you?", {"type": "object"})
        except ProtocolError as error:
            received.append((error.code, str(error)))
            raise
        return "Hello!"

    async with calling(server, way) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.reply(question, error={"code": -32000, "message": "Connection closed"})
        with pytest.raises(Refused, match="Connection closed") as refused:
            await waiting.result()
        assert refused.value.code == -32000
        assert (await caller.get(task_id))["status"] == "failed"
        assert await caller.has_no_question()
        assert len(caller.all_requests) == 1
    assert received == [(-32000, "Connection closed")]


async def test_one_background_check_watches_the_asked_caller_however_many_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[AnyContext] = []

    async def until_away(ctx: AnyContext, clock: Clock, *, reconnect_timeout: float) -> None:
        looks.append(ctx)
        await disconnect.wait_until_disconnected(ctx, clock, reconnect_timeout=reconnect_timeout)

    monkeypatch.setattr(elicitation, "wait_until_disconnected", until_away)
    server = ExampleServer()
    received = add_greeting(server)
    async with connected(server) as first, connected(server) as other:
        task_id, waiting, question = await begin(first)
        behind = [await other.wait(task_id) for _ in range(200)]
        assert await other.has_no_question()
        assert len(looks) == 1
        task_count = len(asyncio.all_tasks())
        await first.reply(question, result=YES)
        ends = await asyncio.gather(*(one.result() for one in (waiting, *behind)))
        assert {text_of(end) for end in ends} == {"Hello, Ada!"}
        assert other.all_requests == []
        await other.settle()
        assert len(asyncio.all_tasks()) < task_count - 200, "whoever waited has left nothing behind"
    assert received == [("accept", {"name": "Ada"})]
