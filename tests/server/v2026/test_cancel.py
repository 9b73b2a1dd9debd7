"""`tasks/cancel` stops what it names, and nothing else does."""

# pyright: reportUnusedFunction=false

import asyncio

import pytest

from raincheck import Settings, TaskContext
from raincheck.core.lifecycle import Phase
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import (
    ON_BOTH_WIRES,
    YES,
    add_gated,
    add_greeting,
    but_for_meta,
    owner_over,
    text_of,
    without_tasks,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

ONE_AT_A_TIME = Settings(
    concurrency=1, lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=QUICK.poll_interval
)


async def leave(call: "asyncio.Task[object]") -> None:
    """Give up a request: a caller on HTTP hangs up, one on a stream says so."""
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()


@ON_BOTH_WIRES
@pytest.mark.requirement("cancel-ack-empty", "cancel-result-type", "get-cancelled")
async def test_a_running_task_is_cancelled_and_its_body_stops(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open_by(way) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        assert but_for_meta(await caller.cancel(task_id)) == {"resultType": "complete"}
        assert (await caller.until(task_id))["status"] == "cancelled"
        await gate.stopped.wait()
        gate.open.set()
        assert (await caller.get(task_id))["status"] == "cancelled"


@ON_BOTH_WIRES
async def test_a_task_that_waits_for_an_answer_is_cancelled_and_asks_no_more(way: str) -> None:
    shop = Shop()
    heard = add_greeting(shop)
    async with shop.open_by(way) as caller:
        task_id = await caller.start("greet")
        task = await caller.until(task_id, "input_required")
        assert task["status"] == "input_required"
        await caller.cancel(task_id)
        cancelled = await caller.until(task_id)
        assert cancelled["status"] == "cancelled"
        assert "inputRequests" not in cancelled
        await caller.update(task_id, {"elicit-0": YES})
        assert await caller.get(task_id) == cancelled
        assert heard == []


async def test_a_parked_task_is_cancelled_and_never_goes_on() -> None:
    shop = Shop()
    goes_on: list[int] = []

    @shop.tasks.tool()
    async def sleepy(task: TaskContext) -> None:
        goes_on.append(task.attempt)
        await task.sleep(3_600)

    async with shop.open() as caller:
        task_id = await caller.start("sleepy")
        await shop.tasks.engine.wait(task_id, until=lambda task: task.phase is Phase.PARKED)
        await caller.cancel(task_id)
        assert (await caller.get(task_id))["status"] == "cancelled"
        assert goes_on == [1]


async def test_a_queued_task_is_cancelled_before_it_begins() -> None:
    shop = Shop(settings=ONE_AT_A_TIME)
    gate = add_gated(shop)
    async with shop.open() as caller:
        first = await caller.start("gated")
        await gate.begun.wait()
        second = await caller.start("gated")
        await caller.cancel(second)
        assert (await caller.get(second))["status"] == "cancelled"
        gate.open.set()
        await caller.result(first)
        third = await caller.start("gated")
        await caller.result(third)
        assert gate.task_ids == [first, third]


@ON_BOTH_WIRES
@pytest.mark.requirement("cancel-ended-acks", "cancel-ack-empty", "cancel-result-type")
async def test_a_task_that_has_ended_stays_as_it_is_and_its_cancellation_is_acknowledged(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open_by(way) as caller:
        cancelled = await caller.start("gated")
        await gate.begun.wait()
        await caller.cancel(cancelled)
        await caller.until(cancelled)
        gate.open.set()
        completed = await caller.start("gated")
        await caller.result(completed)
        for task_id in (completed, cancelled):
            ended = await caller.get(task_id)
            for _ in range(2):
                assert but_for_meta(await caller.cancel(task_id)) == {"resultType": "complete"}
            assert await caller.get(task_id) == ended


async def test_of_many_cancellations_at_once_all_are_acknowledged() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        await asyncio.gather(*(caller.cancel(task_id) for _ in range(10)))
        assert (await caller.get(task_id))["status"] == "cancelled"


@pytest.mark.requirement("cancel-not-by-notification")
async def test_a_notice_that_the_call_is_cancelled_does_not_cancel_the_task_that_it_made() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open() as caller:
        message = caller.message("tools/call", {"name": "gated", "arguments": {}})
        (answer,) = [one async for one in caller.wire.exchange(message, {})]
        task_id = answer["result"]["taskId"]
        await gate.begun.wait()
        for request_id in (message["id"], task_id):
            await notify_cancelled(caller, request_id)
        # Whatever comes next is served after that notice.
        assert (await caller.get(task_id))["status"] == "working"
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert not gate.stopped.is_set()


async def notify_cancelled(caller: Caller, request_id: object) -> None:
    await caller.wire.send(  # type: ignore[attr-defined] # streams have it
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    )


@ON_BOTH_WIRES
async def test_a_caller_that_leaves_within_the_window_has_no_task_and_its_work_is_stopped(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop, inline_for=30)
    async with shop.open_by(way) as caller:
        call = asyncio.create_task(caller.call("gated"))
        await gate.begun.wait()
        await leave(call)
        ended = await shop.tasks.engine.wait(gate.task_ids[0], owner=owner_over(way))
        assert ended.task.phase is Phase.CANCELLED
        await gate.stopped.wait()


@ON_BOTH_WIRES
async def test_the_work_for_a_caller_that_leaves_and_has_no_way_back_is_stopped(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open_by(way) as caller:
        call = asyncio.create_task(without_tasks(caller).call("gated"))
        await gate.begun.wait()
        await leave(call)
        ended = await shop.tasks.engine.wait(gate.task_ids[0], owner=owner_over(way))
        assert ended.task.phase is Phase.CANCELLED
        await gate.stopped.wait()


def the_same(_arguments: object) -> str:
    return "the same"


async def test_the_work_for_a_caller_that_leaves_and_can_find_it_again_by_a_key_goes_on() -> None:
    shop = Shop()
    gate = add_gated(shop, idempotency=the_same)
    async with shop.open() as caller:
        plain = without_tasks(caller)
        call = asyncio.create_task(plain.call("gated"))
        await gate.begun.wait()
        await leave(call)
        again = asyncio.create_task(plain.call("gated"))
        await caller.request("tools/list")
        gate.open.set()
        await again
        assert not gate.stopped.is_set()
        assert len(gate.task_ids) == 1


@ON_BOTH_WIRES
@pytest.mark.parametrize("capabilities", [None, {}])
async def test_the_hidden_task_of_a_caller_that_leaves_is_cancelled(
    way: str, capabilities: dict[str, object] | None
) -> None:
    shop = Shop()
    gate = add_gated(shop, mode="forbidden")
    async with shop.open_by(way, capabilities=capabilities) as caller:
        call = asyncio.create_task(caller.call("gated"))
        await gate.begun.wait()
        await leave(call)
        await gate.stopped.wait()
        ended = await shop.tasks.engine.wait(gate.task_ids[0], owner=owner_over(way))
        assert ended.task.phase is Phase.CANCELLED
        assert ended.task.status_message == "its caller left"


async def test_a_caller_that_stops_listening_does_not_cancel_the_task() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id) as pushed:
            await anext(pushed)
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"
        assert not gate.stopped.is_set()


async def test_a_plain_caller_whose_task_is_cancelled_is_told_so() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open() as caller:
        call = asyncio.create_task(without_tasks(caller).call("gated"))
        await gate.begun.wait()
        await shop.tasks.engine.cancel(gate.task_ids[0], reason="closing time")
        with pytest.raises(Refused, match="-32000: closing time"):
            await call
