"""Callers without tasks get exactly the result that the call itself would have returned, however late."""

# pyright: reportUnusedFunction=false

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from mcp.server.mcpserver import Image

from raincheck import RetryPolicy, TaskContext, ToolError
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    MODERN,
    ON_FALLBACK_TRANSPORTS,
    Model,
    connected_host,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.tools import add_gated, owner_for
from tests.support.server.transports import Message
from tests.support.server.v2025.result_tools import RESULT_TOOLS, TOOLS_WITHOUT_V2025_FORM
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio


class LateTools:
    """Tools that wait until the test lets them, and are otherwise unchanged."""

    def __init__(self, server: ExampleServer) -> None:
        self.server = server
        self.go = asyncio.Event()
        self.names: list[str] = []

    def add(self, tool: Callable[..., Any], **settings: Any) -> None:
        @functools.wraps(tool)
        async def late() -> Any:
            await self.go.wait()
            made = tool()
            return await made if inspect.isawaitable(made) else made

        self.server.tasks.tool(**settings)(late)
        self.names.append(tool.__name__)


def but_for_request(answer: Message) -> Message:
    """An answer without the fields of the one request or server."""
    meta = {name: one for name, one in answer.get("_meta", {}).items() if name.startswith("example.com")}
    return {name: one for name, one in answer.items() if name != "_meta"} | ({"_meta": meta} if meta else {})


async def outcome(model: Model, tool: str, arguments: dict[str, Any] | None = None) -> Message:
    """The result of a call. A protocol error is returned as text when another tool reads it."""
    try:
        return but_for_request(await model.call(tool, arguments))
    except Refused as error:
        text = f"{tool} failed: {error.message}"
        extra = {"resultType": "complete"} if model.caller.__class__.__name__ == "Caller" else {}
        return {"content": [{"type": "text", "text": text}], "isError": True, **extra}


@BY_VERSIONS
async def test_every_result_is_returned_unchanged_by_task_wait_and_again_by_task_result(
    version: str,
) -> None:
    server = ExampleServer(fallback_wait=0.1)
    late = LateTools(server)
    for tool in (*RESULT_TOOLS, *(TOOLS_WITHOUT_V2025_FORM if version == MODERN else ())):
        late.add(tool)
    async with connected_host(server, version) as model:
        handles = await asyncio.gather(*(model.call(name) for name in late.names))
        late.go.set()
        for name, handle in zip(late.names, handles, strict=True):
            task_id = task_id_of(handle)
            await server.tasks.engine.wait(task_id)
            expected = await outcome(model, name)
            for tool in ("task_wait", "task_result", "task_result", "task_wait"):
                assert await outcome(model, tool, {"task_id": task_id}) == expected, name


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_a_tool_error_keeps_its_content_and_a_crash_reveals_nothing(version: str, way: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    late = LateTools(server)

    async def refuse() -> str:
        raise ToolError("no paper left")

    async def crash() -> str:
        raise OSError("secret")

    for tool in (refuse, crash):
        late.add(tool, retry=RetryPolicy(attempts=1))
    async with connected_host(server, version, way) as model:
        refused, crashed = [await model.call(name) for name in late.names]
        late.go.set()
        answer = await model.call_next(refused)
        assert (answer["isError"], model_text(answer)) == (True, "no paper left")
        answer = await model.call_next(crashed)
        assert answer["isError"] is True
        assert "crash" in model_text(answer)
        assert "secret" not in model_text(answer)


@BY_VERSIONS
async def test_a_cancelled_task_is_reported_as_cancelled_and_not_as_failed(version: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    add_gated(server)
    async with connected_host(server, version) as model:
        handle = await model.call("gated")
        waiting = model.begin(*next_call(handle))
        await server.tasks.engine.cancel(task_id_of(handle), reason="closing time")
        for answer in (await waiting, await model.call("task_result", {"task_id": task_id_of(handle)})):
            assert answer["isError"] is True
            assert "cancelled" in model_text(answer)
            assert "closing time" in model_text(answer)
            assert "failed" not in model_text(answer)


async def test_a_picture_stays_a_picture() -> None:
    server = ExampleServer(fallback_wait=0.1)
    late = LateTools(server)

    async def draw() -> Image:
        return Image(data=b"\x89PNG\r\n", format="png")

    late.add(draw)
    async with connected_host(server) as model:
        handle = await model.call("draw")
        late.go.set()
        (block,) = (await model.call_next(handle))["content"]
        assert (block["type"], block["mimeType"]) == ("image", "image/png")


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_task_wait_returns_as_soon_as_the_task_ends(version: str, way: str) -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_gated(server)
    async with connected_host(server, version, way, clock=clock) as model:
        handle = await model.finish_wait(model.begin("gated"))
        waiting = model.begin(*next_call(handle))
        await clock.asleep(45.0)
        clock.advance(1)
        gate.open.set()
        assert model_text(await waiting) == "through"
        assert model.open_for == [45.0, 1.0]


async def test_task_result_does_not_wait() -> None:
    server = ExampleServer(fallback_wait=0.1)
    gate = add_gated(server)
    async with connected_host(server) as model:
        handle = await model.call("gated")
        answer = await model.call("task_result", {"task_id": task_id_of(handle)})
        assert model_text(answer).startswith("gated is still running")
        assert next_call(answer) == next_call(handle)
        gate.open.set()
        assert model_text(await model.call_next(answer)) == "through"


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_task_status_shows_the_progress_and_then_where_the_result_is(version: str, way: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    go = asyncio.Event()

    @server.tasks.tool
    async def count(task: TaskContext) -> str:
        await task.progress(3, 12, "crunching")
        await go.wait()
        return "counted"

    async with connected_host(server, version, way) as model:
        handle = await model.call("count")
        task_id = task_id_of(handle)
        status = await model.call("task_status", {"task_id": task_id})
        assert model_text(status).startswith("count is still running: 3 of 12, crunching.")
        assert status["structuredContent"]["progress"] == 3
        assert status["structuredContent"]["total"] == 12
        go.set()
        await server.tasks.engine.wait(task_id, owner=owner_for("open" if way == "memory" else way))
        status = await model.call("task_status", {"task_id": task_id})
        assert model_text(status).startswith("count has completed.")
        assert next_call(status) == ("task_result", {"task_id": task_id})
        assert model_text(await model.call_next(status)) == "counted"


async def test_a_tool_is_reported_as_failed_only_after_its_last_attempt() -> None:
    server = ExampleServer(fallback_wait=0.1)
    go = asyncio.Event()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def break_down() -> str:
        await go.wait()
        raise ValueError("secret")

    async with connected_host(server) as model:
        handle = await model.call("break_down")
        go.set()
        answer = await model.call_next(handle)
        assert answer["isError"] is True
        status = await model.call("task_status", {"task_id": task_id_of(handle)})
        assert model_text(status).startswith("break_down has failed")
        assert "secret" not in model_text(answer) + model_text(status)


@BY_VERSIONS
async def test_a_repeated_cancel_reports_the_outcome_of_the_task(version: str) -> None:
    server = ExampleServer(fallback_wait=0.1)
    gate = add_gated(server)
    async with connected_host(server, version) as model:
        handle = await model.call("gated")
        task = {"task_id": task_id_of(handle)}
        stopped = await model.call("task_cancel", task)
        await gate.stopped.wait()
        assert stopped["structuredContent"]["status"] == "cancelled"
        assert not stopped.get("isError")
        again = await model.call("task_cancel", task)
        assert again["structuredContent"]["status"] == "cancelled"


async def test_a_task_that_has_ended_is_not_cancelled_any_more_and_its_result_stays() -> None:
    server = ExampleServer(fallback_wait=0.1)
    gate = add_gated(server)
    async with connected_host(server) as model:
        handle = await model.call("gated")
        gate.open.set()
        await server.tasks.engine.wait(task_id_of(handle))
        late = await model.call("task_cancel", {"task_id": task_id_of(handle)})
        assert late["structuredContent"]["status"] == "completed"
        assert next_call(late)[0] == "task_result"
        assert model_text(await model.call_next(late)) == "through"
