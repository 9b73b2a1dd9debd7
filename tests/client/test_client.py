"""Tests for the client on every kind of server: calls, results, updates, errors and cancels."""

import asyncio
import gc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck import TaskContext
from raincheck.client import TaskCancelled, TaskProgress, Update
from raincheck.client.protocols.base import AnyResult, send_task_request
from raincheck.core.lifecycle import Status
from raincheck.errors import TaskNotFound
from tests.support.client.callers import (
    ON_ALL_PROTOCOLS,
    ON_ALL_TRANSPORTS,
    ON_TASK_PROTOCOLS,
    open_client,
    start_task,
    text_of,
    updates_of,
)
from tests.support.client.example_server import ExampleServer

pytestmark = pytest.mark.anyio


@ON_ALL_TRANSPORTS
@ON_ALL_PROTOCOLS
async def test_a_call_returns_the_final_result_however_it_came_about(tier: str, way: str) -> None:
    async with open_client(ExampleServer(), tier, way) as client:
        for tool in ("add", "add_at_once", "add_without_task"):
            result = await client.call_tool(tool, {"a": 1, "b": 2})
            assert (result.structured_content, result.is_error) == ({"result": 3}, False)


@ON_ALL_TRANSPORTS
@ON_ALL_PROTOCOLS
async def test_a_handle_is_returned_before_the_work_is_done(tier: str, way: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier, way) as client:
        handle = await start_task(client, "pass_gate")
        update = await handle.poll()
        assert update is not None
        assert (update.status, update.message) == (Status.WORKING, "at the gate")
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        assert text_of(await handle.result()) == "through"


@ON_ALL_PROTOCOLS
async def test_a_handle_yields_each_change_until_the_end(tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier) as client:
        handle = await start_task(client, "pass_gate")
        observed: list[Update] = []
        async for update in handle:
            observed.append(update)
            server.gate.open.set()
        assert observed[0].message == "at the gate"
        assert [update.status for update in observed][-1] is Status.COMPLETED
        assert all(update != other for update, other in pairwise(observed))
        assert [update.task_id for update in observed] == [handle.task_id] * len(observed)
        assert text_of(await handle.result()) == "through"
        assert await updates_of(handle) == [observed[-1]]


@ON_ALL_PROTOCOLS
async def test_an_update_contains_the_progress(tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier) as client:
        handle = await start_task(client, "pass_gate")
        async for update in handle:
            if update.progress == TaskProgress(1, 2):
                server.gate.open.set()
    assert server.gate.passed == 1


@ON_ALL_PROTOCOLS
async def test_a_call_that_is_answered_at_once_has_no_task_and_no_updates(tier: str) -> None:
    async with open_client(ExampleServer(), tier) as client:
        handle = await client.call("add_without_task", {"a": 1, "b": 2})
        assert (handle.task_id, handle.task_ref) == (None, None)
        assert await handle.poll() is None
        assert await updates_of(handle) == []
        await handle.cancel()
        await handle.answer({})
        assert (await handle.result()).structured_content == {"result": 3}


@ON_ALL_TRANSPORTS
@ON_ALL_PROTOCOLS
async def test_a_tool_error_is_a_result_with_is_error(tier: str, way: str) -> None:
    async with open_client(ExampleServer(), tier, way) as client:
        result = await (await client.call("refuse")).result()
        assert result.is_error
        assert text_of(result) == "no paper left"


@ON_ALL_TRANSPORTS
@ON_ALL_PROTOCOLS
async def test_a_protocol_error_is_raised_as_the_call_would_have_raised_it(tier: str, way: str) -> None:
    async with open_client(ExampleServer(), tier, way) as client:
        handle = await client.call("break_down") if tier in ("2026", "2025") else None
        for _ in range(2):
            with pytest.raises(MCPError) as raised:
                await (handle.result() if handle is not None else client.call_tool("break_down"))
            assert (raised.value.error.code, raised.value.error.message) == (-32042, "go there first")
            assert raised.value.error.data == {"url": "https://example.com"}


@ON_ALL_PROTOCOLS
async def test_bad_arguments_and_unknown_tools_raise_the_servers_error(tier: str) -> None:
    async with open_client(ExampleServer(), tier) as client:
        assert (await client.call_tool("add_without_task", {"a": "one", "b": 2})).is_error
        assert (await client.call_tool("no_such_tool")).is_error


@ON_ALL_TRANSPORTS
@ON_ALL_PROTOCOLS
async def test_cancelling_stops_the_work_and_raises_for_waiters(tier: str, way: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier, way) as client:
        handle = await start_task(client, "pass_gate")
        waiting = asyncio.create_task(handle.result())
        await server.gate.started.wait()
        await handle.cancel()
        with pytest.raises(TaskCancelled) as raised:
            await waiting
        assert raised.value.task_id == handle.task_id
        await server.gate.stopped.wait()
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result()


@ON_ALL_PROTOCOLS
async def test_cancelling_an_ended_task_changes_nothing(tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier) as client:
        handle = await start_task(client, "pass_gate")
        assert handle.task_ref is not None
        another = client.resume(handle.task_ref)
        server.gate.open.set()
        assert text_of(await handle.result()) == "through"
        await another.cancel()
        await handle.cancel()
        assert text_of(await another.result()) == "through"


@ON_ALL_PROTOCOLS
async def test_an_unknown_task_raises_task_not_found(tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier) as client:
        handle = await start_task(client, "pass_gate")
        assert handle.task_ref is not None
        stranger = client.resume(replace(handle.task_ref, task_id="0" * 44))
        for ask in (stranger.result, stranger.poll):
            with pytest.raises(TaskNotFound):
                await ask()


@ON_ALL_PROTOCOLS
async def test_a_cancelled_wait_leaves_the_task_running(tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier) as client:
        handle = await start_task(client, "pass_gate")
        waiting = asyncio.create_task(handle.result())
        await server.gate.started.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        with pytest.raises(TimeoutError):
            await handle.result(timeout=0.05)
        assert not server.gate.stopped.is_set()
        server.gate.open.set()
        assert text_of(await handle.result(timeout=20)) == "through"


@ON_ALL_PROTOCOLS
async def test_a_handle_can_have_concurrent_waiters(tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier) as client:
        handle = await start_task(client, "pass_gate")
        waiting = [asyncio.create_task(handle.result()) for _ in range(2)]
        following = asyncio.create_task(updates_of(handle))
        await server.gate.started.wait()
        server.gate.open.set()
        assert [text_of(result) for result in await asyncio.gather(*waiting)] == ["through"] * 2
        assert (await following)[-1].status is Status.COMPLETED
        assert server.gate.passed == 1


@ON_ALL_TRANSPORTS
@ON_TASK_PROTOCOLS
async def test_many_calls_of_one_client_run_concurrently(tier: str, way: str) -> None:
    async with open_client(ExampleServer(), tier, way) as client:
        handles = await asyncio.gather(*(client.call("add", {"a": number, "b": 1}) for number in range(40)))
        results = await asyncio.gather(*(handle.result() for handle in handles))
        assert [result.structured_content for result in results] == [{"result": number + 1} for number in range(40)]
        assert len({handle.task_id for handle in handles}) == 40


@ON_ALL_PROTOCOLS
async def test_a_call_with_a_key_is_started_once_however_often_it_is_sent(tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier) as client:
        first = await start_task(client, "pass_gate", key="one")
        again = await start_task(client, "pass_gate", key="one")
        other = await start_task(client, "pass_gate", key="another")
        assert first.task_id == again.task_id != other.task_id
        server.gate.open.set()
        assert text_of(await again.result()) == text_of(await first.result()) == text_of(await other.result())
        assert server.gate.passed == 2


@ON_ALL_PROTOCOLS
async def test_tasks_without_handles_are_released(tier: str) -> None:
    server = ExampleServer()
    server.gate.open.set()
    async with open_client(server, tier) as client:
        for _ in range(3):
            assert text_of(await client.call_tool("pass_gate")) == "through"
        gc.collect()
        heard: Any = getattr(client, "_tracker")  # noqa: B009 - it is private
        assert [len(getattr(heard, saved)) for saved in ("_tasks", "_by_token")] == [0, 0]


async def test_the_sdks_client_is_available_for_other_requests() -> None:
    async with open_client(ExampleServer()) as client:
        tools = await (await client.connected()).list_tools()
        assert "add" in {tool.name for tool in tools.tools}


async def test_progress_of_a_call_without_a_task_reaches_its_callback() -> None:
    server, heard = ExampleServer(), list[tuple[TaskProgress, str | None]]()

    @server.tasks.tool(mode="forbidden")
    async def crawl(task: TaskContext) -> str:
        await task.progress(1, 2, "half-way")
        await server.gate.pass_through()
        return "there"

    async def hear(progress: TaskProgress, message: str | None) -> None:
        heard.append((progress, message))
        server.gate.open.set()

    async with open_client(server, "2025") as client:
        assert text_of(await client.call_tool("crawl", progress_callback=hear)) == "there"
    assert heard[0] == (TaskProgress(1, 2), "half-way")


async def test_the_requested_ttl_is_sent_to_the_server() -> None:
    async with open_client(ExampleServer(), "2025") as client:
        handle = await start_task(client, "pass_gate", ttl=3_600, meta={"example.com/why": "because"})
        assert handle.task_id is not None
        shown = await send_task_request(await client.connected(), "tasks/get", handle.task_id, AnyResult)
        assert shown.model_dump()["ttl"] == 3_600_000
