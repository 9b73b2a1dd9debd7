"""Middleware and other extensions around task calls see them, and may answer instead."""

# pyright: reportUnusedFunction=false

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from tests.server.lifecycle.test_attach import Watching, stamped_server
from tests.support.server.caller_v2025 import IMMEDIATE, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.v2025.tools import add_echo, count_tasks, refused_call

pytestmark = pytest.mark.anyio

AnyContext = ServerRequestContext[Any, Any]

BOTH_SIDES = pytest.mark.parametrize("side", ["outside", "inside"])
"""Middleware that exists when tasks are attached runs outside of them. Middleware that is added later runs inside."""


def server_with(middleware: Any, side: str) -> ExampleServer:
    server = ExampleServer(server={"middleware": [middleware]} if side == "outside" else {})
    if side == "inside":
        server.mcp.middleware.append(middleware)
    add_echo(server)
    return server


@BOTH_SIDES
async def test_the_middleware_of_a_server_sees_every_request_once(side: str) -> None:
    watching = Watching()
    server = server_with(watching, side)
    async with v2025_caller(server) as caller:
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

    server = server_with(refuse, side)
    async with v2025_caller(server) as caller:
        refused = await refused_call(caller, "say")
        assert (refused.code, refused.message, refused.data) == (-32050, "closed", {"until": "Monday"})
        assert await count_tasks(server) == 0


@BOTH_SIDES
async def test_middleware_can_answer_instead_of_a_tool(side: str) -> None:
    async def answer(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call":
            return {"content": [{"type": "text", "text": "cached"}]}
        return await call_next(ctx)

    server = server_with(answer, side)
    async with v2025_caller(server) as caller:
        assert text_of(await caller.call("say", {"words": "new"}, task={})) == "cached"
        assert await count_tasks(server) == 0


@BOTH_SIDES
async def test_middleware_can_replace_the_answer_without_any_marker_left_in_it(side: str) -> None:
    async def replace_it(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        return {"content": [{"type": "text", "text": "replaced"}]} if ctx.method == "tools/call" else result

    server = server_with(replace_it, side)
    async with v2025_caller(server) as caller:
        assert await caller.call("say", task={}) == {"content": [{"type": "text", "text": "replaced"}]}
        if side == "inside":
            # No caller received a task, so no notification is sent.
            (task,) = (await server.tasks.engine.list_tasks()).tasks
            await server.tasks.engine.wait(task.id)
            await caller.ping()
            assert caller.pushed("notifications/tasks/status") == []


async def test_a_task_whose_id_never_reaches_the_caller_is_cancelled() -> None:
    async def replace_it(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        return {"content": []} if ctx.method == "tools/call" else result

    server = server_with(replace_it, "inside")
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        await caller.call("gated", task={})
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        assert (await server.tasks.engine.wait(task.id)).task.status == "cancelled"
        # With a key, a repeated call finds the task, so it keeps running.
        await caller.call("gated", task={}, meta={"raincheck/idempotency-key": "mine"})
        (kept, _) = (await server.tasks.engine.list_tasks()).tasks
        gate.open.set()
        assert (await server.tasks.engine.wait(kept.id)).task.status == "completed"


@BOTH_SIDES
async def test_middleware_can_change_the_arguments(side: str) -> None:
    async def shout(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call":
            ctx = replace(ctx, params={**(ctx.params or {}), "arguments": {"words": "LOUD"}})
        return await call_next(ctx)

    async with v2025_caller(server_with(shout, side)) as caller:
        assert text_of(await caller.result(await caller.start("say", {"words": "soft"}))) == "LOUD"


async def test_middleware_outside_sees_the_task_that_a_caller_gets() -> None:
    seen: list[Any] = []

    async def watch(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            seen.append(result)
        return result

    async with v2025_caller(server_with(watch, "outside")) as caller:
        created = await caller.call("say", task={})
        assert seen == [created]
        assert created.keys() == {"task", "_meta"}
        assert created["_meta"].keys() == {IMMEDIATE}


@BOTH_SIDES
async def test_middleware_that_repeats_a_call_returns_the_task_of_the_answer_it_returns(side: str) -> None:
    """One that tries again, or asks twice and takes whatever is first."""
    results: list[HandlerResult] = []

    async def hedge(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        results.extend([await call_next(ctx), await call_next(ctx)])
        return results[0]

    server = server_with(hedge, side)
    async with v2025_caller(server) as caller:
        created = await caller.call("say", {"words": "twice"}, task={})
        assert text_of(await caller.result(created["task"]["taskId"])) == "twice"
        (_, first) = (await server.tasks.engine.list_tasks()).tasks
        assert created["task"]["taskId"] == first.id


@BOTH_SIDES
async def test_concurrent_calls_do_not_get_each_others_tasks(side: str) -> None:
    held = asyncio.Event()

    async def hold(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if (ctx.params or {}).get("arguments") == {"words": "first"}:
            await held.wait()
        return result

    async with v2025_caller(server_with(hold, side)) as caller:
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

    server = server_with(linger, "outside")
    async with v2025_caller(server) as caller:
        call = await caller.begin("tools/call", {"name": "say", "arguments": {}, "task": {}})
        while not (tasks := (await server.tasks.engine.list_tasks()).tasks):
            await caller.ping()
        await server.tasks.engine.wait(tasks[0].id)
        await caller.ping()
        early = caller.pushed("notifications/tasks/status")
        shop_is_done.set()
        task_id = (await call.result())["task"]["taskId"]
        assert early == []
        await caller.until(task_id, "completed")


@pytest.mark.parametrize("tool", ["shout", "whisper"])
async def test_another_extension_that_intercepts_calls_sees_those_of_tasks_once(tool: str) -> None:
    server, stamps = stamped_server()
    async with v2025_caller(server) as caller:
        result = await caller.result(await caller.start(tool, {"words": "Yes"}))
        assert text_of(result).lower() == "yes"
    assert stamps.calls == [tool]


@pytest.mark.parametrize("tool", ["shout", "whisper"])
async def test_another_extension_that_intercepts_a_call_can_answer_instead_of_the_tool(tool: str) -> None:
    server, _ = stamped_server()
    async with v2025_caller(server) as caller:
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
    server = ExampleServer(server={"extensions": [Guard(is_open=False)]})
    add_echo(server)
    async with v2025_caller(server) as caller:
        refused = await refused_call(caller, "say")
        assert (refused.code, refused.message) == (-32051, "no say for you")
        assert await count_tasks(server) == 0


async def test_another_extension_can_replace_the_answer() -> None:
    server = ExampleServer(server={"extensions": [Guard(is_open=True)]})
    add_echo(server)
    async with v2025_caller(server) as caller:
        assert text_of(await caller.call("say", task={})) == "guarded"


async def test_an_invalid_call_is_rejected_before_other_extensions_see_it() -> None:
    watching = Watching()
    server = server_with(watching, "inside")
    async with v2025_caller(server) as caller:
        assert (await refused_call(caller, "say", task={"ttl": 0})).code == -32602
    assert "tools/call" not in watching.seen


async def test_an_answer_that_is_lost_on_the_way_back_leaves_a_task_that_its_owner_can_list() -> None:
    async def lose(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            raise MCPError(-32052, "lost")
        return result

    server = server_with(lose, "outside")
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        assert (await refused_call(caller, "gated")).code == -32052
        (task,) = (await caller.page())["tasks"]
        gate.open.set()
        assert text_of(await caller.result(task["taskId"])) == "through"
