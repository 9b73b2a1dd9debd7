"""What callers without tasks are shown of a server, by how its tools are set, and what the five tools are called."""

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
from tests.support.server.example import QUICK, Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.fallback.hosts import (
    BY_VERSIONS,
    FIVE,
    MODERN,
    ON_PLAIN_WIRES,
    Model,
    handle_of,
    hosted,
    next_call,
    told,
)
from tests.support.server.tools import add_gated, add_greeting
from tests.support.server.transports import in_memory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

AnyContext = ServerRequestContext[Any, Any]


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_a_tool_that_hands_out_no_task_is_waited_for_however_long_it_takes(version: str, way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop, mode="forbidden")
    add_gated(shop, "other")
    async with hosted(shop, version, way, clock=clock) as model:
        calling = model.begin("gated")
        await gate.begun.wait()
        for _ in range(10):
            clock.advance(60)
            assert (await model.call("task_status", {"task_id": "unknown"}))["isError"]
        assert not calling.done()
        gate.open.set()
        answer = await calling
        assert told(answer) == "through"
        assert "raincheck/task" not in answer.get("_meta", {})
        assert "anyOf" not in (await model.tools())["gated"]["outputSchema"]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
async def test_a_tool_that_hands_out_no_task_says_so_if_it_has_to_ask_somebody_who_can_not_be_asked(
    version: str,
) -> None:
    """It has no words to ask in, since its caller could not go on."""
    shop = Shop()
    add_greeting(shop, mode="forbidden")
    async with hosted(shop, version) as model:
        answer = await model.call("greet")
        assert answer["isError"] is True
        assert "did not declare the capability elicitation" in told(answer)


@BY_VERSIONS
async def test_a_tool_of_tasks_alone_is_refused_as_ever(version: str) -> None:
    shop = Shop()
    add_gated(shop, mode="required")
    async with hosted(shop, version) as model:
        with pytest.raises(Refused) as refused:
            await model.call("gated")
        assert refused.value.code == (-32021 if version == MODERN else -32601)


@BY_VERSIONS
@pytest.mark.parametrize("mode", ["required", "forbidden"])
async def test_a_server_none_of_whose_tools_leads_to_the_five_lists_none_of_them(mode: str, version: str) -> None:
    shop = Shop()
    add_gated(shop, mode=mode)

    @shop.mcp.tool()
    async def plain() -> str:
        return "plain"

    async with hosted(shop, version) as model:
        assert set(await model.tools()) == {"gated", "plain"}


@BY_VERSIONS
async def test_a_tool_that_is_enabled_is_as_good_as_one_that_was_made_for_tasks(version: str) -> None:
    shop = Shop(fallback_wait=0.1)
    go = asyncio.Event()

    @shop.mcp.tool()
    async def theirs() -> str:
        await go.wait()
        return "done"

    shop.tasks.enable("their*")
    async with hosted(shop, version) as model:
        tools = await model.tools()
        assert list(tools) == ["theirs", *FIVE]
        assert "anyOf" in tools["theirs"]["outputSchema"]
        handle = await model.call("theirs")
        go.set()
        assert told(await model.go_on(handle)) == "done"


@ON_PLAIN_WIRES
@BY_VERSIONS
async def test_without_a_wait_there_are_no_such_tools_and_everybody_waits(version: str, way: str) -> None:
    clock = WatchedClock()
    shop = Shop(clock=clock, settings=LEASED, fallback_wait=None)
    gate = add_gated(shop)
    async with hosted(shop, version, way, clock=clock) as model:
        tools = await model.tools()
        assert list(tools) == ["gated"]
        assert "anyOf" not in tools["gated"]["outputSchema"]
        calling = model.begin("gated")
        await gate.begun.wait()
        for _ in range(10):
            clock.advance(60)
            assert list(await model.tools()) == ["gated"]
        assert not calling.done()
        gate.open.set()
        assert told(await calling) == "through"
        unknown = (
            await model.caller.begin("tools/call", {"name": "task_wait", "arguments": {"task_id": "x"}})
            if (not isinstance(model.caller, Caller))
            else None
        )
        assert unknown is None or "Unknown tool" in str(await unknown.came)


async def test_without_a_wait_a_server_may_have_tools_of_these_names_itself() -> None:
    shop = Shop(fallback_wait=None)
    add_gated(shop)

    @shop.mcp.tool()
    async def task_wait() -> str:
        return "its own"

    async with hosted(shop) as model:
        assert told(await model.call("task_wait")) == "its own"


@BY_VERSIONS
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (FallbackTools.prefixed("reports_"), [f"reports_{name}" for name in FIVE]),
        (FallbackTools(wait="wait.for-it", answer="Reply"), ["wait.for-it", *FIVE[1:4], "Reply"]),
    ],
    ids=["prefixed", "renamed"],
)
async def test_the_five_can_have_other_names_which_all_texts_use(
    names: FallbackTools, expected: list[str], version: str
) -> None:
    shop = Shop(fallback_wait=0.1, fallback_tools=names)
    gate = add_gated(shop)
    add_greeting(shop)
    wait, status, result, cancel, answer = expected
    async with hosted(shop, version) as model:
        tools = await model.tools()
        assert list(tools) == ["gated", "greet", *expected]
        usual = set(FIVE) - set(expected)
        assert not any(name in str(tools) for name in usual if f"_{name}" not in str(expected))
        handle = await model.call("gated")
        assert next_call(handle)[0] == wait
        task = {"task_id": handle_of(handle)}
        assert next_call(await model.call(status, task))[0] == wait
        assert status in told(await model.call(wait, {"task_id": "unknown"}))
        gate.open.set()
        assert told(await model.go_on(handle)) == "through"
        assert next_call(await model.call(cancel, task))[0] == result
        asked = await model.call("greet")
        assert next_call(asked)[0] == answer
        assert told(await model.go_on(asked, name="Ada")) == "Hello, Ada!"
        refused = await model.call(answer, {"task_id": 7})
        assert told(refused).startswith(f"{answer} can't be called like that")


@pytest.mark.parametrize("name", ["", "a b", "ü", "a/b", "x" * 129, "task\nwait", None, 7, ["task_wait"]], ids=repr)
def test_a_name_that_no_tool_can_have_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="the name of a tool is made of"):
        FallbackTools(wait=name)


def test_two_of_the_five_can_not_have_one_name() -> None:
    with pytest.raises(ConfigurationError, match="five tools need five names, not task_wait, task_wait"):
        FallbackTools(status="task_wait")


@pytest.mark.parametrize("prefix", ["a b", "ü", "x" * 128])
def test_a_prefix_that_no_tool_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="the name of a tool is made of"):
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
def test_what_such_callers_can_not_be_served_with_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Tasks(MCPServer("shop"), "memory:", **options)


@pytest.mark.parametrize("name", FIVE)
@pytest.mark.parametrize("how", ["its own", "a task"])
async def test_a_server_that_has_a_tool_of_such_a_name_does_not_start_and_says_what_to_do(how: str, name: str) -> None:
    shop = Shop()
    add_gated(shop)

    async def taken() -> str:
        return "taken"

    (shop.mcp.tool if how == "its own" else shop.tasks.tool)(name=name)(taken)
    with pytest.raises(ConfigurationError) as refused:
        async with shop.tasks.running():
            pytest.fail("it started")
    assert str(refused.value) == (
        f"the server has a tool {name!r}, a name that is needed for callers without tasks: "
        'give the tool another name, or give fallback_tools=FallbackTools.prefixed("…_")'
    )


async def test_a_server_with_such_a_tool_starts_when_the_five_have_other_names() -> None:
    shop = Shop(fallback_wait=0.1, fallback_tools=FallbackTools.prefixed("shop_"))
    add_gated(shop)

    @shop.mcp.tool()
    async def task_wait() -> str:
        return "its own"

    async with hosted(shop) as model:
        assert told(await model.call("task_wait")) == "its own"
        assert next_call(await model.call("gated"))[0] == "shop_task_wait"


async def test_a_server_none_of_whose_tools_leads_to_the_five_may_have_tools_of_these_names() -> None:
    shop = Shop()
    add_gated(shop, mode="required")

    @shop.mcp.tool()
    async def task_wait() -> str:
        return "its own"

    async with shop.tasks.running():
        pass  # it starts
    async with hosted(shop) as model:
        assert list(await model.tools()) == ["gated", "task_wait"]
        assert told(await model.call("task_wait")) == "its own"


async def test_a_tool_of_such_a_name_that_is_added_later_is_not_listed_twice_and_is_the_one_that_is_called() -> None:
    shop = Shop()
    add_gated(shop)
    async with hosted(shop) as model:

        @shop.mcp.tool()
        async def task_wait() -> str:
            return "its own"

        assert list(await model.tools()).count("task_wait") == 1
        assert told(await model.call("task_wait")) == "its own"


def low_level(*names: str, page: int = 100, **options: Any) -> tuple[Server[Any], Tasks, asyncio.Event]:
    """A low-level server with these tools, which it lists page by page; they wait until they are let."""
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


async def test_a_low_level_server_serves_such_callers_too() -> None:
    server, tasks, go = low_level("one", "two")
    tasks.enable("one")
    async with in_memory(server) as wire:
        model = Model(Caller(wire, capabilities={}), SystemClock())
        assert list(await model.tools()) == ["one", "two", *FIVE]
        handle = await model.call("one")
        go.set()
        assert told(await model.go_on(handle)) == "one is done"
        knows = Model(Caller(wire, capabilities=TASKS), SystemClock())
        assert list(await knows.tools()) == ["one", "two"]


async def test_a_low_level_server_with_nothing_enabled_lists_only_what_it_has() -> None:
    server, _, _ = low_level("one")
    async with in_memory(server) as wire:
        assert list(await Model(Caller(wire, capabilities={}), SystemClock()).tools()) == ["one"]


async def pages_of(caller: Caller) -> list[list[str]]:
    """The names of all tools, page by page."""
    pages: list[list[str]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = await caller.request("tools/list", cursor)
        pages.append([tool["name"] for tool in page["tools"]])
        if "nextCursor" not in page:
            return pages
        cursor = {"cursor": page["nextCursor"]}


async def test_of_a_list_in_pages_the_last_one_has_the_five_and_only_that() -> None:
    server, tasks, _ = low_level("one", "two", "three", "four", "five", page=2)
    tasks.enable("four")
    async with in_memory(server) as wire:
        caller = Caller(wire, capabilities={})
        assert await pages_of(caller) == [["one", "two"], ["three", "four"], ["five", *FIVE]]


@pytest.mark.parametrize("page", [100, 2])
async def test_a_low_level_server_with_a_tool_of_such_a_name_lists_it_once(page: int) -> None:
    """What it has, it only says when it is asked, and perhaps page by page."""
    server, tasks, _ = low_level("one", "task_wait", "three", page=page)
    tasks.enable("one")
    async with in_memory(server) as wire:
        caller = Caller(wire, capabilities={})
        names = [name for page in await pages_of(caller) for name in page]
        assert names.count("task_wait") == 1
