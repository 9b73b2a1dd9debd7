"""How many streams there may be, and for how many tasks: taken before anything is looked for, and given back."""

# pyright: reportUnusedFunction=false

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from mcp.server.context import HandlerResult
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import SubscriptionsListenRequestParams

from raincheck import Owner, Tasks
from raincheck.core.owner import OwnerKind
from raincheck.server.sdk_compat import AnyContext, lowlevel_of
from raincheck.server.stream_limits import STREAM_LIMITS, StreamLimit, StreamSlots
from raincheck.server.v2026.methods import LISTEN_METHOD
from tests.server.test_owners import bearing, make_with_tokens, serving
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated, refusal
from tests.support.server.transports import HttpWire, Message, in_memory
from tests.support.server.unavailable_store import Away

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

ALICE, BOB = Owner.token("https://a.example", "alice"), Owner.token("https://a.example", "bob")


def take(places: StreamSlots, stack: AsyncExitStack, owner: Owner, tasks: int) -> None:
    stack.enter_context(places.acquire(owner, tasks))


def stranger(number: int) -> Owner:
    return Owner(OwnerKind.HEADER, (str(number),))


def known(number: int) -> Owner:
    return Owner.token("https://a.example", str(number))


async def test_an_owner_may_follow_so_many_tasks_on_all_its_streams_together() -> None:
    places = StreamSlots(STREAM_LIMITS)
    async with AsyncExitStack() as held:
        take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks - 1)
        take(places, held, ALICE, 1)
        with pytest.raises(MCPError, match="too many followed tasks"):
            take(places, held, ALICE, 1)
        take(places, held, BOB, STREAM_LIMITS.per_owner.tasks)
    async with AsyncExitStack() as held:
        take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks)


async def test_an_owner_has_so_many_streams_and_no_more() -> None:
    places = StreamSlots(STREAM_LIMITS)
    async with AsyncExitStack() as held:
        for _ in range(STREAM_LIMITS.per_owner.streams):
            take(places, held, ALICE, 0)
        with pytest.raises(MCPError, match="too many streams"):
            take(places, held, ALICE, 0)
        take(places, held, BOB, 0)
    async with AsyncExitStack() as held:
        take(places, held, ALICE, 0)


async def test_all_owners_together_have_so_many_streams_and_follow_so_many_tasks() -> None:
    for tasks, which in ((STREAM_LIMITS.per_owner.tasks, "followed tasks"), (0, "streams")):
        places = StreamSlots(STREAM_LIMITS)
        async with AsyncExitStack() as held:
            with pytest.raises(MCPError, match=f"too many {which}"):  # noqa: PT012 - the last of many
                for number in range(STREAM_LIMITS.total.streams + 1):
                    take(places, held, known(number), tasks)
            assert places.tasks.total() <= STREAM_LIMITS.total.tasks
            assert places.streams.total() <= STREAM_LIMITS.total.streams
        async with AsyncExitStack() as held:
            take(places, held, ALICE, 1)


@pytest.mark.parametrize("kind", ["headers", "anonymous"])
async def test_strangers_share_their_places_and_leave_room_for_those_who_are_known(kind: str) -> None:
    for tasks, which in ((STREAM_LIMITS.per_owner.tasks, "followed tasks"), (0, "streams")):
        places = StreamSlots(STREAM_LIMITS)
        async with AsyncExitStack() as held:
            with pytest.raises(MCPError, match=f"too many {which}"):  # noqa: PT012 - likewise
                for number in range(STREAM_LIMITS.total.streams):
                    take(places, held, stranger(number) if kind == "headers" else Owner.anonymous(), tasks)
            assert places.streams.total() <= STREAM_LIMITS.for_unverified.streams
            assert places.tasks.total() <= STREAM_LIMITS.for_unverified.tasks
            take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks)


async def test_a_refused_place_is_none_that_is_taken() -> None:
    places = StreamSlots(STREAM_LIMITS)
    async with AsyncExitStack() as held:
        for _ in range(3):
            with pytest.raises(MCPError, match="too many"):
                take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks + 1)
        take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks)


async def test_a_stream_that_is_for_fewer_tasks_than_were_asked_for_gives_back_the_rest() -> None:
    places = StreamSlots(STREAM_LIMITS)
    with places.acquire(ALICE, STREAM_LIMITS.per_owner.tasks) as place:
        place.shrink(1)
        with (
            places.acquire(ALICE, STREAM_LIMITS.per_owner.tasks - 1),
            pytest.raises(MCPError),
            places.acquire(ALICE, 1),
        ):
            pass
    assert not places.tasks
    assert not places.streams


async def test_many_streams_that_are_asked_for_at_once_are_bounded_before_anything_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller that asks faster than the store answers gets no more than its share, and costs no more either."""
    away = Away(monkeypatch)
    away.answers.clear()
    shop = Shop(works=False)
    add_gated(shop)
    async with shop.open() as caller:
        await caller.request("server/discover")
        ids = [f"unknown-{number}" for number in range(50)]
        wanted: dict[str, Any] = {"notifications": {"taskIds": ids, "toolsListChanged": True}}
        came = [caller.wire.exchange(caller.message("subscriptions/listen", wanted), {}) for _ in range(300)]
        firsts = [asyncio.ensure_future(anext(one)) for one in came]
        refused: list[Message] = []
        for first in asyncio.as_completed(firsts):
            refused.append(await first)
            if len(refused) == 300 - STREAM_LIMITS.per_owner.tasks // len(ids):
                break
        assert {first["error"]["code"] for first in refused} == {-32010}
        # Those that have a place look for one task after the other.
        assert away.calls["load"] == STREAM_LIMITS.per_owner.tasks // len(ids)
        away.answers.set()
        answered = await asyncio.gather(*firsts)
        assert sum("error" not in first for first in answered) == STREAM_LIMITS.per_owner.tasks // len(ids)
        for one in came:
            await one.aclose()


async def test_the_places_of_a_stream_that_ended_and_of_one_that_was_refused_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2026.methods.STREAM_LIMITS", replace(STREAM_LIMITS, per_owner=StreamLimit(1, 2))
    )
    shop = Shop(works=False)
    add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        for _ in range(3):
            async with caller.listening("unknown", "another") as pushed:
                assert [one async for one in pushed] == []
            refused = await refusal(caller, "subscriptions/listen", {"notifications": {"taskIds": [1]}})
            assert refused.code == -32602
        async with caller.listening(task_id, "unknown") as pushed:
            assert (await anext(pushed))["taskId"] == task_id


async def test_an_owner_whose_places_are_taken_is_no_burden_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2026.methods.STREAM_LIMITS", replace(STREAM_LIMITS, per_owner=StreamLimit(5, 1))
    )
    shop = make_with_tokens(works=False)
    async with serving(shop) as wire:
        alice, mallory = bearing(wire, "alice"), bearing(wire, "mallory")
        hers, theirs = await alice.start("quick"), await mallory.start("quick")
        async with alice.listening(hers) as pushed:
            await anext(pushed)
            with pytest.raises(Refused, match="-32010"):
                async with bearing(wire, "alice").listening(hers):
                    pass
            async with mallory.listening(theirs) as pushed_there:
                assert (await anext(pushed_there))["taskId"] == theirs


@pytest.mark.parametrize("way", ["open", "open_http"])
async def test_the_acknowledgement_comes_first_though_a_task_changes_meanwhile(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open_by(way) as caller:
        for _ in range(10):
            gate.open.clear()
            task_id = await caller.start("gated")
            wanted = {"notifications": {"taskIds": [task_id], "toolsListChanged": True}}
            message = caller.message("subscriptions/listen", wanted)
            came = caller.wire.exchange(message, caller.routing(message))
            opening = asyncio.create_task(open_gate(gate.open))
            first, second = await anext(came), await anext(came)
            assert first["method"] == "notifications/subscriptions/acknowledged"
            assert first["params"]["notifications"] == {"taskIds": [task_id], "toolsListChanged": True}
            assert second["method"] == "notifications/tasks"
            await came.aclose()
            await opening
    assert way == "open" or isinstance(caller.wire, HttpWire)


async def open_gate(gate: asyncio.Event) -> None:
    gate.set()


async def test_nothing_is_pushed_before_the_acknowledgement_however_long_that_takes() -> None:
    mcp: MCPServer[Any] = MCPServer("shop", log_level="WARNING")
    server, may_acknowledge = lowlevel_of(mcp), asyncio.Event()
    theirs = server.get_request_handler(LISTEN_METHOD)
    assert theirs is not None

    async def take_time(ctx: AnyContext, params: SubscriptionsListenRequestParams) -> HandlerResult:
        await may_acknowledge.wait()
        return await theirs.handler(ctx, params)

    server.add_request_handler(LISTEN_METHOD, SubscriptionsListenRequestParams, take_time)
    tasks, end = Tasks(mcp, "memory:", settings=QUICK), asyncio.Event()

    @tasks.tool
    async def work() -> None:
        await end.wait()

    async with in_memory(mcp) as wire:
        caller = Caller(wire)
        task_id = await caller.start("work")
        wanted = {"notifications": {"taskIds": [task_id], "toolsListChanged": True}}
        came = wire.exchange(caller.message(LISTEN_METHOD, wanted), {})
        first = asyncio.ensure_future(anext(came))
        end.set()
        await tasks.engine.wait(task_id)
        # On one wire, whatever was pushed before comes before this answer.
        assert (await caller.get(task_id))["status"] == "completed"
        assert not first.done()
        may_acknowledge.set()
        assert (await first)["method"] == "notifications/subscriptions/acknowledged"
        assert (await anext(came))["params"]["status"] == "completed"
        await came.aclose()


async def test_what_is_not_there_takes_up_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2026.methods.STREAM_LIMITS", replace(STREAM_LIMITS, per_owner=StreamLimit(5, 3))
    )
    shop = Shop(works=False)
    add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id, "unknown", "another") as pushed:
            await anext(pushed)
            async with Caller(caller.wire).listening(task_id, "unknown") as others:
                assert (await anext(others))["taskId"] == task_id


async def test_one_stream_for_many_tasks_is_one_job() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with shop.open() as caller:
        ids = [await caller.start("gated") for _ in range(50)]
        before = len(asyncio.all_tasks())
        async with caller.listening(*ids) as pushed:
            for _ in ids:
                await anext(pushed)
            # The stream itself, and the two things that it waits for.
            assert len(asyncio.all_tasks()) - before <= 5


async def test_a_stream_that_was_left_leaves_no_job_behind() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        before = asyncio.all_tasks()
        async with caller.listening(task_id, toolsListChanged=True) as pushed:
            await anext(pushed)
        # The answer to a later request shows that the server has seen that he left.
        await caller.get(task_id)
        async with asyncio.timeout(10):
            while asyncio.all_tasks() - before:
                await asyncio.wait(asyncio.all_tasks() - before)
