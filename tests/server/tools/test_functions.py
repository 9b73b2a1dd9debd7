"""How calls of served tools run: isolated, retried after a crash, as children, and from the program itself."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.resolve import Resolve
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel

from raincheck import OnInterrupt, RetryPolicy, TaskContext, TaskFailed, ToolError
from raincheck.errors import ConfigurationError
from tests.support.server import isolated_functions as functions
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.transports import in_memory

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=3, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)


async def test_a_tool_can_run_in_a_separate_process() -> None:
    async with in_memory(functions.mcp) as transport:
        caller = Caller(transport)
        tools = ("sell", "sell_later")
        ids = [await caller.start(tool, {"order": {"item": "pears", "count": "2"}}) for tool in tools]
        for task_id in ids:
            receipt = (await caller.result(task_id))["structuredContent"]
            assert receipt["text"] == "2 pears"
            assert receipt["process"] != os.getpid()


async def test_errors_of_an_isolated_tool_reach_the_caller_unchanged() -> None:
    async with in_memory(functions.mcp) as transport:
        caller = Caller(transport)
        ids = [await caller.start("refuse", {"how": how}) for how in ("tool", "sdk", "protocol")]
        tool_error, sdk_error, protocol = [await caller.until(one) for one in ids]
    for task in (tool_error, sdk_error):
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert task["result"]["content"][0]["text"] == "out of stock"
    assert protocol["status"] == "failed"
    assert protocol["error"] == {"code": -32050, "message": "closed", "data": {"until": "Monday"}}


async def test_a_tool_that_kills_its_process_fails_its_task_and_not_the_server() -> None:
    async with in_memory(functions.mcp) as transport:
        caller = Caller(transport)
        assert (await caller.until(await caller.start("die")))["status"] == "failed"
        assert "tools" in await caller.request("tools/list")


async def test_bad_arguments_of_an_isolated_tool_start_no_process() -> None:
    async with in_memory(functions.mcp) as transport:
        answer = await Caller(transport).call("sell", {"order": {"count": 2}})
        assert (answer["resultType"], answer["isError"]) == ("complete", True)


async def test_a_function_of_another_module_can_run_in_a_separate_process() -> None:
    server = ExampleServer()
    server.tasks.tool(isolation="process", retry=RetryPolicy(attempts=1))(functions.undecorated)
    async with server.open() as caller:
        result = await caller.result(await caller.start("undecorated", {"order": {"item": "pears"}}))
        assert result["structuredContent"]["text"] == "1 pears"


def _with_context(ctx: Context[Any, Any]) -> str:
    return ctx.request_id


def _with_resolver(path: Annotated[str, Resolve(os.getcwd)]) -> str:
    return path


@pytest.mark.parametrize("fn", [_with_context, _with_resolver])
def test_an_isolated_tool_can_not_take_parameters_from_the_server(fn: Any) -> None:
    with pytest.raises(ConfigurationError, match="no Context and no Resolve"):
        ExampleServer().tasks.tool(isolation="process")(fn)


def test_a_function_that_another_process_could_not_find_is_not_isolated() -> None:
    def local() -> None: ...

    with pytest.raises(ConfigurationError, match="top level of a module"):
        ExampleServer().tasks.tool(isolation="process")(local)


HINTS = [
    (ToolAnnotations(destructive_hint=True), 1),
    (ToolAnnotations(destructive_hint=True, idempotent_hint=False), 1),
    (ToolAnnotations(destructive_hint=True, idempotent_hint=True), 2),
    (ToolAnnotations(destructive_hint=False), 2),
    (ToolAnnotations(read_only_hint=True), 2),
    (None, 2),
]


@pytest.mark.parametrize("way", ["tool", "enable"])
@pytest.mark.parametrize(("annotations", "runs"), HINTS)
async def test_a_destructive_tool_that_is_not_idempotent_is_not_run_again_after_an_interruption(
    way: str, annotations: ToolAnnotations | None, runs: int, tmp_path: Path
) -> None:
    began: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]
    count = 0

    def build() -> ExampleServer:
        server = ExampleServer(tmp_path / "tasks.db")

        async def destroy() -> None:
            nonlocal count
            began[count].set()
            count += 1
            await asyncio.Event().wait()

        if way == "tool":
            server.tasks.tool(annotations=annotations)(destroy)
        else:
            server.mcp.tool(annotations=annotations)(destroy)
            server.tasks.enable("destroy")
        return server

    async with build().open() as caller:
        task_id = await caller.start("destroy")
        await began[0].wait()
    async with build().open() as caller:
        if runs == 1:
            task = await caller.until(task_id)
            assert task["status"] == "failed"
            assert "must not be run twice" in task["error"]["message"]
        else:
            await began[1].wait()
            assert (await caller.get(task_id))["status"] == "working"
    assert count == runs


async def test_an_explicit_retry_policy_overrides_the_annotations(tmp_path: Path) -> None:
    began = asyncio.Event()

    def build() -> ExampleServer:
        server = ExampleServer(tmp_path / "tasks.db")
        policy = RetryPolicy(on_interrupt=OnInterrupt.RETRY)

        @server.tasks.tool(annotations=ToolAnnotations(destructive_hint=True), retry=policy)
        async def destroy(task: TaskContext) -> int:
            if task.attempt == 1:
                began.set()
                await asyncio.Event().wait()
            return task.attempt

        return server

    async with build().open() as caller:
        task_id = await caller.start("destroy")
        await began.wait()
    async with build().open() as caller:
        assert (await caller.result(task_id))["structuredContent"] == {"result": 2}


@pytest.mark.parametrize("way", ["tool", "enable"])
async def test_a_tool_that_crashes_is_retried_by_its_policy(way: str) -> None:
    server = ExampleServer()
    attempts = 0

    async def crash() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError("secret")
        return f"at the {attempts}rd attempt"

    if way == "tool":
        server.tasks.tool(retry=AT_ONCE)(crash)
    else:
        server.mcp.add_tool(crash)
        server.tasks.enable("crash", retry=AT_ONCE)
    async with server.open() as caller:
        result = await caller.result(await caller.start("crash"))
        assert result["content"][0]["text"] == "at the 3rd attempt"


async def test_errors_that_a_tool_raises_on_purpose_are_not_retried() -> None:
    server = ExampleServer()
    attempts = 0

    @server.tasks.tool(retry=AT_ONCE)
    async def refuse() -> str:
        nonlocal attempts
        attempts += 1
        raise SdkToolError("no")

    async with server.open() as caller:
        assert (await caller.result(await caller.start("refuse")))["isError"] is True
    assert attempts == 1


class Basket(BaseModel):
    pears: int


def server_with_children() -> ExampleServer:
    server = ExampleServer()

    @server.tasks.tool
    async def pick(pears: int) -> Basket:
        if pears > 100:
            raise ToolError("too many")
        return Basket(pears=pears)

    @server.tasks.tool
    def say(words: str) -> str:
        return words

    @server.tasks.tool
    def count() -> int:
        return 7

    @server.mcp.tool()
    async def listed() -> list[int]:
        return [1, 2]

    @server.tasks.tool
    async def nothing() -> None: ...

    @server.tasks.tool(structured_output=False)
    async def unstructured(words: str) -> str:
        return words

    @server.tasks.tool
    def report_error() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="too many")], is_error=True)

    server.tasks.enable("listed")
    return server


@pytest.mark.parametrize(
    ("tool", "arguments", "value"),
    [
        ("pick", {"pears": 3}, {"pears": 3}),
        ("say", {"words": "yes"}, "yes"),
        ("count", {}, 7),
        ("listed", {}, [1, 2]),
        ("nothing", {}, None),
        ("unstructured", {"words": "a text"}, "a text"),
    ],
)
async def test_a_body_gets_the_value_of_another_served_tool(tool: str, arguments: dict[str, Any], value: Any) -> None:
    server = server_with_children()
    got: list[Any] = []

    @server.tasks.tool
    async def parent(task: TaskContext) -> None:
        got.append(await (await task.spawn(tool, arguments)).result())

    async with server.open() as caller:
        await caller.result(await caller.start("parent"))
    assert got[-1] == value


@pytest.mark.parametrize(("tool", "arguments"), [("pick", {"pears": 101}), ("report_error", {})])
async def test_a_body_gets_the_error_of_another_served_tool(tool: str, arguments: dict[str, Any]) -> None:
    server = server_with_children()

    @server.tasks.tool
    async def parent(task: TaskContext) -> str:
        child = await task.spawn(tool, arguments)
        try:
            await child.result()
        except TaskFailed as error:
            return str(error)
        return "?"

    async with server.open() as caller:
        assert "too many" in (await caller.result(await caller.start("parent")))["content"][0]["text"]


async def test_a_task_passes_its_value_to_the_next_served_tool() -> None:
    server = server_with_children()
    handed: list[Any] = []
    next_id = ""

    @server.tasks.tool
    async def publish(result: Basket, place: str) -> str:
        handed.append((result, place))
        return "published"

    @server.tasks.tool
    async def first(task: TaskContext) -> Basket:
        nonlocal next_id
        next_id = await task.then("publish", {"place": "here"})
        return Basket(pears=2)

    async with server.open() as caller:
        await caller.result(await caller.start("first"))
        assert (await caller.result(next_id))["content"][0]["text"] == "published"
    assert handed == [(Basket(pears=2), "here")]


async def test_the_program_itself_calls_a_tool_as_a_task() -> None:
    server = server_with_children()
    ids: list[str] = []

    @server.tasks.tool
    async def watched(basket: Basket, task: TaskContext) -> int:
        ids.append(task.id)
        return basket.pears

    async with server.open() as caller:
        await caller.request("server/discover")
        result = await server.mcp.call_tool("watched", {"basket": {"pears": 3}})
        assert isinstance(result, CallToolResult)
        assert result.structured_content == {"result": 3}
        assert (await server.tasks.engine.view(ids[0])).task.is_terminal


async def test_the_program_that_calls_a_tool_gets_errors_as_from_the_sdk() -> None:
    server = server_with_children()

    @server.tasks.tool
    async def break_down() -> str:
        raise MCPError(-32050, "closed")

    async with server.open() as caller:
        await caller.request("server/discover")
        with pytest.raises(SdkToolError, match="validation error"):
            await server.mcp.call_tool("pick", {"pears": "none"})
        with pytest.raises(MCPError, match="closed"):
            await server.mcp.call_tool("break_down", {})
        with pytest.raises(SdkToolError, match="too many"):
            await server.mcp.call_tool("pick", {"pears": 101})


async def test_a_body_that_calls_a_tool_directly_is_refused_and_should_spawn_it() -> None:
    server = server_with_children()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def parent() -> str:
        try:
            await server.mcp.call_tool("pick", {"pears": 1})
        except SdkToolError as error:
            return str(error.__cause__)
        return "?"

    async with server.open() as caller:
        text = (await caller.result(await caller.start("parent")))["content"][0]["text"]
        assert text == "a task can't call tool 'pick' directly: call it with `task.spawn`"
