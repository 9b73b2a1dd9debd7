"""Who waits may leave in the middle of a question, in whatever way: it stays open, and the next who waits is asked."""

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
from tests.support.server.example import Shop
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import over_http, over_stdio
from tests.support.server.transports_v2025 import Events
from tests.support.server.unavailable_store import Away
from tests.support.server.v2025 import killable_server
from tests.support.server.v2025.elicitation_caller import (
    Asked,
    Begun,
    G1Caller,
    HttpLink,
    connected,
    in_session,
    on_stream,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

Leave = Callable[[G1Caller, HttpLink, Begun], Awaitable[None]]


async def break_the_stream(_: G1Caller, link: HttpLink, waiting: Begun) -> None:
    await link.break_off(waiting.id)


async def take_it_back(caller: G1Caller, _: HttpLink, waiting: Begun) -> None:
    await caller.take_back(waiting)


async def end_the_session(_: G1Caller, link: HttpLink, __: Begun) -> None:
    await link.leave()


IN_EVERY_WAY = pytest.mark.parametrize("leave", [break_the_stream, take_it_back, end_the_session])


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells us of a broken connection, so it is looked for now and then: here, all the time."""
    monkeypatch.setattr(disconnect, "POLL_INTERVAL", 0.01)


Pair = tuple[tuple[G1Caller, HttpLink], tuple[G1Caller, HttpLink]]


@asynccontextmanager
async def two_sessions(shop: Shop, **app: Any) -> AsyncGenerator[Pair]:
    """Of one owner."""
    async with (
        over_http(shop.mcp.streamable_http_app(**app)) as wire,
        in_session(wire) as first,
        in_session(wire) as other,
    ):
        yield first, other


async def begin(caller: G1Caller, tool: str = "greet") -> tuple[str, Begun, Asked]:
    task_id = await caller.start(tool)
    waiting = await caller.wait(task_id)
    return task_id, waiting, await caller.question()


@IN_EVERY_WAY
async def test_one_that_comes_after_another_has_left_is_asked_what_that_one_was(leave: Leave) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with two_sessions(shop) as ((first, link), (other, _)):
        task_id, waiting, asked = await begin(first)
        await leave(first, link, waiting)
        assert (await other.get(task_id))["status"] == "input_required"
        waiting_too = await other.wait(task_id)
        question = await other.question()
        assert (question.task_id, question.stream) == (task_id, waiting_too.id)
        assert question.params == asked.params
        await other.reply(question, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert (len(first.all_asked), len(other.all_asked)) == (1, 1)
    assert len(heard) == 1


@IN_EVERY_WAY
async def test_one_that_waited_alongside_is_asked_when_the_other_leaves(leave: Leave) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with two_sessions(shop) as ((first, link), (other, _)):
        task_id, waiting, _ = await begin(first)
        waiting_too = await other.wait(task_id)
        assert await other.asks_nothing()
        await leave(first, link, waiting)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert (len(first.all_asked), len(other.all_asked)) == (1, 1)
    assert len(heard) == 1


@pytest.mark.parametrize("leave", [break_the_stream, take_it_back])
async def test_the_same_session_may_come_back_and_is_asked_again(leave: Leave) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with two_sessions(shop) as ((caller, link), _):
        task_id, waiting, question = await begin(caller)
        for number in range(1, 4):
            await leave(caller, link, waiting)
            waiting, before = await caller.wait(task_id), question
            question = await caller.question()
            assert (question.params, question.stream) == (before.params, waiting.id)
            assert len(caller.all_asked) == number + 1
        await caller.reply(question, result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
    assert len(heard) == 1


async def test_who_takes_its_request_back_has_its_question_taken_back_too() -> None:
    shop = Shop()
    add_greeting(shop)
    async with connected(shop) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.take_back(waiting)
        assert await caller.withdrawal() == question.id
        # Over streams such a request is not answered at all, and nothing is kept of what is said to it.
        await caller.reply(question, result=YES)
        await caller.settle()
        assert not waiting.answer.done()
        assert (await caller.get(task_id))["status"] == "input_required"


@pytest.mark.parametrize("is_alongside", [True, False], ids=["alongside", "after"])
async def test_when_a_connection_is_closed_the_next_is_asked(is_alongside: bool) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with connected(shop) as other:
        async with connected(shop) as first:
            task_id, _, _ = await begin(first)
            waiting = await other.wait(task_id) if is_alongside else None
            assert await other.asks_nothing()
        waiting = waiting or await other.wait(task_id)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert (len(first.all_asked), len(other.all_asked)) == (1, 1)
    assert len(heard) == 1


async def test_when_the_pipe_of_a_process_is_closed_the_next_process_on_the_file_asks(tmp_path: Path) -> None:
    arguments = (Path(killable_server.__file__), str(tmp_path / "tasks.db"), str(tmp_path / "diary"))
    async with over_stdio(*arguments) as wire, on_stream(wire) as caller:
        task_id, _, _ = await begin(caller, "ask_twice")
    async with over_stdio(*arguments) as wire, on_stream(wire) as caller:
        waiting = await caller.wait(task_id)
        for message in ("Sure?", "Really?"):
            question = await caller.question()
            assert (question.task_id, question.params["message"]) == (task_id, message)
            await caller.reply(question, result={"action": "decline"})
        assert text_of(await waiting.result()) == "decline, then decline"


@IN_EVERY_WAY
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_who_answers_and_leaves_at_once_has_answered(leave: Leave, kind: str, tmp_path: Path) -> None:
    """As in the specification's own example: the answer is given, the stream closed, and the task polled again."""
    shop = Shop("memory:" if kind == "memory" else tmp_path / "tasks.db")
    heard = add_greeting(shop)
    async with two_sessions(shop) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first)
        await first.reply(question, result=YES)
        await leave(first, link, waiting)
        # Nobody waits for it, and nobody has to.
        await shop.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert text_of(await other.result(task_id)) == "Hello, Ada!"
        assert (len(first.all_asked), len(other.all_asked)) == (1, 0)
    assert heard == [("accept", {"name": "Ada"})]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_who_answers_and_closes_its_connection_at_once_has_answered(kind: str, tmp_path: Path) -> None:
    shop = Shop("memory:" if kind == "memory" else tmp_path / "tasks.db")
    heard = add_greeting(shop)
    async with connected(shop) as other:
        async with connected(shop) as first:
            task_id, _, question = await begin(first)
            await first.reply(question, result=YES)
        await shop.tasks.engine.wait(task_id)
        assert text_of(await other.result(task_id)) == "Hello, Ada!"
        assert (len(first.all_asked), len(other.all_asked)) == (1, 0)
    assert heard == [("accept", {"name": "Ada"})]


async def test_who_answers_and_takes_its_request_back_in_one_breath_has_answered() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with connected(shop) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.reply(question, result=YES)
        await caller.take_back(waiting)
        await shop.tasks.engine.wait(task_id)
        assert text_of(await caller.result(task_id)) == "Hello, Ada!"
        assert len(caller.all_asked) == 1
    assert heard == [("accept", {"name": "Ada"})]


@pytest.mark.parametrize("is_same", [True, False], ids=["same-connection", "another-connection"])
async def test_a_question_is_not_asked_again_while_its_answer_is_being_stored(
    monkeypatch: pytest.MonkeyPatch, *, is_same: bool
) -> None:
    away, shop = Away(monkeypatch), Shop()
    heard = add_greeting(shop)
    async with connected(shop) as first, connected(shop) as other:
        task_id, waiting, question = await begin(first)
        away.takes_answers.clear()
        await first.reply(question, result=YES)
        await away.has_answer.wait()
        await first.take_back(waiting)
        next_one = first if is_same else other
        waiting = await next_one.wait(task_id)
        assert await next_one.asks_nothing()
        away.takes_answers.set()
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert (len(first.all_asked), len(other.all_asked)) == (1, 0)
    assert heard == [("accept", {"name": "Ada"})]


async def test_the_late_answer_of_one_whose_stream_broke_counts_and_the_other_is_not_asked_any_more() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with two_sessions(shop) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first)
        await link.break_off(waiting.id)
        waiting_too = await other.wait(task_id)
        question_too = await other.question()
        # Its user did not see the stream break, and has answered.
        await first.reply(question, result=YES)
        assert await other.withdrawal() == question_too.id
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        await other.reply(question_too, result={"action": "decline"})
        assert text_of(await first.result(task_id)) == "Hello, Ada!"
    assert heard == [("accept", {"name": "Ada"})]


async def test_the_late_answer_of_one_whose_stream_broke_counts_though_nobody_waits() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with two_sessions(shop) as ((first, link), _):
        task_id, waiting, question = await begin(first)
        await link.break_off(waiting.id)
        await first.settle()
        await first.reply(question, result=YES)
        await shop.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert text_of(await first.result(task_id)) == "Hello, Ada!"
        assert len(first.all_asked) == 1
    assert heard == [("accept", {"name": "Ada"})]


async def test_what_comes_after_a_late_answer_is_asked_of_who_is_there() -> None:
    """Not into a stream that nobody reads."""
    shop = Shop()
    add_all_kinds(shop)
    async with two_sessions(shop) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first, "one_by_one")
        await link.break_off(waiting.id)
        await first.settle()
        await first.reply(question, result={"action": "decline"})
        waiting_too = await other.wait(task_id)
        for number in range(1, 4):
            asked = await other.question()
            if asked.params["message"] == "Number 0?":
                # It came before the late answer did, and is withdrawn.
                assert await other.withdrawal() == asked.id
                asked = await other.question()
            assert asked.params["message"] == f"Number {number}?"
            await other.reply(asked, result={"action": "decline"})
        assert (await waiting_too.result())["structuredContent"] == {"result": ["decline"] * 4}


async def test_a_broken_stream_that_can_be_resumed_is_not_taken_for_gone() -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with two_sessions(shop, event_store=Events()) as ((first, link), (other, _)):
        task_id, waiting, question = await begin(first)
        waiting_too = await other.wait(task_id)
        await link.break_off(waiting.id)
        # Many looks, and the question is still the first one's.
        assert await other.asks_nothing()
        assert await first.asks_nothing()
        await first.reply(question, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert other.all_asked == []
        # It comes back for what it missed.
        link.resume(waiting.id)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert len(first.all_asked) == 1
    assert heard == [("accept", {"name": "Ada"})]


async def test_where_streams_can_be_resumed_one_who_takes_its_request_back_is_gone_all_the_same() -> None:
    shop = Shop()
    add_greeting(shop)
    async with two_sessions(shop, event_store=Events()) as ((first, _), (other, _)):
        task_id, waiting, _ = await begin(first)
        waiting_too = await other.wait(task_id)
        await first.take_back(waiting)
        with pytest.raises(Refused, match="-32800"):
            await waiting.result()
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"


async def test_who_listened_too_late_where_answers_are_plain_json_is_asked_when_it_waits_again() -> None:
    shop = Shop()
    add_greeting(shop)
    async with two_sessions(shop, json_response=True) as ((caller, link), _):
        task_id = await caller.start("greet")
        waiting = await caller.wait(task_id)
        assert await caller.asks_nothing()
        await link.break_off(waiting.id)
        await link.listen()
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.question(), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def test_a_server_that_stops_in_the_middle_of_a_question_stops_in_good_order_and_the_next_asks(
    tmp_path: Path,
) -> None:
    task_ids: list[str] = []
    for _ in range(2):
        shop = Shop(tmp_path / "tasks.db")
        add_greeting(shop)
        async with over_http(shop.mcp.streamable_http_app()) as wire, in_session(wire) as (caller, _):
            task_ids = task_ids or [await caller.start("greet")]
            waiting = await caller.wait(task_ids[0])
            question = await caller.question()
            assert question.task_id == task_ids[0]
            if task_ids[1:]:
                await caller.reply(question, result=YES)
                assert text_of(await waiting.result()) == "Hello, Ada!"
            task_ids.append("again")
    assert len(task_ids) == 3


async def test_one_who_breaks_its_stream_again_and_again_leaves_no_more_behind_than_once() -> None:
    """Some hosts give a request up after a minute, and send it again, for as long as its user thinks."""
    shop = Shop()
    add_greeting(shop)
    async with two_sessions(shop) as ((caller, link), _):
        task_id, waiting, question = await begin(caller)
        jobs: list[int] = []
        for _ in range(14):
            await link.break_off(waiting.id)
            waiting = await caller.wait(task_id)
            question = await caller.question()
            await caller.settle()
            jobs.append(len(asyncio.all_tasks()))
        # The first few may still be on their way out.
        assert max(jobs[4:]) <= max(jobs[:4]) + 2, jobs
        await caller.reply(question, result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"


async def test_a_store_that_is_away_just_when_the_next_is_to_be_asked_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    shop = Shop()
    add_greeting(shop)
    async with connected(shop) as first, connected(shop) as other:
        task_id, waiting, _ = await begin(first)
        waiting_too = await other.wait(task_id)
        # So that nothing changes any more by itself.
        await shop.tasks.engine.wait(task_id, until=lambda task: task.phase is Phase.PARKED)
        assert await other.asks_nothing()
        away.be_away("view", 1)
        await first.take_back(waiting)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"


async def test_an_answer_that_comes_while_the_store_is_away_is_kept_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    shop = Shop()
    heard = add_greeting(shop)
    async with connected(shop) as caller:
        _, waiting, question = await begin(caller)
        away.be_away("view", 3)
        await caller.reply(question, result=YES)
        await away.missed.wait()
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert len(caller.all_asked) == 1
    assert len(heard) == 1
