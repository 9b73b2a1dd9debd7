"""What callers of 2025-11-25 are told of their tasks unasked: each change of status, with all there is to say."""

# pyright: reportUnusedFunction=false

from typing import Any

import pytest

from raincheck import ToolError
from tests.support.server.caller_v2025 import RELATED, G1Caller, calling, connected
from tests.support.server.example import Shop
from tests.support.server.tools import YES, add_gated, add_greeting, text_of
from tests.support.server.transports_v2025 import g1_http, g1_serving
from tests.support.server.v2025.tools import ALICE, BOB, ON_ALL_G1_WIRES, ON_G1_WIRES, add_metered, add_saying, ended

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

STATUS = "notifications/tasks/status"


def streams_of(caller: G1Caller, method: str = STATUS) -> list[object]:
    """On which streams such notifications came."""
    return [one.stream for one in caller.came if one.message.get("method") == method]


@pytest.mark.requirement("g1-status-no-related-task", "g1-transitions")
@ON_G1_WIRES
async def test_each_change_of_status_is_told_with_what_a_poll_would_say(way: str) -> None:
    shop = Shop()
    add_greeting(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start("greet")
        asking = await caller.until(task_id, "input_required")
        assert asking == await caller.get(task_id)
        # Nobody knows how long an answer takes. That is said, and not left out.
        assert "ttl" in asking
        assert asking["ttl"] is None
        assert "_meta" not in asking
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.asked(), YES)
        await waiting.result()
        done = await caller.until(task_id, "completed")
        assert done == await caller.get(task_id)
        assert caller.statuses(task_id) == ["input_required", "working", "completed"]


async def test_what_changes_besides_the_status_is_not_told_as_one() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("metered")
        for done in range(3):
            await meter.show(done, 3, f"step {done}")
            await caller.ping()
        assert caller.pushed(STATUS) == []
        meter.finish()
        await caller.result(task_id)
        assert caller.statuses(task_id) == ["completed"]


@pytest.mark.requirement("g1-tool-error-fails", "g1-failed-says-why")
async def test_a_tools_own_error_is_told_as_a_failure_in_its_own_words() -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def refuse() -> str:
        raise ToolError("no paper left")

    async with calling(shop) as caller:
        told = await caller.until(await caller.start("refuse"), "failed")
        assert told["statusMessage"] == "no paper left"


async def test_nothing_is_told_after_the_end() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("say")
        await caller.until(task_id, "completed")
        for _ in range(3):
            await caller.result(task_id)
            await caller.get(task_id)
            await caller.ping()
        assert caller.statuses(task_id) == ["completed"]


async def test_who_comes_when_a_task_has_ended_is_told_nothing_but_the_result() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller, calling(shop) as other:
        task_id = await caller.start("say")
        await ended(shop, task_id)
        await other.result(task_id)
        await other.ping()
        assert other.pushed(STATUS) == []


@ON_ALL_G1_WIRES
async def test_the_end_is_told_before_the_result_is_given_wherever_there_is_a_way(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        gate.open.set()
        await waiting.result()
        stream = {"memory": None, "http-json": None}.get(way, waiting.id)
        if way == "http-stateless-json":
            assert streams_of(caller) == [], "there is none"
            return
        await caller.until(task_id, "completed")
        assert streams_of(caller) == [stream]
        if way != "http-json":
            # There, they come on two streams, and which of them is first is up to the network.
            methods = [one.message.get("method", one.message.get("id")) for one in caller.came]
            assert methods.index(STATUS) < methods.index(waiting.id)


async def test_over_http_what_nobody_waits_for_is_told_on_the_sessions_own_stream() -> None:
    shop = Shop()
    gate = add_gated(shop)
    add_greeting(shop)
    async with calling(shop, "http") as caller:
        asks, works = await caller.start("greet"), await caller.start("gated")
        await caller.until(asks, "input_required")
        waiting = await caller.wait(asks)
        # What is told of the other one does not go to whoever waits for this one.
        gate.open.set()
        await caller.until(works, "completed")
        await caller.reply(await caller.asked(), YES)
        await waiting.result()
        await caller.until(asks, "completed")
        by_stream = {
            (one.message["params"]["taskId"], one.message["params"]["status"]): one.stream
            for one in caller.came
            if one.message.get("method") == STATUS
        }
        assert by_stream == {
            (asks, "input_required"): None,
            (works, "completed"): None,
            (asks, "working"): waiting.id,
            (asks, "completed"): waiting.id,
        }


async def test_over_http_it_is_told_on_the_sessions_own_stream_again_when_nobody_waits_any_more() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, "http") as caller:
        task_id = await caller.start("gated")
        first, second = await caller.wait(task_id), await caller.wait(task_id)
        for call in (second, first):
            await caller.give_up(call)
            assert (await call.came)["error"]["code"] == -32800, "so the SDK ends a stream"
        gate.open.set()
        await caller.until(task_id, "completed")
        assert streams_of(caller) == [None]


async def test_over_http_without_its_own_stream_a_session_is_told_where_somebody_waits_and_misses_the_rest() -> None:
    shop = Shop()
    add_saying(shop)
    gate = add_gated(shop)
    async with g1_serving(shop.mcp) as serving, g1_http(serving) as wire, connected(wire) as caller:
        unheard = await caller.start("say")
        await ended(shop, unheard, "http")
        task_id = await caller.start("gated")
        waiting = await caller.wait(task_id)
        gate.open.set()
        await waiting.result()
        assert caller.statuses(unheard) == []
        assert caller.statuses(task_id) == ["completed"]


@ON_G1_WIRES
async def test_a_task_is_told_of_where_it_was_made_and_where_it_is_waited_for_and_nowhere_else(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, way) as maker, calling(shop, way) as waiter, calling(shop, way) as other:
        task_id = await maker.start("gated")
        await gate.begun.wait()
        await other.get(task_id)
        waiting = await waiter.wait(task_id)
        gate.open.set()
        await maker.until(task_id, "completed")
        await waiting.result()
        await waiter.until(task_id, "completed")
        await other.ping()
        assert [one.statuses(task_id) for one in (maker, waiter, other)] == [["completed"], ["completed"], []]


async def test_nobody_is_told_of_the_tasks_of_others() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with (
        g1_serving(shop.mcp) as serving,
        g1_http(serving, **ALICE) as hers,
        g1_http(serving, **BOB) as his,
        connected(hers) as alice,
        connected(his) as bob,
    ):
        await hers.listen()
        await his.listen()
        ids = {"alice": await alice.start("gated"), "bob": await bob.start("gated")}
        gate.open.set()
        await alice.until(ids["alice"], "completed")
        await bob.until(ids["bob"], "completed")
        assert {one["taskId"] for one in alice.pushed(STATUS)} == {ids["alice"]}
        assert {one["taskId"] for one in bob.pushed(STATUS)} == {ids["bob"]}


async def test_a_call_that_is_made_again_on_another_connection_is_told_of_there_too() -> None:
    shop = Shop()
    gate = add_gated(shop)
    key: dict[str, Any] = {"meta": {"raincheck/idempotency-key": "mine"}}
    async with calling(shop) as caller, calling(shop) as other:
        task_id = await caller.start("gated", **key)
        assert await other.start("gated", **key) == task_id
        gate.open.set()
        await caller.until(task_id, "completed")
        await other.until(task_id, "completed")


async def test_a_connection_is_told_of_so_many_tasks_at_once_and_polls_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raincheck.server.v2025.notifications.MAX_TASKS_PER_CONNECTION", 2)
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as caller:
        ids = [await caller.start("gated") for _ in range(3)]
        waiting = [await caller.wait(task_id) for task_id in ids]
        gate.open.set()
        assert [text_of(await call.result()) for call in waiting] == ["through"] * 3
        assert [caller.statuses(task_id) for task_id in ids] == [["completed"], ["completed"], []]
        # Those that ended have made room.
        again = await caller.start("gated")
        await caller.until(again, "completed")


async def test_plain_calls_are_told_of_nothing() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        await caller.call("say")
        await caller.ping()
        assert caller.pushed(STATUS) == []
        assert RELATED not in str(caller.came)
