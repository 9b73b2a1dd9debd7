"""What stands around calls that ask for a task, middleware and other extensions: they see them, and may answer."""

# pyright: reportUnusedFunction=false

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from tests.server.lifecycle.test_attach import Watching, stamped_shop
from tests.support.server.caller_v2025 import IMMEDIATE, calling
from tests.support.server.example import Shop
from tests.support.server.tools import add_gated, text_of
from tests.support.server.v2025.tools import add_saying, count_tasks, refused_call

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

AnyContext = ServerRequestContext[Any, Any]

BOTH_SIDES = pytest.mark.parametrize("side", ["outside", "inside"])
"""Middleware that a server has when tasks are attached stands outside of them; what is added later, inside."""


def shop_with(middleware: Any, side: str) -> Shop:
    shop = Shop(server={"middleware": [middleware]} if side == "outside" else {})
    if side == "inside":
        shop.mcp.middleware.append(middleware)
    add_saying(shop)
    return shop


@BOTH_SIDES
async def test_the_middleware_of_a_server_sees_every_request_once(side: str) -> None:
    watching = Watching()
    shop = shop_with(watching, side)
    async with calling(shop) as caller:
        task_id = await caller.start("say")
        await caller.result(task_id)
        await caller.get(task_id)
        await caller.page()
    requests = [method for method in watching.seen if not method.startswith("notifications/")]
    assert requests == ["initialize", "tools/call", "tasks/result", "tasks/get", "tasks/list"]


@BOTH_SIDES
async def test_middleware_can_refuse_a_call_and_no_task_is_made(side: str) -> None:
    async def refuse(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call":
            raise MCPError(-32050, "closed", {"until": "Monday"})
        return await call_next(ctx)

    shop = shop_with(refuse, side)
    async with calling(shop) as caller:
        refused = await refused_call(caller, "say")
        assert (refused.code, refused.message, refused.data) == (-32050, "closed", {"until": "Monday"})
        assert await count_tasks(shop) == 0


@BOTH_SIDES
async def test_middleware_can_answer_in_the_place_of_a_tool(side: str) -> None:
    async def answer(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call":
            return {"content": [{"type": "text", "text": "cached"}]}
        return await call_next(ctx)

    shop = shop_with(answer, side)
    async with calling(shop) as caller:
        assert text_of(await caller.call("say", {"words": "new"}, task={})) == "cached"
        assert await count_tasks(shop) == 0


@BOTH_SIDES
async def test_middleware_can_replace_the_answer_and_nothing_of_ours_is_left_in_it(side: str) -> None:
    async def replace_it(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        return {"content": [{"type": "text", "text": "replaced"}]} if ctx.method == "tools/call" else result

    shop = shop_with(replace_it, side)
    async with calling(shop) as caller:
        assert await caller.call("say", task={}) == {"content": [{"type": "text", "text": "replaced"}]}
        if side == "inside":
            # Nobody was handed a task, so nobody is told of one.
            (task,) = (await shop.tasks.engine.list_tasks()).tasks
            await shop.tasks.engine.wait(task.id)
            await caller.ping()
            assert caller.pushed("notifications/tasks/status") == []


async def test_a_task_whose_caller_never_hears_of_it_is_given_up() -> None:
    async def replace_it(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        return {"content": []} if ctx.method == "tools/call" else result

    shop = shop_with(replace_it, "inside")
    gate = add_gated(shop)
    async with calling(shop) as caller:
        await caller.call("gated", task={})
        (task,) = (await shop.tasks.engine.list_tasks()).tasks
        assert (await shop.tasks.engine.wait(task.id)).task.status == "cancelled"
        # With a key it is found again by whoever makes the call again, so it goes on.
        await caller.call("gated", task={}, meta={"raincheck/idempotency-key": "mine"})
        (kept, _) = (await shop.tasks.engine.list_tasks()).tasks
        gate.open.set()
        assert (await shop.tasks.engine.wait(kept.id)).task.status == "completed"


@BOTH_SIDES
async def test_middleware_can_change_what_is_asked_for(side: str) -> None:
    async def shout(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call":
            ctx = replace(ctx, params={**(ctx.params or {}), "arguments": {"words": "LOUD"}})
        return await call_next(ctx)

    async with calling(shop_with(shout, side)) as caller:
        assert text_of(await caller.result(await caller.start("say", {"words": "soft"}))) == "LOUD"


async def test_middleware_outside_sees_the_task_that_a_caller_gets() -> None:
    seen: list[Any] = []

    async def watch(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            seen.append(result)
        return result

    async with calling(shop_with(watch, "outside")) as caller:
        created = await caller.call("say", task={})
        assert seen == [created]
        assert created.keys() == {"task", "_meta"}
        assert created["_meta"].keys() == {IMMEDIATE}


@BOTH_SIDES
async def test_middleware_that_calls_once_more_gets_the_task_of_the_call_whose_answer_it_returns(side: str) -> None:
    """One that tries again, or asks twice and takes whatever is first."""
    results: list[HandlerResult] = []

    async def hedge(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        results.extend([await call_next(ctx), await call_next(ctx)])
        return results[0]

    shop = shop_with(hedge, side)
    async with calling(shop) as caller:
        created = await caller.call("say", {"words": "twice"}, task={})
        assert text_of(await caller.result(created["task"]["taskId"])) == "twice"
        (_, first) = (await shop.tasks.engine.list_tasks()).tasks
        assert created["task"]["taskId"] == first.id


@BOTH_SIDES
async def test_calls_that_are_under_way_together_do_not_get_each_others_tasks(side: str) -> None:
    held = asyncio.Event()

    async def hold(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if (ctx.params or {}).get("arguments") == {"words": "first"}:
            await held.wait()
        return result

    async with calling(shop_with(hold, side)) as caller:
        slow = await caller.begin("tools/call", {"name": "say", "arguments": {"words": "first"}, "task": {}})
        second = await caller.start("say", {"words": "second"})
        held.set()
        first = (await slow.result())["task"]["taskId"]
        assert text_of(await caller.result(first)) == "first"
        assert text_of(await caller.result(second)) == "second"


async def test_nothing_is_pushed_of_a_task_before_its_caller_has_it() -> None:
    """However long something outside takes to pass the answer on."""
    shop_is_done = asyncio.Event()

    async def linger(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            await shop_is_done.wait()
        return result

    shop = shop_with(linger, "outside")
    async with calling(shop) as caller:
        call = await caller.begin("tools/call", {"name": "say", "arguments": {}, "task": {}})
        while not (tasks := (await shop.tasks.engine.list_tasks()).tasks):
            await caller.ping()
        await shop.tasks.engine.wait(tasks[0].id)
        await caller.ping()
        early = caller.pushed("notifications/tasks/status")
        shop_is_done.set()
        task_id = (await call.result())["task"]["taskId"]
        assert early == []
        await caller.until(task_id, "completed")


@pytest.mark.parametrize("tool", ["shout", "whisper"])
async def test_another_extension_that_intercepts_calls_sees_those_of_tasks_once(tool: str) -> None:
    shop, stamps = stamped_shop()
    async with calling(shop) as caller:
        result = await caller.result(await caller.start(tool, {"words": "Yes"}))
        assert text_of(result).lower() == "yes"
    assert stamps.calls == [tool]


@pytest.mark.parametrize("tool", ["shout", "whisper"])
async def test_another_extension_that_intercepts_a_call_can_answer_instead_of_the_tool(tool: str) -> None:
    shop, _ = stamped_shop()
    async with calling(shop) as caller:
        answer = await caller.call(tool, {"words": "forbidden"}, task={})
        result = await caller.result(answer["task"]["taskId"]) if "task" in answer else answer
        assert (text_of(result), result["isError"]) == ("not with me", True)


class Guard(Extension):
    """An extension that lets a call through, and has the last word on its answer."""

    identifier = "example.org/guard"

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: AnyContext, call_next: CallNext
    ) -> HandlerResult:
        if not self.is_open:
            raise MCPError(-32051, f"no {params.name} for you")
        await call_next(ctx)
        return CallToolResult(content=[TextContent(text="guarded")])


async def test_another_extension_can_refuse_a_call_and_no_task_is_made() -> None:
    shop = Shop(server={"extensions": [Guard(is_open=False)]})
    add_saying(shop)
    async with calling(shop) as caller:
        refused = await refused_call(caller, "say")
        assert (refused.code, refused.message) == (-32051, "no say for you")
        assert await count_tasks(shop) == 0


async def test_another_extension_can_replace_the_answer() -> None:
    shop = Shop(server={"extensions": [Guard(is_open=True)]})
    add_saying(shop)
    async with calling(shop) as caller:
        assert text_of(await caller.call("say", task={})) == "guarded"


async def test_what_is_wrong_with_a_call_is_told_before_anybody_else_is_asked() -> None:
    watching = Watching()
    shop = shop_with(watching, "inside")
    async with calling(shop) as caller:
        assert (await refused_call(caller, "say", task={"ttl": 0})).code == -32602
    assert "tools/call" not in watching.seen


async def test_an_answer_that_is_lost_on_the_way_back_leaves_a_task_that_its_owner_can_list() -> None:
    async def lose(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            raise MCPError(-32052, "lost")
        return result

    shop = shop_with(lose, "outside")
    gate = add_gated(shop)
    async with calling(shop) as caller:
        assert (await refused_call(caller, "gated")).code == -32052
        (task,) = (await caller.page())["tasks"]
        gate.open.set()
        assert text_of(await caller.result(task["taskId"])) == "through"
