"""What callers without tasks get in the end is exactly what the call itself would have returned, however late."""

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
    told,
)
from tests.support.server.tools import add_gated, owner_over
from tests.support.server.transports import Message
from tests.support.server.v2025.result_tools import GOODS, UNTELLABLE

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


class Late:
    """Tools that wait until they are let, and are what they are otherwise."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.go = asyncio.Event()
        self.names: list[str] = []

    def add(self, tool: Callable[..., Any], **settings: Any) -> None:
        @functools.wraps(tool)
        async def late() -> Any:
            await self.go.wait()
            made = tool()
            return await made if inspect.isawaitable(made) else made

        self.shop.tasks.tool(**settings)(late)
        self.names.append(tool.__name__)


def but_for_request(answer: Message) -> Message:
    """An answer without what belongs to the one request, or the one server."""
    meta = {name: one for name, one in answer.get("_meta", {}).items() if name.startswith("example.com")}
    return {name: one for name, one in answer.items() if name != "_meta"} | ({"_meta": meta} if meta else {})


async def outcome(model: Model, tool: str, arguments: dict[str, Any] | None = None) -> Message:
    """What a call comes to. What is refused is told in words by a tool that reads of another."""
    try:
        return but_for_request(await model.call(tool, arguments))
    except Refused as error:
        text = f"{tool} failed: {error.message}"
        extra = {"resultType": "complete"} if model.caller.__class__.__name__ == "Caller" else {}
        return {"content": [{"type": "text", "text": text}], "isError": True, **extra}


@BY_VERSIONS
async def test_whatever_a_tool_returns_comes_whole_through_task_wait_and_again_through_task_result(
    version: str,
) -> None:
    shop = Shop(fallback_wait=0.1)
    late = Late(shop)
    for tool in (*GOODS, *(UNTELLABLE if version == MODERN else ())):
        late.add(tool)
    async with hosted(shop, version) as model:
        handles = await asyncio.gather(*(model.call(name) for name in late.names))
        late.go.set()
        for name, handle in zip(late.names, handles, strict=True):
            task_id = handle_of(handle)
            await shop.tasks.engine.wait(task_id)
            expected = await outcome(model, name)
            for tool in ("task_wait", "task_result", "task_result", "task_wait"):
                assert await outcome(model, tool, {"task_id": task_id}) == expected, name


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_an_error_of_the_tool_keeps_its_content_and_a_crash_tells_nothing(version: str, way: str) -> None:
    shop = Shop(fallback_wait=0.1)
    late = Late(shop)

    async def refuse() -> str:
        raise ToolError("no paper left")

    async def crash() -> str:
        raise OSError("secret")

    for tool in (refuse, crash):
        late.add(tool, retry=RetryPolicy(attempts=1))
    async with hosted(shop, version, way) as model:
        refused, crashed = [await model.call(name) for name in late.names]
        late.go.set()
        answer = await model.go_on(refused)
        assert (answer["isError"], told(answer)) == (True, "no paper left")
        answer = await model.go_on(crashed)
        assert answer["isError"] is True
        assert "crash" in told(answer)
        assert "secret" not in told(answer)


@BY_VERSIONS
async def test_what_was_cancelled_meanwhile_is_told_so_and_not_that_it_failed(version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    add_gated(shop)
    async with hosted(shop, version) as model:
        handle = await model.call("gated")
        waiting = model.begin(*next_call(handle))
        await shop.tasks.engine.cancel(handle_of(handle), reason="closing time")
        for answer in (await waiting, await model.call("task_result", {"task_id": handle_of(handle)})):
            assert answer["isError"] is True
            assert "cancelled" in told(answer)
            assert "closing time" in told(answer)
            assert "failed" not in told(answer)


async def test_a_picture_stays_a_picture() -> None:
    shop = Shop(fallback_wait=0.1)
    late = Late(shop)

    async def draw() -> Image:
        return Image(data=b"\x89PNG\r\n", format="png")

    late.add(draw)
    async with hosted(shop) as model:
        handle = await model.call("draw")
        late.go.set()
        (block,) = (await model.go_on(handle))["content"]
        assert (block["type"], block["mimeType"]) == ("image", "image/png")


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_task_wait_returns_as_soon_as_the_task_ends(version: str, way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop)
    async with hosted(shop, version, way, clock=clock) as model:
        handle = await model.window(model.begin("gated"))
        waiting = model.begin(*next_call(handle))
        await clock.asleep(45.0)
        clock.advance(1)
        gate.open.set()
        assert told(await waiting) == "through"
        assert model.open_for == [45.0, 1.0]


async def test_task_result_does_not_wait() -> None:
    shop = Shop(fallback_wait=0.1)
    gate = add_gated(shop)
    async with hosted(shop) as model:
        handle = await model.call("gated")
        answer = await model.call("task_result", {"task_id": handle_of(handle)})
        assert told(answer).startswith("gated is still running")
        assert next_call(answer) == next_call(handle)
        gate.open.set()
        assert told(await model.go_on(answer)) == "through"


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_task_status_tells_how_far_a_task_is_and_then_where_its_result_is(version: str, way: str) -> None:
    shop = Shop(fallback_wait=0.1)
    go = asyncio.Event()

    @shop.tasks.tool
    async def count(task: TaskContext) -> str:
        await task.progress(3, 12, "crunching")
        await go.wait()
        return "counted"

    async with hosted(shop, version, way) as model:
        handle = await model.call("count")
        task_id = handle_of(handle)
        status = await model.call("task_status", {"task_id": task_id})
        assert told(status).startswith("count is still running: 3 of 12, crunching.")
        assert status["structuredContent"]["progress"] == 3
        assert status["structuredContent"]["total"] == 12
        go.set()
        await shop.tasks.engine.wait(task_id, owner=owner_over("open" if way == "memory" else way))
        status = await model.call("task_status", {"task_id": task_id})
        assert told(status).startswith("count has completed.")
        assert next_call(status) == ("task_result", {"task_id": task_id})
        assert told(await model.go_on(status)) == "counted"


async def test_a_tool_that_fails_after_its_tries_is_told_of_when_it_has_used_them_up() -> None:
    shop = Shop(fallback_wait=0.1)
    go = asyncio.Event()

    @shop.tasks.tool(retry=RetryPolicy(attempts=1))
    async def break_down() -> str:
        await go.wait()
        raise ValueError("secret")

    async with hosted(shop) as model:
        handle = await model.call("break_down")
        go.set()
        answer = await model.go_on(handle)
        assert answer["isError"] is True
        status = await model.call("task_status", {"task_id": handle_of(handle)})
        assert told(status).startswith("break_down has failed")
        assert "secret" not in told(answer) + told(status)


@BY_VERSIONS
async def test_a_task_is_cancelled_once_and_who_cancels_again_is_told_what_became_of_it(version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    gate = add_gated(shop)
    async with hosted(shop, version) as model:
        handle = await model.call("gated")
        task = {"task_id": handle_of(handle)}
        stopped = await model.call("task_cancel", task)
        await gate.stopped.wait()
        assert stopped["structuredContent"]["status"] == "cancelled"
        assert not stopped.get("isError")
        again = await model.call("task_cancel", task)
        assert again["structuredContent"]["status"] == "cancelled"


async def test_a_task_that_has_ended_is_not_cancelled_any_more_and_its_result_stays() -> None:
    shop = Shop(fallback_wait=0.1)
    gate = add_gated(shop)
    async with hosted(shop) as model:
        handle = await model.call("gated")
        gate.open.set()
        await shop.tasks.engine.wait(handle_of(handle))
        late = await model.call("task_cancel", {"task_id": handle_of(handle)})
        assert late["structuredContent"]["status"] == "completed"
        assert next_call(late)[0] == "task_result"
        assert told(await model.go_on(late)) == "through"
