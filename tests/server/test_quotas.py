"""Limits of one owner: number, rate and size of calls; and calls that are repeated."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raincheck import Limits, Owner, Quota, Settings, TaskContext
from raincheck.core.values import Json
from raincheck.server.sdk_compat import AnyContext
from raincheck.testing import FakeClock
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.transports import over_http

pytestmark = pytest.mark.anyio

YES: dict[str, Any] = {"elicit-0": {"action": "accept", "content": {}}}


def make(store: str | Path = "memory:", **options: Any) -> ExampleServer:
    server = ExampleServer(store, **options)

    @server.tasks.tool()
    async def ask(task: TaskContext, question: str = "Go on?") -> str:
        await task.elicit(question, {"type": "object"})
        return "went on"

    @server.tasks.tool()
    async def say(text: str = "", times: int = 1) -> str:
        return text * times

    @server.tasks.tool(idempotency="order_id")
    async def charge(order_id: str | int | None = None, amount: int = 1) -> str:
        return f"{order_id}: {amount}"

    @server.tasks.tool(idempotency="order_id")
    async def ship(order_id: str | int | None = None) -> str:
        return f"shipped {order_id}"

    @server.tasks.tool(idempotency=key_of)
    async def book(room: str, day: str) -> str:
        return f"{room} on {day}"

    return server


def key_of(arguments: Mapping[str, Json]) -> Any:
    """What a server's author might write, wrongly for the room that is called so."""
    room = arguments["room"]
    return 5 if room == "wrong" else None if room == "any" else f"{room}/{arguments['day']}"


def everybody_is_local(_: AnyContext) -> Owner:
    return Owner.local()


def allowing(**quota: Any) -> Settings:
    # With a lease that does not run out when a test moves the clock.
    return replace(QUICK, lease=3_600, quota=Quota(**quota))


def bearing(one: Caller, name: str) -> Caller:
    return Caller(one.transport, headers={"authorization": f"Bearer {name}"})


def named(key: object) -> dict[str, Any]:
    return {"meta": {"raincheck/idempotency-key": key}}


async def refusal(caller: Caller, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        await caller.call(tool, arguments, **more)
    return refused.value


async def ids_of(server: ExampleServer) -> list[str]:
    """The tasks that callers on this machine have, newest first."""
    return [task.id for task in (await server.tasks.engine.list_tasks()).tasks]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return "memory:" if request.param == "memory" else tmp_path / "tasks.db"


async def test_an_owner_has_a_limit_of_live_tasks(store: str | Path) -> None:
    server = make(store, settings=allowing(live=2))
    async with server.open() as caller:
        first, second = await caller.start("ask"), await caller.start("ask")
        refused = await refusal(caller, "ask")
        assert refused.code == -32010
        assert refused.data == {"limit": "live tasks", "most": 2}
        assert refused.message == "too many live tasks (at most 2 for one owner): try again when one of them has ended"
        assert await ids_of(server) == [second, first]


@pytest.mark.parametrize("end", ["completed", "cancelled"])
async def test_a_task_that_ends_frees_its_share_of_the_limit(store: str | Path, end: str) -> None:
    async with make(store, settings=allowing(live=1)).open() as caller:
        task_id = await caller.start("ask")
        await refusal(caller, "ask")
        if end == "cancelled":
            await caller.cancel(task_id)
        else:
            await caller.until(task_id, "input_required")
            await caller.update(task_id, YES)
        assert (await caller.until(task_id))["status"] == end
        await caller.start("ask")


async def test_an_owner_has_a_limit_of_new_tasks_per_minute(store: str | Path) -> None:
    clock = FakeClock()
    server = make(store, settings=allowing(created=2), clock=clock)
    async with server.open() as caller:
        made = [await caller.start("say")]
        clock.advance(20)
        made.append(await caller.start("say"))
        for task_id in made:
            await caller.result(task_id)
        clock.advance(10.5)
        refused = await refusal(caller, "say")
        assert refused.code == -32010
        assert refused.data == {"limit": "new tasks", "most": 2, "retryAfterMs": 29_500}
        assert refused.message == "too many new tasks (at most 2 for one owner): try again in 30 s"
        clock.advance(29.4)
        assert (await refusal(caller, "say")).data["retryAfterMs"] == 100
        assert await ids_of(server) == made[::-1]
        # Refused calls do not count, and the retry time is correct.
        clock.advance(0.1)
        await caller.start("say")
        assert (await refusal(caller, "say")).data["retryAfterMs"] == 20_000


async def test_an_owner_at_its_limit_does_not_affect_another() -> None:
    async with make(settings=allowing(live=1)).open_http() as anybody:
        alice, mallory = bearing(anybody, "alice"), bearing(anybody, "mallory")
        await mallory.start("ask")
        assert (await refusal(mallory, "ask")).code == -32010
        await alice.start("ask")
        await anybody.start("ask")
        assert (await refusal(anybody, "ask")).code == -32010


async def test_of_calls_that_race_for_the_last_slot_one_gets_it(store: str | Path) -> None:
    # On a file, the race is between servers too.
    shops = [
        make(store, settings=allowing(live=3), owner=everybody_is_local) for _ in range(1 if store == "memory:" else 2)
    ]
    apps = [over_http(server.mcp.streamable_http_app()) for server in shops]
    wires = [await one.__aenter__() for one in apps]
    try:
        callers = [Caller(wires[number % len(wires)]) for number in range(12)]
        messages = await asyncio.gather(*(one.call("ask") for one in callers), return_exceptions=True)
        assert sum(isinstance(one, dict) and one["resultType"] == "task" for one in messages) == 3
        assert [one.code for one in messages if isinstance(one, Refused)] == [-32010] * 9
        assert len(await ids_of(shops[0])) == 3
    finally:
        for one in apps:
            await one.__aexit__(None, None, None)


async def test_a_call_that_is_made_again_at_the_limit_gets_its_task() -> None:
    async with make(settings=allowing(live=1, created=1)).open() as caller:
        task_id = await caller.start("ask", **named("once"))
        assert await caller.start("ask", **named("once")) == task_id
        assert (await refusal(caller, "ask", **named("twice"))).code == -32010


async def test_a_server_has_default_limits() -> None:
    clock = FakeClock()
    server = make(settings=None, works=False, clock=clock)
    async with server.open() as caller:
        await caller.start("say")
        for _ in range(999):
            await server.tasks.engine.submit("say")
        refused = await refusal(caller, "say")
        assert refused.data == {"limit": "new tasks", "most": 1_000, "retryAfterMs": 60_000}


@pytest.mark.parametrize(
    ("limits", "arguments", "more", "message"),
    [
        (Limits(arguments=100), {"text": "x" * 100}, {}, r"arguments has 1\d\d bytes, and 100 are allowed"),
        (
            Limits(caller=300),
            {"text": ""},
            {"inputResponses": {"a": {"action": "accept", "content": {"x": "y" * 300}}}},
            r"the caller's identity has [3-5]\d\d bytes, and 300 are allowed",
        ),
    ],
)
async def test_a_call_that_is_too_large_is_refused_and_leaves_nothing(
    limits: Limits, arguments: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    server = make(settings=replace(QUICK, limits=limits))
    async with server.open() as caller:
        with pytest.raises(Refused, match=message) as refused:
            await caller.call("say", arguments, **more)
        assert refused.value.code == -32602
        assert await ids_of(server) == []
        await caller.result(await caller.start("say", {"text": "x"}))


async def test_a_result_that_is_too_large_fails_its_task_with_a_clear_message() -> None:
    server = make(settings=replace(QUICK, limits=Limits(outcome=500)))
    async with server.open() as caller:
        task = await caller.until(await caller.start("say", {"text": "secret", "times": 1_000}))
        assert task["status"] == "failed"
        assert "bytes, and 500 are allowed" in task["error"]["message"]
        assert "secret" not in str(task)


async def test_an_answer_that_is_too_large_is_refused_and_its_question_stays_open() -> None:
    server = make(settings=replace(QUICK, limits=Limits(answer=100)))
    async with server.open() as caller:
        task_id = await caller.start("ask")
        await caller.until(task_id, "input_required")
        large = {"action": "accept", "content": {"x": "y" * 100}}
        with pytest.raises(
            Refused, match=r"the answer to question 'elicit-0' has 1\d\d bytes, and 100 are allowed"
        ) as refused:
            await caller.update(task_id, {"elicit-0": large})
        assert refused.value.code == -32602
        assert list((await caller.get(task_id))["inputRequests"]) == ["elicit-0"]
        await caller.update(task_id, YES)
        assert (await caller.result(task_id))["content"][0]["text"] == "went on"


async def test_a_question_that_is_too_large_fails_its_task_with_a_clear_message() -> None:
    server = make(settings=replace(QUICK, limits=Limits(question=200)))
    async with server.open() as caller:
        task = await caller.until(await caller.start("ask", {"question": "why? " * 100}))
        assert task["status"] == "failed"
        assert "bytes, and 200 are allowed" in task["error"]["message"]
        assert "inputRequests" not in task


async def test_a_repeated_call_gets_the_same_task_by_an_argument_a_function_or_a_key_of_the_caller() -> None:
    server = make()
    async with server.open() as caller:
        for tool, arguments, more in (
            ("charge", {"order_id": "a-1"}, {}),
            ("book", {"room": "red", "day": "monday"}, {}),
            ("say", {"text": "x"}, named("k")),
            ("charge", {"order_id": "a-2"}, named("mine")),
        ):
            task_id = await caller.start(tool, arguments, **more)
            assert await caller.start(tool, arguments, **more) == task_id
            await caller.result(task_id)
            assert await caller.start(tool, dict(reversed(arguments.items())), **more) == task_id
        assert len(await ids_of(server)) == 4


async def test_calls_without_a_key_are_separate_tasks() -> None:
    async with make().open() as caller:
        for tool, arguments in (("charge", {}), ("book", {"room": "any", "day": "monday"}), ("say", {"text": "x"})):
            assert await caller.start(tool, arguments) != await caller.start(tool, arguments)
        assert await caller.start("charge", {"order_id": 1}) != await caller.start("charge", {"order_id": 2})


async def test_two_tools_may_make_their_keys_of_the_same_argument() -> None:
    async with make().open() as caller:
        charged = await caller.start("charge", {"order_id": "a-1"})
        shipped = await caller.start("ship", {"order_id": "a-1"})
        assert (await caller.result(shipped))["content"][0]["text"] == "shipped a-1"
        # Nor is a key of a caller's own the same as one that a tool makes, however it is spelt.
        assert await caller.start("say", **named("order_id=a-1")) not in (charged, shipped)


async def test_the_same_key_of_another_owner_is_another_task() -> None:
    async with make().open_http() as anybody:
        alice, mallory = bearing(anybody, "alice"), bearing(anybody, "mallory")
        hers = await alice.start("charge", {"order_id": "a-1"})
        assert await mallory.start("charge", {"order_id": "a-1", "amount": 1}) != hers
        hers = await alice.start("say", {"text": "private"}, **named("k"))
        # Another owner's key causes no conflict, which would reveal that it is in use.
        assert await mallory.start("say", {"text": "other"}, **named("k")) != hers


async def test_a_key_that_was_used_with_other_arguments_is_refused() -> None:
    server = make()
    async with server.open() as caller:
        task_id = await caller.start("charge", {"order_id": "a-1", "amount": 1})
        refused = await refusal(caller, "charge", {"order_id": "a-1", "amount": 2})
        assert refused.code == -32602
        assert "use a new key for a new request" in refused.message
        await caller.start("say", **named("k"))
        assert (await refusal(caller, "ask", **named("k"))).code == -32602
        assert len(await ids_of(server)) == 2
        assert (await caller.get(task_id))["status"] in ("working", "completed")


@pytest.mark.parametrize("key", [5, True, None, ["k"], {"k": 1}, "", "x" * 600, "a\0b"])
async def test_an_invalid_key_is_refused(key: object) -> None:
    server = make()
    async with server.open() as caller:
        refused = await refusal(caller, "say", **named(key))
        assert refused.code == -32602
        assert "idempotency" in refused.message
        assert await ids_of(server) == []


async def test_a_key_function_that_returns_no_string_is_refused() -> None:
    async with make().open() as caller:
        refused = await refusal(caller, "book", {"room": "wrong", "day": "monday"})
        assert refused.code == -32602
        assert "is a text, not int" in refused.message


async def test_of_calls_that_race_with_one_key_all_get_one_task(store: str | Path) -> None:
    async with make(store).open_http() as anybody:
        alice = bearing(anybody, "alice")
        ids = await asyncio.gather(*(alice.start("charge", {"order_id": "a-1"}) for _ in range(8)))
        assert len(set(ids)) == 1
        assert (await alice.result(ids[0]))["content"][0]["text"] == "a-1: 1"


async def test_an_anonymous_caller_can_call_a_tool_that_makes_keys_and_gets_no_task_of_another() -> None:
    async with make().open_http() as anybody:
        first = await anybody.start("charge", {"order_id": "a-1"})
        assert await anybody.start("charge", {"order_id": "a-1"}) != first
        # The caller can omit its own key, so that key is an error.
        refused = await refusal(anybody, "say", **named("k"))
        assert (refused.code, "anonymous" in refused.message) == (-32602, True)
