"""The SDK's own context works on the task: progress, questions, resources and logs, even if the caller is gone."""

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Resolve
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from raincheck import SyncTaskContext, TaskContext
from tests.support.server.example import ExampleServer

pytestmark = pytest.mark.anyio

AnyContext = Context[Any, Any]


class Sure(BaseModel):
    sure: bool


def serve(server: ExampleServer, way: str, fn: Callable[..., Any]) -> None:
    if way == "tool":
        server.tasks.tool(fn)
    else:
        server.mcp.add_tool(fn)
        server.tasks.enable(fn.__name__)


both = pytest.mark.parametrize("way", ["tool", "enable"])


@both
async def test_progress_of_the_sdk_context_is_progress_of_the_task(way: str) -> None:
    server = ExampleServer()
    gate = asyncio.Event()

    async def work(ctx: AnyContext) -> str:
        await ctx.report_progress(1, 2, "half-way")
        await gate.wait()
        return "done"

    serve(server, way, work)
    async with server.open() as caller:
        task_id = await caller.start("work")
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                if task.get("statusMessage") == "half-way":
                    gate.set()
        progress = (await server.tasks.engine.view(task_id)).task.progress
        assert progress is not None
        assert (progress.done, progress.total) == (1, 2)


@both
async def test_elicit_asks_through_the_task(way: str) -> None:
    server = ExampleServer()

    async def ask(ctx: AnyContext) -> str:
        first = await ctx.elicit("Sure?", Sure)
        second = await ctx.elicit("Really?", Sure)
        return f"{first.action} {getattr(first, 'data', None)}, {second.action}"

    serve(server, way, ask)
    async with server.open() as caller:
        task_id = await caller.start("ask")
        asked = await caller.until(task_id, "input_required")
        assert asked["inputRequests"]["elicit-0"]["method"] == "elicitation/create"
        assert asked["inputRequests"]["elicit-0"]["params"]["message"] == "Sure?"
        await caller.update(task_id, {"elicit-0": {"action": "accept", "content": {"sure": True}}})
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                if "elicit-1" in task.get("inputRequests", {}):
                    assert list(task["inputRequests"]) == ["elicit-1"]
                    await caller.update(task_id, {"elicit-1": {"action": "decline"}})
        assert (await caller.result(task_id))["content"][0]["text"] == "accept sure=True, decline"


@both
async def test_elicit_outlives_the_process_and_is_answered_once(way: str, tmp_path: Path) -> None:
    asks = 0

    def build() -> ExampleServer:
        server = ExampleServer(tmp_path / "tasks.db")

        async def ask(ctx: AnyContext) -> str:
            nonlocal asks
            asks += 1
            first = await ctx.elicit("Sure?", Sure)
            second = await ctx.elicit("Really?", Sure)
            return f"{first.action} {second.action}"

        serve(server, way, ask)
        return server

    async with build().open() as caller:
        task_id = await caller.start("ask")
        await caller.until(task_id, "input_required")
        await caller.update(task_id, {"elicit-0": {"action": "accept", "content": {"sure": True}}})
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                if "elicit-1" in task.get("inputRequests", {}):
                    break
    async with build().open() as caller:
        assert list((await caller.get(task_id))["inputRequests"]) == ["elicit-1"]
        await caller.update(task_id, {"elicit-1": {"action": "cancel"}})
        assert (await caller.result(task_id))["content"][0]["text"] == "accept cancel"
    assert asks >= 2


@both
async def test_log_messages_of_the_sdk_context_do_not_fail(way: str) -> None:
    server = ExampleServer()

    async def talk(ctx: AnyContext) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            for say in (ctx.debug, ctx.info, ctx.warning, ctx.error):  # pyright: ignore[reportDeprecated]
                await say("hello")
            await ctx.log("notice", {"any": "JSON"}, logger_name="mine")  # pyright: ignore[reportDeprecated]
        await ctx.notify_tools_changed()
        await ctx.notify_resource_updated("shop://stock")
        await ctx.session.send_tool_list_changed()
        await ctx.close_sse_stream()
        return "talked"

    serve(server, way, talk)
    async with server.open() as caller:
        assert (await caller.result(await caller.start("talk")))["content"][0]["text"] == "talked"


@both
async def test_the_sdk_context_reads_resources(way: str) -> None:
    server = ExampleServer()

    @server.mcp.resource("shop://stock")
    def stock() -> str:
        return "7 pears"

    async def look(ctx: AnyContext) -> str:
        return "".join(str(one.content) for one in await ctx.read_resource("shop://stock"))

    serve(server, way, look)
    async with server.open() as caller:
        assert (await caller.result(await caller.start("look")))["content"][0]["text"] == "7 pears"


@both
async def test_context_values_of_the_connection_are_none_or_those_of_the_task(way: str) -> None:
    server = ExampleServer()

    async def look(ctx: AnyContext) -> list[str]:
        declared = ctx.client_capabilities
        assert declared is not None
        return [ctx.request_id, str(ctx.headers), str(declared.elicitation is not None), ctx.mcp_server.name]

    serve(server, way, look)
    async with server.open_http() as caller:
        task_id = await caller.start("look")
        result = (await caller.result(task_id))["structuredContent"]["result"]
        assert result == [task_id, "None", "True", "shop"]


@both
async def test_sampling_is_a_durable_question(way: str, tmp_path: Path) -> None:
    def build() -> ExampleServer:
        server = ExampleServer(tmp_path / "tasks.db")

        async def think(ctx: AnyContext) -> str:
            messages = [SamplingMessage(role="user", content=TextContent(text="Hm?"))]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                answer = await ctx.session.create_message(messages, max_tokens=10)  # pyright: ignore[reportDeprecated]
            return f"{answer.model} says {getattr(answer.content, 'text', None)}"

        serve(server, way, think)
        return server

    async with build().open() as caller:
        task_id = await caller.start("think")
        asked = await caller.until(task_id, "input_required")
        request = asked["inputRequests"]["sample-0"]
        assert request["method"] == "sampling/createMessage"
        assert request["params"]["maxTokens"] == 10
    async with build().open() as caller:
        answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Ha!"}}
        await caller.update(task_id, {"sample-0": answer})
        assert (await caller.result(task_id))["content"][0]["text"] == "m says Ha!"


def question(message: str) -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


@both
async def test_manual_rounds_of_a_tool_become_questions_with_separate_keys(way: str) -> None:
    server = ExampleServer()

    async def rounds(ctx: AnyContext) -> CallToolResult | InputRequiredResult:
        number = int(ctx.request_state or 0)
        if number < 3:
            return InputRequiredResult(
                input_requests={"sure": question(f"Round {number}")}, request_state=str(number + 1)
            )
        answer = (ctx.input_responses or {})["sure"]
        assert isinstance(answer, ElicitResult)
        return CallToolResult(content=[TextContent(text=f"{number} {answer.content}")])

    serve(server, way, rounds)
    seen: dict[str, str] = {}
    async with server.open() as caller:
        task_id = await caller.start("rounds")
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                for key, request in task.get("inputRequests", {}).items():
                    if key not in seen:
                        seen[key] = request["params"]["message"]
                        content = {"sure": len(seen) == 3}
                        await caller.update(task_id, {key: {"action": "accept", "content": content}})
        assert (await caller.result(task_id))["content"][0]["text"] == "3 {'sure': True}"
    assert list(seen.values()) == ["Round 0", "Round 1", "Round 2"]


async def test_a_tool_that_asks_without_a_context_is_called_once_for_each_round() -> None:
    server = ExampleServer()
    called = 0

    @server.tasks.tool
    async def counts() -> CallToolResult | InputRequiredResult:
        nonlocal called
        called += 1
        if called < 3:
            return InputRequiredResult(input_requests={}, request_state="again")
        return CallToolResult(content=[])

    async with server.open() as caller:
        await caller.result(await caller.start("counts"))
    assert called == 3


async def test_a_tool_that_asks_without_end_is_stopped() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def circle() -> CallToolResult | InputRequiredResult:
        return InputRequiredResult(input_requests={}, request_state="again")

    async with server.open() as caller:
        result = await caller.result(await caller.start("circle"))
        assert result["isError"] is True
        assert "did not end" in result["content"][0]["text"]


async def test_a_function_can_take_the_sdks_context_and_the_task_together() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def coroutine(ctx: AnyContext, task: TaskContext) -> bool:
        return ctx.request_id == task.id

    @server.tasks.tool
    def function(task: SyncTaskContext, ctx: AnyContext) -> bool:
        task.progress(1, 1, "in a thread")
        return ctx.request_id == task.id == task.step("same", lambda: task.id)

    async with server.open() as caller:
        for tool in ("coroutine", "function"):
            assert (await caller.result(await caller.start(tool)))["structuredContent"] == {"result": True}, tool


async def test_resolvers_get_the_arguments_and_the_context_of_the_task() -> None:
    server = ExampleServer()

    def describe(words: str, ctx: AnyContext) -> str:
        return f"{words} on {ctx.mcp_server.name}"

    @server.tasks.tool
    def function(words: str, described: Annotated[str, Resolve(describe)]) -> str:
        return f"{words}: {described}"

    @server.tasks.tool
    async def coroutine(words: str, task: TaskContext, described: Annotated[str, Resolve(describe)]) -> str:
        return f"{words}: {described} {task.attempt}"

    async with server.open() as caller:
        result = await caller.result(await caller.start("function", {"words": "pears"}))
        assert result["content"][0]["text"] == "pears: pears on shop"
        result = await caller.result(await caller.start("coroutine", {"words": "pears"}))
        assert result["content"][0]["text"] == "pears: pears on shop 1"


async def test_a_request_that_tasks_can_not_send_is_refused() -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def ping(ctx: AnyContext) -> str:
        await ctx.session.send_ping()
        return "?"

    async with server.open() as caller:
        task = await caller.until(await caller.start("ping"))
        assert task["status"] == "failed"
        assert "can't send ping" in task["error"]["message"]
