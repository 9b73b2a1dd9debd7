"""Status notifications of 2025-11-25: each status change is pushed with all fields of the task."""

# pyright: reportUnusedFunction=false

from typing import Any

import pytest

from raincheck import ToolError
from tests.support.server.caller_v2025 import RELATED, V2025Caller, connected, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_gated, add_greeting, text_of
from tests.support.server.transports_v2025 import v2025_http, v2025_serving
from tests.support.server.v2025.tools import (
    ALICE,
    BOB,
    ON_ALL_V2025_TRANSPORTS,
    ON_V2025_TRANSPORTS,
    add_echo,
    add_metered,
    ended,
)

pytestmark = pytest.mark.anyio

STATUS = "notifications/tasks/status"


def streams_of(caller: V2025Caller, method: str = STATUS) -> list[object]:
    """The streams on which such notifications arrived."""
    return [one.stream for one in caller.received if one.message.get("method") == method]


@pytest.mark.requirement("v2025-status-no-related-task", "v2025-transitions")
@ON_V2025_TRANSPORTS
async def test_each_status_change_is_pushed_with_the_fields_of_a_poll(way: str) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("greet")
        asking = await caller.until(task_id, "input_required")
        assert asking == await caller.get(task_id)
        # The duration of an answer is unknown, so ttl is null and not absent.
        assert "ttl" in asking
        assert asking["ttl"] is None
        assert "_meta" not in asking
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.asked(), YES)
        await waiting.result()
        done = await caller.until(task_id, "completed")
        assert done == await caller.get(task_id)
        assert caller.statuses(task_id) == ["input_required", "working", "completed"]


async def test_changes_other_than_the_status_are_not_pushed() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("metered")
        for done in range(3):
            await meter.show(done, 3, f"step {done}")
            await caller.ping()
        assert caller.pushed(STATUS) == []
        meter.finish()
        await caller.result(task_id)
        assert caller.statuses(task_id) == ["completed"]


@pytest.mark.requirement("v2025-tool-error-fails", "v2025-failed-says-why")
async def test_a_tool_error_is_pushed_as_a_failure_with_its_own_text() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def refuse() -> str:
        raise ToolError("no paper left")

    async with v2025_caller(server) as caller:
        task = await caller.until(await caller.start("refuse"), "failed")
        assert task["statusMessage"] == "no paper left"


async def test_nothing_is_pushed_after_the_end() -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say")
        await caller.until(task_id, "completed")
        for _ in range(3):
            await caller.result(task_id)
            await caller.get(task_id)
            await caller.ping()
        assert caller.statuses(task_id) == ["completed"]


async def test_a_caller_that_waits_for_an_ended_task_gets_only_the_result() -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller, v2025_caller(server) as other:
        task_id = await caller.start("say")
        await ended(server, task_id)
        await other.result(task_id)
        await other.ping()
        assert other.pushed(STATUS) == []


@ON_ALL_V2025_TRANSPORTS
async def test_the_end_is_pushed_before_the_result_is_returned(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
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
            # Here they arrive on two streams, and the network decides which is first.
            methods = [one.message.get("method", one.message.get("id")) for one in caller.received]
            assert methods.index(STATUS) < methods.index(waiting.id)


async def test_over_http_the_status_of_a_task_without_waiting_requests_is_pushed_on_the_sessions_stream() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    add_greeting(server)
    async with v2025_caller(server, "http") as caller:
        asks, works = await caller.start("greet"), await caller.start("gated")
        await caller.until(asks, "input_required")
        waiting = await caller.wait(asks)
        # Notifications about the other task are not sent to the caller that waits for this one.
        gate.open.set()
        await caller.until(works, "completed")
        await caller.reply(await caller.asked(), YES)
        await waiting.result()
        await caller.until(asks, "completed")
        by_stream = {
            (one.message["params"]["taskId"], one.message["params"]["status"]): one.stream
            for one in caller.received
            if one.message.get("method") == STATUS
        }
        assert by_stream == {
            (asks, "input_required"): None,
            (works, "completed"): None,
            (asks, "working"): waiting.id,
            (asks, "completed"): waiting.id,
        }


async def test_over_http_the_status_is_pushed_on_the_sessions_stream_again_after_the_last_wait() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server, "http") as caller:
        task_id = await caller.start("gated")
        first, second = await caller.wait(task_id), await caller.wait(task_id)
        for call in (second, first):
            await caller.give_up(call)
            assert (await call.received)["error"]["code"] == -32800, "so the SDK ends a stream"
        gate.open.set()
        await caller.until(task_id, "completed")
        assert streams_of(caller) == [None]


async def test_over_http_without_its_own_stream_a_session_gets_the_status_only_on_waiting_requests() -> None:
    server = ExampleServer()
    add_echo(server)
    gate = add_gated(server)
    async with v2025_serving(server.mcp) as serving, v2025_http(serving) as transport, connected(transport) as caller:
        unheard = await caller.start("say")
        await ended(server, unheard, "http")
        task_id = await caller.start("gated")
        waiting = await caller.wait(task_id)
        gate.open.set()
        await waiting.result()
        assert caller.statuses(unheard) == []
        assert caller.statuses(task_id) == ["completed"]


@ON_V2025_TRANSPORTS
async def test_a_task_is_pushed_where_it_was_created_and_where_it_is_waited_for_and_nowhere_else(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with (
        v2025_caller(server, way) as maker,
        v2025_caller(server, way) as waiter,
        v2025_caller(server, way) as other,
    ):
        task_id = await maker.start("gated")
        await gate.started.wait()
        await other.get(task_id)
        waiting = await waiter.wait(task_id)
        gate.open.set()
        await maker.until(task_id, "completed")
        await waiting.result()
        await waiter.until(task_id, "completed")
        await other.ping()
        assert [one.statuses(task_id) for one in (maker, waiter, other)] == [["completed"], ["completed"], []]


async def test_tasks_of_other_owners_are_not_pushed() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with (
        v2025_serving(server.mcp) as serving,
        v2025_http(serving, **ALICE) as hers,
        v2025_http(serving, **BOB) as his,
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


async def test_a_call_that_is_repeated_on_another_connection_is_pushed_there_too() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    key: dict[str, Any] = {"meta": {"raincheck/idempotency-key": "mine"}}
    async with v2025_caller(server) as caller, v2025_caller(server) as other:
        task_id = await caller.start("gated", **key)
        assert await other.start("gated", **key) == task_id
        gate.open.set()
        await caller.until(task_id, "completed")
        await other.until(task_id, "completed")


async def test_the_number_of_tasks_pushed_to_one_connection_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raincheck.server.v2025.notifications.MAX_TASKS_PER_CONNECTION", 2)
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        ids = [await caller.start("gated") for _ in range(3)]
        waiting = [await caller.wait(task_id) for task_id in ids]
        gate.open.set()
        assert [text_of(await call.result()) for call in waiting] == ["through"] * 3
        assert [caller.statuses(task_id) for task_id in ids] == [["completed"], ["completed"], []]
        # Ended tasks have freed their slots.
        again = await caller.start("gated")
        await caller.until(again, "completed")


async def test_calls_without_a_task_push_no_status() -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        await caller.call("say")
        await caller.ping()
        assert caller.pushed(STATUS) == []
        assert RELATED not in str(caller.received)
