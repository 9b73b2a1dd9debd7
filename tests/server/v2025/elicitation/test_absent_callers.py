"""Those who are asked and stay away: how long others wait for them, what becomes of their answer, and what it costs."""

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
from tests.support.server.example import Shop
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import HttpWire, over_http
from tests.support.server.transports_v2025 import Events
from tests.support.server.v2025.elicitation_caller import GET, Asked, Begun, G1Caller, HttpLink, connected, in_session

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

LOOK = 15.0
"""Seconds, on a clock that goes when told."""


@pytest.fixture(autouse=True)
def looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the clock need not be moved so often."""
    monkeypatch.setattr(disconnect, "POLL_INTERVAL", LOOK)


async def begin(caller: G1Caller) -> tuple[str, Begun, Asked]:
    task_id = await caller.start("greet")
    waiting = await caller.wait(task_id)
    return task_id, waiting, await caller.question()


async def until_parked(shop: Shop, task_id: str, clock: FakeClock) -> None:
    """From here on nothing of the task depends on the time."""
    parked = asyncio.ensure_future(
        shop.tasks.engine.wait(task_id, owner=Owner.anonymous(), until=lambda task: task.phase is Phase.PARKED)
    )
    while not parked.done():
        clock.advance(0.05)
        await asyncio.wait([parked], timeout=0.01)
    await parked


@asynccontextmanager
async def somebody_stays_away(
    shop: Shop, clock: FakeClock
) -> AsyncGenerator[tuple[str, G1Caller, HttpLink, Begun, Asked, G1Caller]]:
    """One who was asked and whose stream broke, where what it missed is kept; and another."""
    async with (
        over_http(shop.mcp.streamable_http_app(event_store=Events())) as wire,
        in_session(wire) as (first, link),
        in_session(wire) as (other, _),
    ):
        task_id, waiting, question = await begin(first)
        await until_parked(shop, task_id, clock)
        await link.break_off(waiting.id)
        await first.settle()
        yield task_id, first, link, waiting, question, other


async def until_asked(caller: G1Caller, clock: FakeClock) -> tuple[float, Asked]:
    """The question, and how many seconds it took to come."""
    seconds = 0.0
    while await caller.asks_nothing():
        assert seconds <= 2 * disconnect.RECONNECT_TIMEOUT, "never asked"
        clock.advance(LOOK)
        seconds += LOOK
    return seconds, await caller.question()


async def test_one_who_stays_away_is_waited_for_so_long_and_then_another_is_asked() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    heard = add_greeting(shop)
    async with somebody_stays_away(shop, clock) as (task_id, _, link, waiting, asked, other):
        waiting_too = await other.wait(task_id)
        seconds, question = await until_asked(other, clock)
        # It takes a look or two to see that it is away.
        assert disconnect.RECONNECT_TIMEOUT <= seconds <= disconnect.RECONNECT_TIMEOUT + 3 * LOOK
        assert (question.params, question.stream) == (asked.params, waiting_too.id)
        await other.reply(question, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        # Whoever comes back late finds what it waited for.
        link.resume(waiting.id)
        assert text_of(await waiting.result()) == "Hello, Ada!"
    assert heard == [("accept", {"name": "Ada"})]


async def test_the_late_answer_of_one_who_stayed_away_counts_and_the_other_is_not_asked_any_more() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    heard = add_greeting(shop)
    async with somebody_stays_away(shop, clock) as (task_id, first, _, _, asked, other):
        waiting_too = await other.wait(task_id)
        _, question = await until_asked(other, clock)
        await first.reply(asked, result=YES)
        assert await other.withdrawal() == question.id
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert (len(first.all_asked), len(other.all_asked)) == (1, 1)
    assert heard == [("accept", {"name": "Ada"})]


async def test_one_who_answers_while_it_may_return_has_answered_and_nobody_else_is_asked() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    heard = add_greeting(shop)
    async with somebody_stays_away(shop, clock) as (task_id, first, _, _, asked, other):
        waiting_too = await other.wait(task_id)
        for _ in range(int(disconnect.RECONNECT_TIMEOUT / LOOK) - 1):
            clock.advance(LOOK)
            assert await other.asks_nothing()
        await first.reply(asked, result=YES)
        assert text_of(await waiting_too.result()) == "Hello, Ada!"
        assert other.all_asked == []
    assert heard == [("accept", {"name": "Ada"})]


@asynccontextmanager
async def own_task_under_way(
    shop: Shop, clock: FakeClock, *, listens: bool = True
) -> AsyncGenerator[tuple[G1Caller, HttpLink, str, HttpWire]]:
    """A caller that answered with a task of its own, and whose stream broke then."""
    async with (
        over_http(shop.mcp.streamable_http_app()) as wire,
        in_session(wire, capabilities=WITH_TASKS) as (caller, link),
    ):
        if listens:
            await link.listen()
        task_id, waiting, question = await begin(caller)
        await until_parked(shop, task_id, clock)
        await caller.reply(question, result={"task": theirs(pollInterval=60_000)})
        await caller.settle()
        await link.break_off(waiting.id)
        await caller.settle()
        # A look, so that it is known that nobody waits.
        clock.advance(LOOK)
        await caller.settle()
        yield caller, link, task_id, wire


def times_asked(caller: G1Caller) -> int:
    return len([one for one in caller.all_asked if one.method == "elicitation/create"])


async def test_the_task_of_a_caller_whose_stream_breaks_is_polled_on_and_its_answer_taken() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    heard = add_greeting(shop)
    async with own_task_under_way(shop, clock) as (caller, _, task_id, _):
        for status in ("working", "completed"):
            clock.advance(60)
            asked = await expect(caller, "tasks/get")
            assert asked.stream == GET
            await caller.reply(asked, result=theirs(status, pollInterval=60_000))
            await caller.settle()
        asked = await expect(caller, "tasks/result")
        assert asked.stream == GET
        await caller.reply(asked, result=YES)
        await shop.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert text_of(await caller.result(task_id)) == "Hello, Ada!"
        assert times_asked(caller) == 1
    assert heard == [("accept", {"name": "Ada"})]


async def test_a_caller_whose_own_task_goes_on_is_not_asked_again_when_it_waits_again() -> None:
    """It is there, since it answers how its task goes on, and its user thinks about the question already."""
    clock = FakeClock()
    shop = Shop(clock=clock)
    heard = add_greeting(shop)
    async with own_task_under_way(shop, clock) as (caller, _, task_id, _):
        waiting = await caller.wait(task_id)
        assert await caller.asks_nothing()
        clock.advance(60)
        await caller.reply(await expect(caller, "tasks/get"), result=theirs("completed"))
        await caller.reply(await expect(caller, "tasks/result"), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert times_asked(caller) == 1
    assert heard == [("accept", {"name": "Ada"})]


async def test_a_caller_whose_streams_are_all_broken_is_asked_for_its_task_again_when_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_tasks, "RESPONSE_TIMEOUT", 0.3)
    # However long this test takes.
    monkeypatch.setattr(client_tasks, "MAX_FETCH_TRIES", 100)
    clock = FakeClock()
    shop = Shop(clock=clock)
    heard = add_greeting(shop)
    async with own_task_under_way(shop, clock, listens=False) as (caller, link, task_id, _):
        clock.advance(60)
        # Into the void.
        assert await caller.asks_nothing()
        await link.listen()
        await caller.reply(await expect(caller, "tasks/get"), result=theirs("completed"))
        asked = await caller.question()
        while asked.method != "tasks/result":
            # An answer may have come too late.
            await caller.reply(asked, result=theirs("completed"))
            asked = await caller.question()
        await caller.reply(asked, result=YES)
        await shop.tasks.engine.wait(task_id, owner=Owner.anonymous())
        assert times_asked(caller) == 1
    assert heard == [("accept", {"name": "Ada"})]


async def test_when_a_caller_whose_own_task_went_on_is_heard_of_no_more_another_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_tasks, "RESPONSE_TIMEOUT", 0.05)
    clock = FakeClock()
    shop = Shop(clock=clock)
    heard = add_greeting(shop)
    async with (
        own_task_under_way(shop, clock, listens=False) as (_, _, task_id, wire),
        in_session(wire) as (other, _),
    ):
        waiting = await other.wait(task_id)
        assert await other.asks_nothing()
        clock.advance(60)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
    assert heard == [("accept", {"name": "Ada"})]


@ON_BOTH
async def test_a_caller_that_says_its_connection_is_closed_over_one_that_is_not_has_answered(way: str) -> None:
    """Some pass on what they heard from elsewhere."""
    shop = Shop()
    heard: list[tuple[int, str]] = []

    @shop.tasks.tool
    async def greet(task: TaskContext) -> str:  # pyright: ignore[reportUnusedFunction]
        try:
            await task.elicit("Who are you?", {"type": "object"})
        except ProtocolError as error:
            heard.append((error.code, str(error)))
            raise
        return "Hello!"

    async with calling(shop, way) as caller:
        task_id, waiting, question = await begin(caller)
        await caller.reply(question, error={"code": -32000, "message": "Connection closed"})
        with pytest.raises(Refused, match="Connection closed") as refused:
            await waiting.result()
        assert refused.value.code == -32000
        assert (await caller.get(task_id))["status"] == "failed"
        assert await caller.asks_nothing()
        assert len(caller.all_asked) == 1
    assert heard == [(-32000, "Connection closed")]


async def test_however_many_wait_behind_one_who_is_asked_one_looks_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[AnyContext] = []

    async def until_away(ctx: AnyContext, clock: Clock) -> None:
        looks.append(ctx)
        await disconnect.wait_until_away(ctx, clock)

    monkeypatch.setattr(elicitation, "wait_until_away", until_away)
    shop = Shop()
    heard = add_greeting(shop)
    async with connected(shop) as first, connected(shop) as other:
        task_id, waiting, question = await begin(first)
        behind = [await other.wait(task_id) for _ in range(200)]
        assert await other.asks_nothing()
        assert len(looks) == 1
        jobs = len(asyncio.all_tasks())
        await first.reply(question, result=YES)
        ends = await asyncio.gather(*(one.result() for one in (waiting, *behind)))
        assert {text_of(end) for end in ends} == {"Hello, Ada!"}
        assert other.all_asked == []
        await other.settle()
        assert len(asyncio.all_tasks()) < jobs - 200, "whoever waited has left nothing behind"
    assert heard == [("accept", {"name": "Ada"})]
