"""A disconnect before the caller has a task id cancels the task, and a later one does not. Also, progress of waits."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raincheck import RetryPolicy, TaskContext
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    MODERN,
    ON_FALLBACK_TRANSPORTS,
    Model,
    connected_host,
    hosted_server,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.tools import Gate, Name, add_gated, owner_for
from tests.support.server.transports import Message, StreamTransport
from tests.support.server.v2025.tools import add_metered, until
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio

PROGRESS = "notifications/progress"
WAIT = 45.0


def legacy(model: Model) -> V2025Caller:
    assert isinstance(model.caller, V2025Caller)
    return model.caller


async def send(model: Model, tool: str, arguments: dict[str, Any]) -> None:
    """Call a tool without waiting for the answer."""
    params = {"name": tool, "arguments": arguments}
    if isinstance(model.caller, V2025Caller):
        await model.caller.begin("tools/call", params)
    else:
        assert isinstance(model.caller.transport, StreamTransport)
        await model.caller.transport.send(model.caller.message("tools/call", params))


async def wait_for_end(server: ExampleServer, gate: Gate, way: str) -> Task:
    owner = owner_for("open" if way == "memory" else way)
    return (await server.tasks.engine.wait(gate.task_ids[0], owner=owner)).task


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_cancelling_a_call_stops_the_work(version: str, way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with connected_host(server, version, way) as model:
        if version == MODERN:
            calling = model.begin("gated")
            await gate.started.wait()
            calling.cancel()
        else:
            call = await legacy(model).begin("tools/call", {"name": "gated", "arguments": {}})
            await gate.started.wait()
            await legacy(model).give_up(call)
        await gate.stopped.wait()
        task = await wait_for_end(server, gate, way)
        assert (task.phase, task.status_message) == (Phase.CANCELLED, "its caller disconnected")


@BY_VERSIONS
async def test_a_connection_that_is_closed_during_a_call_stops_the_work(version: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with hosted_server(server) as hosts, hosts.host():
        async with hosts.host(version) as model:
            await send(model, "gated", {})
            await gate.started.wait()
        await gate.stopped.wait()
        assert (await wait_for_end(server, gate, "memory")).phase is Phase.CANCELLED


async def end_the_session(model: Model, _: int) -> None:
    await legacy(model).http.end()


async def break_the_stream(model: Model, call_id: int) -> None:
    await legacy(model).http.drop(call_id)


@pytest.mark.parametrize("leave", [end_the_session, break_the_stream])
async def test_over_http_before_2026_ending_the_session_or_breaking_the_stream_stops_the_work(
    leave: Callable[[Model, int], Awaitable[None]],
) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_gated(server)
    async with (
        hosted_server(server, "http") as hosts,
        hosts.host(clock=clock) as stays,
        hosts.host(clock=clock) as leaves,
    ):
        call = await legacy(leaves).begin("tools/call", {"name": "gated", "arguments": {}})
        await gate.started.wait()
        await clock.asleep(WAIT)
        await leave(leaves, call.id)
        while not gate.stopped.is_set():
            # The server is not notified of a broken stream, so it may have to check.
            clock.advance(0.1)
            await legacy(stays).ping()


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_disconnecting_during_task_wait_stops_nothing(version: str, way: str) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_gated(server)
    async with connected_host(server, version, way, clock=clock) as model:
        handle = await model.finish_wait(model.begin("gated"))
        if version == MODERN:
            waiting = model.begin(*next_call(handle))
            await clock.asleep(WAIT)
            waiting.cancel()
        else:
            tool, arguments = next_call(handle)
            call = await legacy(model).begin("tools/call", {"name": tool, "arguments": arguments})
            await clock.asleep(WAIT)
            await legacy(model).give_up(call)
        status = await model.call("task_status", {"task_id": task_id_of(handle)})
        assert status["structuredContent"]["status"] == "working"
        assert not gate.stopped.is_set()
        gate.open.set()
        assert model_text(await model.call_next(handle)) == "through"


@BY_VERSIONS
async def test_a_connection_that_closes_during_task_wait_stops_nothing_and_another_host_gets_the_result(
    version: str,
) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_gated(server)
    async with hosted_server(server) as hosts, hosts.host(clock=clock) as stays:
        async with hosts.host(version, clock=clock) as leaves:
            handle = await leaves.finish_wait(leaves.begin("gated"))
            await send(leaves, *next_call(handle))
            await clock.asleep(WAIT)
        gate.open.set()
        assert model_text(await stays.call_next(handle)) == "through"
    assert not gate.stopped.is_set()


async def test_disconnecting_during_the_wait_after_an_answer_stops_nothing() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = Gate()

    @server.tasks.tool
    async def ask_first(task: TaskContext) -> str:
        await task.elicit("Who are you?", Name)
        await gate.pass_through(task)
        return "through"

    async with connected_host(server, clock=clock) as model:
        calling = model.begin("ask_first")
        await clock.asleep(0.05)
        clock.advance(0.05)
        asked = await calling
        tool, arguments = next_call(asked)
        params = {"name": tool, "arguments": {**arguments, "answer": {"name": "Ada"}}}
        call = await legacy(model).begin("tools/call", params)
        await gate.started.wait()
        await legacy(model).give_up(call)
        await legacy(model).ping()
        gate.open.set()
        assert model_text(await model.call("task_wait", {"task_id": task_id_of(asked)})) == "through"


async def receive_pending(model: Model) -> None:
    """Let the server send its pending notifications."""
    if isinstance(model.caller, V2025Caller):
        await model.caller.ping()
    else:
        # Use another caller, because on some transports all callers receive progress.
        await Caller(model.caller.transport, capabilities={}).call("task_status", {"task_id": "unknown"})


async def progress_of(model: Model, call: "asyncio.Task[Message]") -> list[Message]:
    """The progress that was sent before a call was answered."""
    await call
    if isinstance(model.caller, Caller):
        return [one["params"] for one in model.caller.notifications if one["method"] == PROGRESS]
    return model.caller.pushed(PROGRESS)


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_progress_is_sent_with_the_token_of_each_call_and_only_increases(version: str, way: str) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    meter = add_metered(server)
    async with connected_host(server, version, way, clock=clock) as model:
        calling = model.begin("metered", meta={"progressToken": "first"})
        await clock.asleep(WAIT)
        for done in (1, 5, 3, 5):
            await meter.show(done, 10, "measuring")
            await receive_pending(model)
        handle = await model.finish_wait(calling)
        first = await progress_of(model, calling)
        assert [one["progress"] for one in first] == sorted({one["progress"] for one in first})
        assert first[-1] == {"progressToken": "first", "progress": 5, "total": 10, "message": "measuring"}
        # No call waits, so this progress is sent to no caller.
        await meter.show(6, 10)
        tool, arguments = next_call(handle)
        waiting = model.begin(tool, arguments, meta={"progressToken": "second"})
        await clock.asleep(WAIT)
        await meter.show(7, 10)
        await receive_pending(model)
        meter.finish()
        everything = await progress_of(model, waiting)
        assert model_text(waiting.result()) == "measured"
        second = everything[len(first) :]
        assert {one["progressToken"] for one in second} == {"second"}
        assert [one["progress"] for one in second] == sorted({one["progress"] for one in second})
        assert second[-1]["progress"] == 7


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_without_a_token_no_progress_is_sent(version: str, way: str) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    meter = add_metered(server)
    async with connected_host(server, version, way, clock=clock) as model:
        calling = model.begin("metered")
        await clock.asleep(WAIT)
        await meter.show(1, 2)
        handle = await model.finish_wait(calling)
        waiting = model.begin(*next_call(handle))
        await clock.asleep(WAIT)
        await meter.show(2, 2)
        meter.finish()
        assert await progress_of(model, waiting) == []


@ON_FALLBACK_TRANSPORTS
async def test_no_progress_is_sent_after_the_answer(way: str) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    meter = add_metered(server)
    async with connected_host(server, "2025-11-25", way, clock=clock) as model:
        calling = model.begin("metered", meta={"progressToken": 7})
        await clock.asleep(WAIT)
        await meter.show(1, 9)
        await legacy(model).until_progress(1)
        handle = await model.finish_wait(calling)
        for done in range(2, 5):
            await meter.show(done, 9)
            await legacy(model).ping()
        meter.finish()
        assert model_text(await model.call_next(handle)) == "measured"
        answers = [index for index, one in enumerate(legacy(model).received) if "structuredContent" in str(one.message)]
        progress = [index for index, one in enumerate(legacy(model).received) if one.message.get("method") == PROGRESS]
        assert max(progress) < min(answers)


async def test_progress_of_a_second_attempt_is_sent_once_it_exceeds_the_first() -> None:
    """The progress of an attempt may start again, and callers receive only larger amounts."""
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    tries = 0

    @server.tasks.tool(retry=RetryPolicy(attempts=2))
    async def stumble(task: TaskContext) -> str:
        nonlocal tries
        tries += 1
        for done in range(1, 4) if tries == 1 else range(1, 6):
            await task.progress(done, 5)
        if tries == 1:
            raise OSError("once more")
        return "done"

    async with connected_host(server, clock=clock) as model:
        calling: asyncio.Task[Any] = model.begin("stumble", meta={"progressToken": 1})

        def is_over() -> bool:
            clock.advance(0.2)
            return calling.done()

        await until(is_over, legacy(model))
        amounts = [one["progress"] for one in await progress_of(model, calling)]
        assert amounts == sorted(set(amounts))
        assert model_text(calling.result()) == "done"
    assert tries == 2
