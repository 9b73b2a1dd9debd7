"""Limits on streams and on the tasks that they follow: slots are acquired before tasks are looked up, and released."""

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
from raincheck.server.limits import STREAM_LIMITS, StreamLimit, StreamSlots
from raincheck.server.sdk_compat import AnyContext, lowlevel_of
from raincheck.server.v2026.methods import LISTEN_METHOD
from tests.server.test_owners import bearing, make_with_tokens, serving
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, refusal
from tests.support.server.transports import HttpTransport, Message, in_memory
from tests.support.server.unavailable_store import UnavailableStore

pytestmark = pytest.mark.anyio

ALICE, BOB = Owner.token("https://a.example", "alice"), Owner.token("https://a.example", "bob")


def take(places: StreamSlots, stack: AsyncExitStack, owner: Owner, tasks: int) -> None:
    stack.enter_context(places.acquire(owner, tasks))


def stranger(number: int) -> Owner:
    return Owner(OwnerKind.HEADER, (str(number),))


def known(number: int) -> Owner:
    return Owner.token("https://a.example", str(number))


async def test_an_owner_has_a_limit_of_followed_tasks_over_all_its_streams() -> None:
    places = StreamSlots(STREAM_LIMITS)
    async with AsyncExitStack() as held:
        take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks - 1)
        take(places, held, ALICE, 1)
        with pytest.raises(MCPError, match="too many followed tasks"):
            take(places, held, ALICE, 1)
        take(places, held, BOB, STREAM_LIMITS.per_owner.tasks)
    async with AsyncExitStack() as held:
        take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks)


async def test_an_owner_has_a_limit_of_streams() -> None:
    places = StreamSlots(STREAM_LIMITS)
    async with AsyncExitStack() as held:
        for _ in range(STREAM_LIMITS.per_owner.streams):
            take(places, held, ALICE, 0)
        with pytest.raises(MCPError, match="too many streams"):
            take(places, held, ALICE, 0)
        take(places, held, BOB, 0)
    async with AsyncExitStack() as held:
        take(places, held, ALICE, 0)


async def test_streams_and_followed_tasks_have_a_total_limit() -> None:
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
async def test_unverified_callers_share_slots_and_leave_some_for_verified_ones(kind: str) -> None:
    for tasks, which in ((STREAM_LIMITS.per_owner.tasks, "followed tasks"), (0, "streams")):
        places = StreamSlots(STREAM_LIMITS)
        async with AsyncExitStack() as held:
            with pytest.raises(MCPError, match=f"too many {which}"):  # noqa: PT012 - likewise
                for number in range(STREAM_LIMITS.total.streams):
                    take(places, held, stranger(number) if kind == "headers" else Owner.anonymous(), tasks)
            assert places.streams.total() <= STREAM_LIMITS.for_unverified.streams
            assert places.tasks.total() <= STREAM_LIMITS.for_unverified.tasks
            take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks)


async def test_a_refused_stream_takes_no_slot() -> None:
    places = StreamSlots(STREAM_LIMITS)
    async with AsyncExitStack() as held:
        for _ in range(3):
            with pytest.raises(MCPError, match="too many"):
                take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks + 1)
        take(places, held, ALICE, STREAM_LIMITS.per_owner.tasks)


async def test_a_stream_releases_the_slots_of_tasks_that_it_does_not_follow() -> None:
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


async def test_concurrent_streams_are_limited_before_any_task_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller that asks faster than the store answers gets no more than its share, and costs no more either."""
    store = UnavailableStore(monkeypatch)
    store.answers.clear()
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with example_server.open() as caller:
        await caller.request("server/discover")
        ids = [f"unknown-{number}" for number in range(50)]
        wanted: dict[str, Any] = {"notifications": {"taskIds": ids, "toolsListChanged": True}}
        messages = [caller.transport.exchange(caller.message("subscriptions/listen", wanted), {}) for _ in range(300)]
        firsts = [asyncio.ensure_future(anext(one)) for one in messages]
        refused: list[Message] = []
        for first in asyncio.as_completed(firsts):
            refused.append(await first)
            if len(refused) == 300 - STREAM_LIMITS.per_owner.tasks // len(ids):
                break
        assert {first["error"]["code"] for first in refused} == {-32010}
        # Streams with slots look up one task after the other.
        assert store.calls["load"] == STREAM_LIMITS.per_owner.tasks // len(ids)
        store.answers.set()
        answered = await asyncio.gather(*firsts)
        assert sum("error" not in first for first in answered) == STREAM_LIMITS.per_owner.tasks // len(ids)
        for one in messages:
            await one.aclose()


async def test_ended_and_refused_streams_release_their_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2026.methods.STREAM_LIMITS", replace(STREAM_LIMITS, per_owner=StreamLimit(1, 2))
    )
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with example_server.open() as caller:
        task_id = await caller.start("gated")
        for _ in range(3):
            async with caller.listening("unknown", "another") as pushed:
                assert [one async for one in pushed] == []
            refused = await refusal(caller, "subscriptions/listen", {"notifications": {"taskIds": [1]}})
            assert refused.code == -32602
        async with caller.listening(task_id, "unknown") as pushed:
            assert (await anext(pushed))["taskId"] == task_id


async def test_an_owner_without_free_slots_does_not_affect_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2026.methods.STREAM_LIMITS", replace(STREAM_LIMITS, per_owner=StreamLimit(5, 1))
    )
    example_server = make_with_tokens(works=False)
    async with serving(example_server) as transport:
        alice, mallory = bearing(transport, "alice"), bearing(transport, "mallory")
        hers, other = await alice.start("quick"), await mallory.start("quick")
        async with alice.listening(hers) as pushed:
            await anext(pushed)
            with pytest.raises(Refused, match="-32010"):
                async with bearing(transport, "alice").listening(hers):
                    pass
            async with mallory.listening(other) as pushed_there:
                assert (await anext(pushed_there))["taskId"] == other


@pytest.mark.parametrize("way", ["open", "open_http"])
async def test_the_acknowledgement_comes_first_though_a_task_changes_meanwhile(way: str) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with example_server.open_by(way) as caller:
        for _ in range(10):
            gate.open.clear()
            task_id = await caller.start("gated")
            wanted = {"notifications": {"taskIds": [task_id], "toolsListChanged": True}}
            message = caller.message("subscriptions/listen", wanted)
            messages = caller.transport.exchange(message, caller.routing(message))
            opening = asyncio.create_task(open_gate(gate.open))
            first, second = await anext(messages), await anext(messages)
            assert first["method"] == "notifications/subscriptions/acknowledged"
            assert first["params"]["notifications"] == {"taskIds": [task_id], "toolsListChanged": True}
            assert second["method"] == "notifications/tasks"
            await messages.aclose()
            await opening
    assert way == "open" or isinstance(caller.transport, HttpTransport)


async def open_gate(gate: asyncio.Event) -> None:
    gate.set()


async def test_nothing_is_pushed_before_the_acknowledgement_however_long_that_takes() -> None:
    mcp: MCPServer[Any] = MCPServer("shop", log_level="WARNING")
    server, may_acknowledge = lowlevel_of(mcp), asyncio.Event()
    other = server.get_request_handler(LISTEN_METHOD)
    assert other is not None

    async def take_time(ctx: AnyContext, params: SubscriptionsListenRequestParams) -> HandlerResult:
        await may_acknowledge.wait()
        return await other.handler(ctx, params)

    server.add_request_handler(LISTEN_METHOD, SubscriptionsListenRequestParams, take_time)
    tasks, end = Tasks(mcp, "memory:", settings=QUICK), asyncio.Event()

    @tasks.tool
    async def work() -> None:
        await end.wait()

    async with in_memory(mcp) as transport:
        caller = Caller(transport)
        task_id = await caller.start("work")
        wanted = {"notifications": {"taskIds": [task_id], "toolsListChanged": True}}
        messages = transport.exchange(caller.message(LISTEN_METHOD, wanted), {})
        first = asyncio.ensure_future(anext(messages))
        end.set()
        await tasks.engine.wait(task_id)
        # On one transport, everything that was pushed before arrives before this answer.
        assert (await caller.get(task_id))["status"] == "completed"
        assert not first.done()
        may_acknowledge.set()
        assert (await first)["method"] == "notifications/subscriptions/acknowledged"
        assert (await anext(messages))["params"]["status"] == "completed"
        await messages.aclose()


async def test_unknown_tasks_take_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2026.methods.STREAM_LIMITS", replace(STREAM_LIMITS, per_owner=StreamLimit(5, 3))
    )
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with example_server.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id, "unknown", "another") as pushed:
            await anext(pushed)
            async with Caller(caller.transport).listening(task_id, "unknown") as others:
                assert (await anext(others))["taskId"] == task_id


async def test_one_stream_for_many_tasks_is_one_background_task() -> None:
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with example_server.open() as caller:
        ids = [await caller.start("gated") for _ in range(50)]
        before = len(asyncio.all_tasks())
        async with caller.listening(*ids) as pushed:
            for _ in ids:
                await anext(pushed)
            # The stream itself, and the two things that it waits for.
            assert len(asyncio.all_tasks()) - before <= 5


async def test_a_closed_stream_leaves_no_background_task_behind() -> None:
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with example_server.open() as caller:
        task_id = await caller.start("gated")
        before = asyncio.all_tasks()
        async with caller.listening(task_id, toolsListChanged=True) as pushed:
            await anext(pushed)
        # The answer to a later request shows that the server has seen that he left.
        await caller.get(task_id)
        async with asyncio.timeout(10):
            while asyncio.all_tasks() - before:
                await asyncio.wait(asyncio.all_tasks() - before)
