"""The tool list of callers without tasks, by the modes of the tools and the names of the fallback tools."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any

import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

from raincheck import FallbackTools, Tasks
from raincheck.clock import SystemClock
from raincheck.errors import ConfigurationError
from tests.support.server.caller_v2026 import TASKS, Caller, Refused
from tests.support.server.example import LONG_LEASE, QUICK, ExampleServer
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    FALLBACK_TOOL_NAMES,
    MODERN,
    ON_FALLBACK_TRANSPORTS,
    Model,
    connected_host,
    model_text,
    next_call,
    task_id_of,
)
from tests.support.server.tools import add_gated, add_greeting
from tests.support.server.transports import in_memory
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio

AnyContext = ServerRequestContext[Any, Any]


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_a_tool_without_tasks_is_awaited_without_a_limit(version: str, way: str) -> None:
    clock = WatchedClock()
    example_server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_gated(example_server, mode="forbidden")
    add_gated(example_server, "other")
    async with connected_host(example_server, version, way, clock=clock) as model:
        calling = model.begin("gated")
        await gate.started.wait()
        for _ in range(10):
            clock.advance(60)
            assert (await model.call("task_status", {"task_id": "unknown"}))["isError"]
        assert not calling.done()
        gate.open.set()
        answer = await calling
        assert model_text(answer) == "through"
        assert "raincheck/task" not in answer.get("_meta", {})
        assert "anyOf" not in (await model.tools())["gated"]["outputSchema"]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
async def test_a_tool_without_tasks_fails_if_it_asks_a_host_that_can_not_be_asked(
    version: str,
) -> None:
    """The question is not passed to the model, because its caller could not continue with a task."""
    example_server = ExampleServer()
    add_greeting(example_server, mode="forbidden")
    async with connected_host(example_server, version) as model:
        answer = await model.call("greet")
        assert answer["isError"] is True
        assert "did not declare the capability elicitation" in model_text(answer)


@BY_VERSIONS
async def test_a_tool_that_requires_a_task_rejects_a_fallback_host(version: str) -> None:
    example_server = ExampleServer()
    add_gated(example_server, mode="required")
    async with connected_host(example_server, version) as model:
        with pytest.raises(Refused) as refused:
            await model.call("gated")
        assert refused.value.code == (-32021 if version == MODERN else -32601)


@BY_VERSIONS
@pytest.mark.parametrize("mode", ["required", "forbidden"])
async def test_a_server_without_automatic_tasks_lists_no_fallback_tools(mode: str, version: str) -> None:
    example_server = ExampleServer()
    add_gated(example_server, mode=mode)

    @example_server.mcp.tool()
    async def plain() -> str:
        return "plain"

    async with connected_host(example_server, version) as model:
        assert set(await model.tools()) == {"gated", "plain"}


@BY_VERSIONS
async def test_an_enabled_tool_works_like_one_registered_for_tasks(version: str) -> None:
    example_server = ExampleServer(fallback_wait=0.1)
    go = asyncio.Event()

    @example_server.mcp.tool()
    async def theirs() -> str:
        await go.wait()
        return "done"

    example_server.tasks.enable("their*")
    async with connected_host(example_server, version) as model:
        tools = await model.tools()
        assert list(tools) == ["theirs", *FALLBACK_TOOL_NAMES]
        assert "anyOf" in tools["theirs"]["outputSchema"]
        handle = await model.call("theirs")
        go.set()
        assert model_text(await model.call_next(handle)) == "done"


@ON_FALLBACK_TRANSPORTS
@BY_VERSIONS
async def test_without_fallback_wait_there_are_no_fallback_tools_and_calls_wait(version: str, way: str) -> None:
    clock = WatchedClock()
    example_server = ExampleServer(clock=clock, settings=LONG_LEASE, fallback_wait=None)
    gate = add_gated(example_server)
    async with connected_host(example_server, version, way, clock=clock) as model:
        tools = await model.tools()
        assert list(tools) == ["gated"]
        assert "anyOf" not in tools["gated"]["outputSchema"]
        calling = model.begin("gated")
        await gate.started.wait()
        for _ in range(10):
            clock.advance(60)
            assert list(await model.tools()) == ["gated"]
        assert not calling.done()
        gate.open.set()
        assert model_text(await calling) == "through"
        unknown = (
            await model.caller.begin("tools/call", {"name": "task_wait", "arguments": {"task_id": "x"}})
            if (not isinstance(model.caller, Caller))
            else None
        )
        assert unknown is None or "Unknown tool" in str(await unknown.received)


async def test_without_fallback_wait_a_server_may_use_the_names_of_fallback_tools() -> None:
    example_server = ExampleServer(fallback_wait=None)
    add_gated(example_server)

    @example_server.mcp.tool()
    async def task_wait() -> str:
        return "its own"

    async with connected_host(example_server) as model:
        assert model_text(await model.call("task_wait")) == "its own"


@BY_VERSIONS
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (FallbackTools.prefixed("reports_"), [f"reports_{name}" for name in FALLBACK_TOOL_NAMES]),
        (FallbackTools(wait="wait.for-it", answer="Reply"), ["wait.for-it", *FALLBACK_TOOL_NAMES[1:4], "Reply"]),
    ],
    ids=["prefixed", "renamed"],
)
async def test_the_fallback_tools_can_be_renamed_and_all_texts_use_the_new_names(
    names: FallbackTools, expected: list[str], version: str
) -> None:
    example_server = ExampleServer(fallback_wait=0.1, fallback_tools=names)
    gate = add_gated(example_server)
    add_greeting(example_server)
    wait, status, result, cancel, answer = expected
    async with connected_host(example_server, version) as model:
        tools = await model.tools()
        assert list(tools) == ["gated", "greet", *expected]
        usual = set(FALLBACK_TOOL_NAMES) - set(expected)
        assert not any(name in str(tools) for name in usual if f"_{name}" not in str(expected))
        handle = await model.call("gated")
        assert next_call(handle)[0] == wait
        task = {"task_id": task_id_of(handle)}
        assert next_call(await model.call(status, task))[0] == wait
        assert status in model_text(await model.call(wait, {"task_id": "unknown"}))
        gate.open.set()
        assert model_text(await model.call_next(handle)) == "through"
        assert next_call(await model.call(cancel, task))[0] == result
        asked = await model.call("greet")
        assert next_call(asked)[0] == answer
        assert model_text(await model.call_next(asked, name="Ada")) == "Hello, Ada!"
        refused = await model.call(answer, {"task_id": 7})
        assert model_text(refused).startswith(f"invalid arguments for {answer}: ")


@pytest.mark.parametrize("name", ["", "a b", "ü", "a/b", "x" * 129, "task\nwait", None, 7, ["task_wait"]], ids=repr)
def test_an_invalid_tool_name_is_rejected(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid tool name"):
        FallbackTools(wait=name)


def test_two_fallback_tools_can_not_have_the_same_name() -> None:
    with pytest.raises(
        ConfigurationError, match="five fallback tools need five different names, not task_wait, task_wait"
    ):
        FallbackTools(status="task_wait")


@pytest.mark.parametrize("prefix", ["a b", "ü", "x" * 128])
def test_a_prefix_that_makes_invalid_names_is_rejected(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid tool name"):
        FallbackTools.prefixed(prefix)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fallback_wait": 0}, "fallback_wait"),
        ({"fallback_wait": -1}, "fallback_wait"),
        ({"fallback_wait": 3_601}, "fallback_wait"),
        ({"fallback_wait": float("nan")}, "fallback_wait"),
        ({"fallback_wait": float("inf")}, "fallback_wait"),
        ({"fallback_wait": "45"}, "fallback_wait"),
        ({"fallback_wait": True}, "fallback_wait"),
        ({"fallback_tools": "reports_"}, "fallback_tools is a FallbackTools"),
        ({"fallback_tools": {"wait": "x"}}, "fallback_tools is a FallbackTools"),
    ],
    ids=str,
)
def test_invalid_fallback_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Tasks(MCPServer("shop"), "memory:", **options)


@pytest.mark.parametrize("name", FALLBACK_TOOL_NAMES)
@pytest.mark.parametrize("how", ["its own", "a task"])
async def test_a_server_with_a_conflicting_tool_name_does_not_start_and_names_the_remedy(how: str, name: str) -> None:
    example_server = ExampleServer()
    add_gated(example_server)

    async def taken() -> str:
        return "taken"

    (example_server.mcp.tool if how == "its own" else example_server.tasks.tool)(name=name)(taken)
    with pytest.raises(ConfigurationError) as refused:
        async with example_server.tasks.running():
            pytest.fail("it started")
    assert str(refused.value) == (
        f"the server's tool {name!r} has the name of a fallback tool for callers without tasks: "
        'rename the tool, or pass fallback_tools=FallbackTools.prefixed("…_")'
    )


async def test_a_server_with_a_conflicting_tool_starts_when_the_fallback_tools_are_renamed() -> None:
    example_server = ExampleServer(fallback_wait=0.1, fallback_tools=FallbackTools.prefixed("shop_"))
    add_gated(example_server)

    @example_server.mcp.tool()
    async def task_wait() -> str:
        return "its own"

    async with connected_host(example_server) as model:
        assert model_text(await model.call("task_wait")) == "its own"
        assert next_call(await model.call("gated"))[0] == "shop_task_wait"


async def test_a_server_without_automatic_tasks_may_use_the_names_of_fallback_tools() -> None:
    example_server = ExampleServer()
    add_gated(example_server, mode="required")

    @example_server.mcp.tool()
    async def task_wait() -> str:
        return "its own"

    async with example_server.tasks.running():
        pass  # it starts
    async with connected_host(example_server) as model:
        assert list(await model.tools()) == ["gated", "task_wait"]
        assert model_text(await model.call("task_wait")) == "its own"


async def test_a_conflicting_tool_that_is_added_later_is_listed_once_and_called() -> None:
    example_server = ExampleServer()
    add_gated(example_server)
    async with connected_host(example_server) as model:

        @example_server.mcp.tool()
        async def task_wait() -> str:
            return "its own"

        assert list(await model.tools()).count("task_wait") == 1
        assert model_text(await model.call("task_wait")) == "its own"


def low_level(*names: str, page: int = 100, **options: Any) -> tuple[Server[Any], Tasks, asyncio.Event]:
    """A low-level server with these tools, which it lists in pages. The tools wait until the test lets them."""
    go = asyncio.Event()

    async def call_tool(_: AnyContext, params: CallToolRequestParams) -> CallToolResult:
        await go.wait()
        return CallToolResult(content=[TextContent(text=f"{params.name} is done")])

    async def list_tools(_: AnyContext, params: PaginatedRequestParams | None) -> ListToolsResult:
        begin = int(params.cursor or 0) if params is not None else 0
        tools = [Tool(name=name, input_schema={"type": "object"}) for name in names[begin : begin + page]]
        end = begin + page
        return ListToolsResult(tools=tools, next_cursor=str(end) if end < len(names) else None)

    server: Server[Any] = Server("low", on_call_tool=call_tool, on_list_tools=list_tools)
    options.setdefault("fallback_wait", 0.1)
    return server, Tasks(server, "memory:", settings=QUICK, **options), go


async def test_a_low_level_server_serves_fallback_hosts_too() -> None:
    server, tasks, go = low_level("one", "two")
    tasks.enable("one")
    async with in_memory(server) as transport:
        model = Model(Caller(transport, capabilities={}), SystemClock())
        assert list(await model.tools()) == ["one", "two", *FALLBACK_TOOL_NAMES]
        handle = await model.call("one")
        go.set()
        assert model_text(await model.call_next(handle)) == "one is done"
        knows = Model(Caller(transport, capabilities=TASKS), SystemClock())
        assert list(await knows.tools()) == ["one", "two"]


async def test_a_low_level_server_without_enabled_tools_lists_only_its_own() -> None:
    server, _, _ = low_level("one")
    async with in_memory(server) as transport:
        assert list(await Model(Caller(transport, capabilities={}), SystemClock()).tools()) == ["one"]


async def pages_of(caller: Caller) -> list[list[str]]:
    """The names of all tools by page."""
    pages: list[list[str]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = await caller.request("tools/list", cursor)
        pages.append([tool["name"] for tool in page["tools"]])
        if "nextCursor" not in page:
            return pages
        cursor = {"cursor": page["nextCursor"]}


async def test_only_the_last_page_of_a_tool_list_has_the_fallback_tools() -> None:
    server, tasks, _ = low_level("one", "two", "three", "four", "five", page=2)
    tasks.enable("four")
    async with in_memory(server) as transport:
        caller = Caller(transport, capabilities={})
        assert await pages_of(caller) == [["one", "two"], ["three", "four"], ["five", *FALLBACK_TOOL_NAMES]]


@pytest.mark.parametrize("page", [100, 2])
async def test_a_low_level_server_lists_a_conflicting_tool_once(page: int) -> None:
    """It reports its tools only in its list, perhaps page by page."""
    server, tasks, _ = low_level("one", "task_wait", "three", page=page)
    tasks.enable("one")
    async with in_memory(server) as transport:
        caller = Caller(transport, capabilities={})
        names = [name for page in await pages_of(caller) for name in page]
        assert names.count("task_wait") == 1
