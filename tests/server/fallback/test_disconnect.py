"""Who leaves before it has a way back to its task takes the task with it; who leaves later does not. And progress."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raincheck import RetryPolicy, TaskContext
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from tests.support.server.caller_v2025 import G1Caller
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    MODERN,
    ON_PLAIN_WIRES,
    Model,
    handle_of,
    hosted,
    next_call,
    opened,
    told,
)
from tests.support.server.tools import Gate, Name, add_gated, owner_over
from tests.support.server.transports import Message, StreamWire
from tests.support.server.v2025.tools import add_metered, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

PROGRESS = "notifications/progress"
WAIT = 45.0


def legacy(model: Model) -> G1Caller:
    assert isinstance(model.caller, G1Caller)
    return model.caller


async def send(model: Model, tool: str, arguments: dict[str, Any]) -> None:
    """Call a tool, and never mind the answer."""
    params = {"name": tool, "arguments": arguments}
    if isinstance(model.caller, G1Caller):
        await model.caller.begin("tools/call", params)
    else:
        assert isinstance(model.caller.wire, StreamWire)
        await model.caller.wire.send(model.caller.message("tools/call", params))


async def the_end(shop: Shop, gate: Gate, way: str) -> Task:
    owner = owner_over("open" if way == "memory" else way)
    return (await shop.tasks.engine.wait(gate.task_ids[0], owner=owner)).task


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_who_takes_its_call_back_stops_the_work(version: str, way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with hosted(shop, version, way) as model:
        if version == MODERN:
            calling = model.begin("gated")
            await gate.begun.wait()
            calling.cancel()
        else:
            call = await legacy(model).begin("tools/call", {"name": "gated", "arguments": {}})
            await gate.begun.wait()
            await legacy(model).give_up(call)
        await gate.stopped.wait()
        task = await the_end(shop, gate, way)
        assert (task.phase, task.status_message) == (Phase.CANCELLED, "its caller left")


@BY_VERSIONS
async def test_a_connection_that_is_closed_during_a_call_stops_the_work(version: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with opened(shop) as place, place.host():
        async with place.host(version) as model:
            await send(model, "gated", {})
            await gate.begun.wait()
        await gate.stopped.wait()
        assert (await the_end(shop, gate, "memory")).phase is Phase.CANCELLED


async def end_the_session(model: Model, _: int) -> None:
    await legacy(model).http.end()


async def break_the_stream(model: Model, call_id: int) -> None:
    await legacy(model).http.drop(call_id)


@pytest.mark.parametrize("leave", [end_the_session, break_the_stream])
async def test_over_http_before_2026_who_leaves_its_session_or_its_stream_stops_the_work_too(
    leave: Callable[[Model, int], Awaitable[None]],
) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop)
    async with opened(shop, "http") as place, place.host(clock=clock) as stays, place.host(clock=clock) as leaves:
        call = await legacy(leaves).begin("tools/call", {"name": "gated", "arguments": {}})
        await gate.begun.wait()
        await clock.asleep(WAIT)
        await leave(leaves, call.id)
        for _ in range(100):
            # Nobody tells the server of a broken stream, so it may have to look.
            clock.advance(0.1)
            await legacy(stays).ping()
        assert gate.stopped.is_set()


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_who_leaves_while_it_waits_with_task_wait_stops_nothing(version: str, way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop)
    async with hosted(shop, version, way, clock=clock) as model:
        handle = await model.window(model.begin("gated"))
        if version == MODERN:
            waiting = model.begin(*next_call(handle))
            await clock.asleep(WAIT)
            waiting.cancel()
        else:
            tool, arguments = next_call(handle)
            call = await legacy(model).begin("tools/call", {"name": tool, "arguments": arguments})
            await clock.asleep(WAIT)
            await legacy(model).give_up(call)
        status = await model.call("task_status", {"task_id": handle_of(handle)})
        assert status["structuredContent"]["status"] == "working"
        assert not gate.stopped.is_set()
        gate.open.set()
        assert told(await model.go_on(handle)) == "through"


@BY_VERSIONS
async def test_a_connection_that_is_closed_while_its_caller_waits_stops_nothing_and_another_gets_the_result(
    version: str,
) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop)
    async with opened(shop) as place, place.host(clock=clock) as stays:
        async with place.host(version, clock=clock) as leaves:
            handle = await leaves.window(leaves.begin("gated"))
            await send(leaves, *next_call(handle))
            await clock.asleep(WAIT)
        gate.open.set()
        assert told(await stays.go_on(handle)) == "through"
    assert not gate.stopped.is_set()


async def test_who_leaves_while_it_waits_after_its_answer_stops_nothing() -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = Gate()

    @shop.tasks.tool
    async def ask_first(task: TaskContext) -> str:
        await task.elicit("Who are you?", Name)
        await gate.pass_through(task)
        return "through"

    async with hosted(shop, clock=clock) as model:
        calling = model.begin("ask_first")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        tool, arguments = next_call(asked)
        params = {"name": tool, "arguments": {**arguments, "answer": {"name": "Ada"}}}
        call = await legacy(model).begin("tools/call", params)
        await gate.begun.wait()
        await legacy(model).give_up(call)
        await legacy(model).ping()
        gate.open.set()
        assert told(await model.call("task_wait", {"task_id": handle_of(asked)})) == "through"


async def be_told(model: Model) -> None:
    """Let the server tell what it has to."""
    if isinstance(model.caller, G1Caller):
        await model.caller.ping()
    else:
        # Another one, since on some wires progress is for everybody.
        await Caller(model.caller.wire, capabilities={}).call("task_status", {"task_id": "unknown"})


async def progress_of(model: Model, call: "asyncio.Task[Message]") -> list[Message]:
    """What was told of progress by the time that a call is answered."""
    await call
    if isinstance(model.caller, Caller):
        return [one["params"] for one in model.caller.notifications if one["method"] == PROGRESS]
    return model.caller.pushed(PROGRESS)


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_progress_is_told_under_the_token_of_each_call_and_only_goes_up(version: str, way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    meter = add_metered(shop)
    async with hosted(shop, version, way, clock=clock) as model:
        calling = model.begin("metered", meta={"progressToken": "first"})
        await clock.asleep(WAIT)
        for done in (1, 5, 3, 5):
            await meter.show(done, 10, "measuring")
            await be_told(model)
        handle = await model.window(calling)
        first = await progress_of(model, calling)
        assert [one["progress"] for one in first] == sorted({one["progress"] for one in first})
        assert first[-1] == {"progressToken": "first", "progress": 5, "total": 10, "message": "measuring"}
        # Nobody waits: what is reported now is told to nobody.
        await meter.show(6, 10)
        tool, arguments = next_call(handle)
        waiting = model.begin(tool, arguments, meta={"progressToken": "second"})
        await clock.asleep(WAIT)
        await meter.show(7, 10)
        await be_told(model)
        meter.finish()
        everything = await progress_of(model, waiting)
        assert told(waiting.result()) == "measured"
        second = everything[len(first) :]
        assert {one["progressToken"] for one in second} == {"second"}
        assert [one["progress"] for one in second] == sorted({one["progress"] for one in second})
        assert second[-1]["progress"] == 7


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_without_a_token_nothing_is_told_of_progress(version: str, way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    meter = add_metered(shop)
    async with hosted(shop, version, way, clock=clock) as model:
        calling = model.begin("metered")
        await clock.asleep(WAIT)
        await meter.show(1, 2)
        handle = await model.window(calling)
        waiting = model.begin(*next_call(handle))
        await clock.asleep(WAIT)
        await meter.show(2, 2)
        meter.finish()
        assert await progress_of(model, waiting) == []


@ON_PLAIN_WIRES
async def test_nothing_is_told_of_progress_after_the_answer(way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    meter = add_metered(shop)
    async with hosted(shop, "2025-11-25", way, clock=clock) as model:
        calling = model.begin("metered", meta={"progressToken": 7})
        await clock.asleep(WAIT)
        await meter.show(1, 9)
        await legacy(model).until_progress(1)
        handle = await model.window(calling)
        for done in range(2, 5):
            await meter.show(done, 9)
            await legacy(model).ping()
        meter.finish()
        assert told(await model.go_on(handle)) == "measured"
        answers = [place for place, one in enumerate(legacy(model).came) if "structuredContent" in str(one.message)]
        progress = [place for place, one in enumerate(legacy(model).came) if one.message.get("method") == PROGRESS]
        assert max(progress) < min(answers)


async def test_progress_of_a_second_try_is_told_when_it_has_come_further() -> None:
    """It may start anew, and callers are told only of what is more."""
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    tries = 0

    @shop.tasks.tool(retry=RetryPolicy(attempts=2))
    async def stumble(task: TaskContext) -> str:
        nonlocal tries
        tries += 1
        for done in range(1, 4) if tries == 1 else range(1, 6):
            await task.progress(done, 5)
        if tries == 1:
            raise OSError("once more")
        return "done"

    async with hosted(shop, clock=clock) as model:
        calling: asyncio.Task[Any] = model.begin("stumble", meta={"progressToken": 1})

        def is_over() -> bool:
            clock.advance(0.2)
            return calling.done()

        await until(is_over, legacy(model))
        amounts = [one["progress"] for one in await progress_of(model, calling)]
        assert amounts == sorted(set(amounts))
        assert told(calling.result()) == "done"
    assert tries == 2
