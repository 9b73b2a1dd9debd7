"""`tasks/cancel` stops the task that it names. Nothing else stops a visible task."""

# pyright: reportUnusedFunction=false

import asyncio

import pytest

from raincheck import Settings, TaskContext
from raincheck.core.lifecycle import Phase
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import (
    ON_BOTH_TRANSPORTS,
    YES,
    add_gated,
    add_greeting,
    owner_for,
    text_of,
    without_meta,
    without_tasks,
)

pytestmark = pytest.mark.anyio

ONE_AT_A_TIME = Settings(
    concurrency=1, lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=QUICK.poll_interval
)


async def leave(call: "asyncio.Task[object]") -> None:
    """Give up a request: over HTTP the connection closes, on a stream a notification is sent."""
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("cancel-ack-empty", "cancel-result-type", "get-cancelled")
async def test_a_running_task_is_cancelled_and_its_body_stops(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        assert without_meta(await caller.cancel(task_id)) == {"resultType": "complete"}
        assert (await caller.until(task_id))["status"] == "cancelled"
        await gate.stopped.wait()
        gate.open.set()
        assert (await caller.get(task_id))["status"] == "cancelled"


@ON_BOTH_TRANSPORTS
async def test_a_task_that_waits_for_an_answer_is_cancelled_and_asks_no_more(way: str) -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("greet")
        task = await caller.until(task_id, "input_required")
        assert task["status"] == "input_required"
        await caller.cancel(task_id)
        cancelled = await caller.until(task_id)
        assert cancelled["status"] == "cancelled"
        assert "inputRequests" not in cancelled
        await caller.update(task_id, {"elicit-0": YES})
        assert await caller.get(task_id) == cancelled
        assert received == []


async def test_a_parked_task_is_cancelled_and_never_resumes() -> None:
    server = ExampleServer()
    goes_on: list[int] = []

    @server.tasks.tool()
    async def sleepy(task: TaskContext) -> None:
        goes_on.append(task.attempt)
        await task.sleep(3_600)

    async with server.open() as caller:
        task_id = await caller.start("sleepy")
        await server.tasks.engine.wait(task_id, until=lambda task: task.phase is Phase.PARKED)
        await caller.cancel(task_id)
        assert (await caller.get(task_id))["status"] == "cancelled"
        assert goes_on == [1]


async def test_a_queued_task_is_cancelled_before_it_starts() -> None:
    server = ExampleServer(settings=ONE_AT_A_TIME)
    gate = add_gated(server)
    async with server.open() as caller:
        first = await caller.start("gated")
        await gate.started.wait()
        second = await caller.start("gated")
        await caller.cancel(second)
        assert (await caller.get(second))["status"] == "cancelled"
        gate.open.set()
        await caller.result(first)
        third = await caller.start("gated")
        await caller.result(third)
        assert gate.task_ids == [first, third]


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("cancel-ended-acks", "cancel-ack-empty", "cancel-result-type")
async def test_the_cancel_of_an_ended_task_is_acknowledged_without_effect(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open_by(way) as caller:
        cancelled = await caller.start("gated")
        await gate.started.wait()
        await caller.cancel(cancelled)
        await caller.until(cancelled)
        gate.open.set()
        completed = await caller.start("gated")
        await caller.result(completed)
        for task_id in (completed, cancelled):
            ended = await caller.get(task_id)
            for _ in range(2):
                assert without_meta(await caller.cancel(task_id)) == {"resultType": "complete"}
            assert await caller.get(task_id) == ended


async def test_concurrent_cancels_are_all_acknowledged() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        await asyncio.gather(*(caller.cancel(task_id) for _ in range(10)))
        assert (await caller.get(task_id))["status"] == "cancelled"


@pytest.mark.requirement("cancel-not-by-notification")
async def test_a_cancelled_notification_for_a_call_does_not_cancel_its_task() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        message = caller.message("tools/call", {"name": "gated", "arguments": {}})
        (answer,) = [one async for one in caller.transport.exchange(message, {})]
        task_id = answer["result"]["taskId"]
        await gate.started.wait()
        for request_id in (message["id"], task_id):
            await notify_cancelled(caller, request_id)
        # Whatever comes next is served after that notice.
        assert (await caller.get(task_id))["status"] == "working"
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert not gate.stopped.is_set()


async def notify_cancelled(caller: Caller, request_id: object) -> None:
    await caller.transport.send(  # type: ignore[attr-defined] # streams have it
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    )


@ON_BOTH_TRANSPORTS
async def test_a_caller_that_disconnects_within_the_inline_window_stops_its_work(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server, inline_for=30)
    async with server.open_by(way) as caller:
        call = asyncio.create_task(caller.call("gated"))
        await gate.started.wait()
        await leave(call)
        ended = await server.tasks.engine.wait(gate.task_ids[0], owner=owner_for(way))
        assert ended.task.phase is Phase.CANCELLED
        await gate.stopped.wait()


@ON_BOTH_TRANSPORTS
async def test_the_work_of_a_caller_that_disconnects_and_can_not_come_back_is_stopped(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open_by(way) as caller:
        call = asyncio.create_task(without_tasks(caller).call("gated"))
        await gate.started.wait()
        await leave(call)
        ended = await server.tasks.engine.wait(gate.task_ids[0], owner=owner_for(way))
        assert ended.task.phase is Phase.CANCELLED
        await gate.stopped.wait()


def the_same(_arguments: object) -> str:
    return "the same"


async def test_the_work_of_a_caller_that_disconnects_but_has_a_key_continues() -> None:
    server = ExampleServer()
    gate = add_gated(server, idempotency=the_same)
    async with server.open() as caller:
        fallback_caller = without_tasks(caller)
        call = asyncio.create_task(fallback_caller.call("gated"))
        await gate.started.wait()
        await leave(call)
        again = asyncio.create_task(fallback_caller.call("gated"))
        await caller.request("tools/list")
        gate.open.set()
        await again
        assert not gate.stopped.is_set()
        assert len(gate.task_ids) == 1


@ON_BOTH_TRANSPORTS
@pytest.mark.parametrize("capabilities", [None, {}])
async def test_the_hidden_task_of_a_caller_that_disconnects_is_cancelled(
    way: str, capabilities: dict[str, object] | None
) -> None:
    server = ExampleServer()
    gate = add_gated(server, mode="forbidden")
    async with server.open_by(way, capabilities=capabilities) as caller:
        call = asyncio.create_task(caller.call("gated"))
        await gate.started.wait()
        await leave(call)
        await gate.stopped.wait()
        ended = await server.tasks.engine.wait(gate.task_ids[0], owner=owner_for(way))
        assert ended.task.phase is Phase.CANCELLED
        assert ended.task.status_message == "its caller disconnected"


async def test_a_caller_that_stops_listening_does_not_cancel_the_task() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id) as pushed:
            await anext(pushed)
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert not gate.stopped.is_set()


async def test_a_caller_without_tasks_gets_an_error_when_its_task_is_cancelled() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        call = asyncio.create_task(without_tasks(caller).call("gated"))
        await gate.started.wait()
        await server.tasks.engine.cancel(gate.task_ids[0], reason="closing time")
        with pytest.raises(Refused, match="-32000: closing time"):
            await call
