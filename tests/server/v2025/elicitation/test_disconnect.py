"""A caller that disconnects during a question leaves it open, and the next waiting caller is asked."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raincheck import Owner
from raincheck.core.lifecycle import Phase
from raincheck.server import disconnect
from tests.server.v2025.elicitation.test_questions import add_all_kinds
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import over_http, over_stdio
from tests.support.server.transports_v2025 import StoredEvents
from tests.support.server.unavailable_store import UnavailableStore
from tests.support.server.v2025 import killable_server
from tests.support.server.v2025.elicitation_caller import (
    ElicitationCaller,
    HttpLink,
    PendingRequest,
    ServerRequest,
    connected,
    http_session,
    on_stream,
)

pytestmark = pytest.mark.anyio

Leave = Callable[[ElicitationCaller, HttpLink, PendingRequest], Awaitable[None]]


async def break_the_stream(_: ElicitationCaller, link: HttpLink, waiting: PendingRequest) -> None:
    await link.disconnect(waiting.id)


async def cancel_wait(caller: ElicitationCaller, _: HttpLink, waiting: PendingRequest) -> None:
    await caller.cancel_request(waiting)


async def end_the_session(_: ElicitationCaller, link: HttpLink, __: PendingRequest) -> None:
    await link.leave()


EACH_DISCONNECT = pytest.mark.parametrize("leave", [break_the_stream, cancel_wait, end_the_session])


@pytest.fixture(autouse=True)
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server checks for broken connections regularly, because it is not notified. Here it checks constantly."""
    monkeypatch.setattr(disconnect, "POLL_INTERVAL", 0.01)


Pair = tuple[tuple[ElicitationCaller, HttpLink], tuple[ElicitationCaller, HttpLink]]


@asynccontextmanager
async def two_sessions(server: ExampleServer, **app: Any) -> AsyncGenerator[Pair]:
    """Of one owner."""
    async with (
        over_http(server.mcp.streamable_http_app(**app)) as transport,
        http_session(transport) as first,
        http_session(transport) as other,
    ):
        yield first, other


async def begin(caller: ElicitationCaller, tool: str = "greet") -> tuple[str, PendingRequest, ServerRequest]:
    task_id = await caller.start(tool)
    waiting = await caller.wait(task_id)
    return task_id, waiting, await caller.question()


@EACH_DISCONNECT
async def test_a_caller_that_waits_after_another_disconnected_is_asked_the_same_question(leave: Leave) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with two_sessions(server) as ((first, link), (other, _)):
        task_id, waiting, asked = await begin(first)
        await leave(first, link, waiting)
        assert (await other.get(task_id))["status"] == "input_required"
        waiting_too = await other.wait(task_id)
        question = await other.question()
        assert (question.task_id, question.stream) == (task_id, waiting_too.id)
        assert question.params == asked.params
        await other.reply(question, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert (len(first.all_requests), len(other.all_requests)) == (1, 1)
    assert len(received) == 1


@EACH_DISCONNECT
async def test_a_caller_that_waits_concurrently_is_asked_when_the_other_disconnects(leave: Leave) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with two_sessions(server) as ((first, link), (other, _)):
        task_id, waiting, _ = await begin(first)
        waiting_too = await other.wait(task_id)
        assert await other.has_no_question()
        await leave(first, link, waiting)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert (len(first.all_requests), len(other.all_requests)) == (1, 1)
    assert len(received) == 1


@pytest.mark.parametrize("leave", [break_the_stream, cancel_wait])
async def test_the_same_session_can_wait_again_and_is_asked_again(leave: Leave) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with two_sessions(server) as ((caller, link), _):
        task_id, waiting, question = await begin(caller)
        for number in range(1, 4):
            await leave(caller, link, waiting)
            waiting, before = await caller.wait(task_id), question
            question = await caller.question()
            assert (question.params, question.stream) == (before.params, waiting.id)
            assert len(caller.all_requests) == number + 1
        await caller.reply(question, result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
    assert len(received) == 1


async def test_a_cancelled_wait_withdraws_its_question() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with connected(server) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.cancel_request(waiting)
        assert await caller.withdrawal() == question.id
        # Over streams such a request is never answered, and answers to it are not stored.
        await caller.reply(question, result=YES)
        await caller.settle()
        assert not waiting.answer.done()
        assert (await caller.get(task_id))["status"] == "input_required"


@pytest.mark.parametrize("is_alongside", [True, False], ids=["alongside", "after"])
async def test_when_a_connection_is_closed_the_next_is_asked(is_alongside: bool) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected(server) as other:
        async with connected(server) as first:
            task_id, _, _ = await begin(first)
            waiting = await other.wait(task_id) if is_alongside else None
            assert await other.has_no_question()
        waiting = waiting or await other.wait(task_id)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert (len(first.all_requests), len(other.all_requests)) == (1, 1)
    assert len(received) == 1


async def test_when_the_pipe_of_a_process_is_closed_the_next_process_on_the_file_asks(tmp_path: Path) -> None:
    arguments = (Path(killable_server.__file__), str(tmp_path / "tasks.db"), str(tmp_path / "diary"))
    async with over_stdio(*arguments) as transport, on_stream(transport) as caller:
        task_id, _, _ = await begin(caller, "ask_twice")
    async with over_stdio(*arguments) as transport, on_stream(transport) as caller:
        waiting = await caller.wait(task_id)
        for message in ("Sure?", "Really?"):
            question = await caller.question()
            assert (question.task_id, question.params["message"]) == (task_id, message)
            await caller.reply(question, result={"action": "decline"})
        assert text_of(await waiting.result()) == "decline, then decline"


@EACH_DISCONNECT
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_answer_counts_if_the_caller_disconnects_immediately_after_it(
    leave: Leave, kind: str, tmp_path: Path
) -> None:
    """As in the specification's example: the caller answers, closes the stream, and polls the task again."""
    server = ExampleServer("memory:" if kind == "memory" else tmp_path / "tasks.db")
    received = add_greeting(server)
    async with two_sessions(server) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first)
        await first.reply(question, result=YES)
        await leave(first, link, waiting)
        # No caller waits for it, and none has to.
        await server.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert text_of(await other.result(task_id)) == "Hello, Ada!"
        assert (len(first.all_requests), len(other.all_requests)) == (1, 0)
    assert received == [("accept", {"name": "Ada"})]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_answer_counts_if_the_connection_closes_immediately_after_it(kind: str, tmp_path: Path) -> None:
    server = ExampleServer("memory:" if kind == "memory" else tmp_path / "tasks.db")
    received = add_greeting(server)
    async with connected(server) as other:
        async with connected(server) as first:
            task_id, _, question = await begin(first)
            await first.reply(question, result=YES)
        await server.tasks.engine.wait(task_id)
        assert text_of(await other.result(task_id)) == "Hello, Ada!"
        assert (len(first.all_requests), len(other.all_requests)) == (1, 0)
    assert received == [("accept", {"name": "Ada"})]


async def test_an_answer_counts_if_the_wait_is_cancelled_immediately_after_it() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with connected(server) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.reply(question, result=YES)
        await caller.cancel_request(waiting)
        await server.tasks.engine.wait(task_id)
        assert text_of(await caller.result(task_id)) == "Hello, Ada!"
        assert len(caller.all_requests) == 1
    assert received == [("accept", {"name": "Ada"})]


@pytest.mark.parametrize("is_same", [True, False], ids=["same-connection", "another-connection"])
async def test_a_question_is_not_asked_again_while_its_answer_is_being_stored(
    monkeypatch: pytest.MonkeyPatch, *, is_same: bool
) -> None:
    away, server = UnavailableStore(monkeypatch), ExampleServer()
    received = add_greeting(server)
    async with connected(server) as first, connected(server) as other:
        task_id, waiting, question = await begin(first)
        away.takes_answers.clear()
        await first.reply(question, result=YES)
        await away.has_answer.wait()
        await first.cancel_request(waiting)
        next_one = first if is_same else other
        waiting = await next_one.wait(task_id)
        assert await next_one.has_no_question()
        away.takes_answers.set()
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert (len(first.all_requests), len(other.all_requests)) == (1, 0)
    assert received == [("accept", {"name": "Ada"})]


async def test_a_late_answer_after_a_broken_stream_counts_and_withdraws_the_question_from_the_other_caller() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with two_sessions(server) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first)
        await link.disconnect(waiting.id)
        waiting_too = await other.wait(task_id)
        question_too = await other.question()
        # Its user did not see the stream break, and has answered.
        await first.reply(question, result=YES)
        assert await other.withdrawal() == question_too.id
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        await other.reply(question_too, result={"action": "decline"})
        assert text_of(await first.result(task_id)) == "Hello, Ada!"
    assert received == [("accept", {"name": "Ada"})]


async def test_a_late_answer_after_a_broken_stream_counts_although_no_caller_waits() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with two_sessions(server) as ((first, link), _):
        task_id, waiting, question = await begin(first)
        await link.disconnect(waiting.id)
        await first.settle()
        await first.reply(question, result=YES)
        await server.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert text_of(await first.result(task_id)) == "Hello, Ada!"
        assert len(first.all_requests) == 1
    assert received == [("accept", {"name": "Ada"})]


async def test_the_question_after_a_late_answer_is_sent_to_a_connected_caller() -> None:
    """The question is not sent on a stream that no caller reads."""
    server = ExampleServer()
    add_all_kinds(server)
    async with two_sessions(server) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first, "one_by_one")
        await link.disconnect(waiting.id)
        await first.settle()
        await first.reply(question, result={"action": "decline"})
        waiting_too = await other.wait(task_id)
        for number in range(1, 4):
            asked = await other.question()
            if asked.params["message"] == "Number 0?":
                # It arrived before the late answer, and is withdrawn.
                assert await other.withdrawal() == asked.id
                asked = await other.question()
            assert asked.params["message"] == f"Number {number}?"
            await other.reply(asked, result={"action": "decline"})
        assert (await waiting_too.result())["structuredContent"] == {"result": ["decline"] * 4}


async def test_a_broken_stream_that_can_be_resumed_is_not_taken_for_gone() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with two_sessions(server, event_store=StoredEvents()) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first)
        waiting_too = await other.wait(task_id)
        await link.disconnect(waiting.id)
        # Many looks, and the question is still the first one's.
        assert await other.has_no_question()
        assert await first.has_no_question()
        await first.reply(question, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert other.all_requests == []
        # It resumes the stream and reads what it missed.
        link.resume(waiting.id)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert len(first.all_requests) == 1
    assert received == [("accept", {"name": "Ada"})]


async def test_with_resumable_streams_a_caller_that_cancels_its_wait_counts_as_gone() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with two_sessions(server, event_store=StoredEvents()) as ((first, _), (other, _)):
        task_id, waiting, _ = await begin(first)
        waiting_too = await other.wait(task_id)
        await first.cancel_request(waiting)
        with pytest.raises(Refused, match="-32800"):
            await waiting.result()
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"


async def test_with_plain_json_answers_a_caller_that_listens_late_is_asked_when_it_waits_again() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with two_sessions(server, json_response=True) as ((caller, link), _):
        task_id = await caller.start("greet")
        waiting = await caller.wait(task_id)
        assert await caller.has_no_question()
        await link.disconnect(waiting.id)
        await link.listen()
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.question(), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def test_a_server_that_stops_in_the_middle_of_a_question_stops_in_good_order_and_the_next_asks(
    tmp_path: Path,
) -> None:
    task_ids: list[str] = []
    for _ in range(2):
        server = ExampleServer(tmp_path / "tasks.db")
        add_greeting(server)
        async with over_http(server.mcp.streamable_http_app()) as transport, http_session(transport) as (caller, _):
            task_ids = task_ids or [await caller.start("greet")]
            waiting = await caller.wait(task_ids[0])
            question = await caller.question()
            assert question.task_id == task_ids[0]
            if task_ids[1:]:
                await caller.reply(question, result=YES)
                assert text_of(await waiting.result()) == "Hello, Ada!"
            task_ids.append("again")
    assert len(task_ids) == 3


async def test_a_stream_that_breaks_repeatedly_leaves_no_more_behind_than_one_that_breaks_once() -> None:
    """Some hosts give a request up after a minute, and send it again, for as long as its user thinks."""
    server = ExampleServer()
    add_greeting(server)
    async with two_sessions(server) as ((caller, link), _):
        task_id, waiting, question = await begin(caller)
        task_counts: list[int] = []
        for _ in range(14):
            await link.disconnect(waiting.id)
            waiting = await caller.wait(task_id)
            question = await caller.question()
            await caller.settle()
            task_counts.append(len(asyncio.all_tasks()))
        # The first few may still be on their way out.
        assert max(task_counts[4:]) <= max(task_counts[:4]) + 2, task_counts
        await caller.reply(question, result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def test_a_store_that_is_away_just_when_the_next_is_to_be_asked_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = UnavailableStore(monkeypatch)
    server = ExampleServer()
    add_greeting(server)
    async with connected(server) as first, connected(server) as other:
        task_id, waiting, _ = await begin(first)
        waiting_too = await other.wait(task_id)
        # So that nothing changes any more by itself.
        await server.tasks.engine.wait(task_id, until=lambda task: task.phase is Phase.PARKED)
        assert await other.has_no_question()
        away.fail_next("view", 1)
        await first.cancel_request(waiting)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"


async def test_an_answer_during_a_store_outage_is_stored_when_the_store_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = UnavailableStore(monkeypatch)
    server = ExampleServer()
    received = add_greeting(server)
    async with connected(server) as caller:
        _, waiting, question = await begin(caller)
        away.fail_next("view", 3)
        await caller.reply(question, result=YES)
        await away.missed.wait()
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert len(caller.all_requests) == 1
    assert len(received) == 1
