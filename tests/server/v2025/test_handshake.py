"""The handshake of 2025-11-25: the declared task capabilities per caller, and the task support of tools."""

# pyright: reportUnusedFunction=false

from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, Tool

from raincheck import Owner, Tasks
from raincheck.server.sdk_compat import AnyContext
from tests.server.test_owners import make_with_tokens
from tests.support.server.caller_v2025 import VERSION, V2025Caller, connected, v2025_caller
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.transports import in_memory
from tests.support.server.transports_v2025 import v2025_http, v2025_memory, v2025_serving
from tests.support.server.v2025.tools import ALICE, ON_ALL_V2025_TRANSPORTS, add_echo, count_tasks, refusal

pytestmark = pytest.mark.anyio

WITH_LIST: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
WITHOUT_LIST: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}

OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]
METHODS = ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"]


@pytest.mark.requirement("v2025-capability-declared", "v2025-list-not-for-strangers")
@ON_ALL_V2025_TRANSPORTS
async def test_tasks_list_is_declared_only_to_callers_that_can_be_told_apart(way: str) -> None:
    async with v2025_caller(ExampleServer(), way) as caller:
        assert caller.welcome["protocolVersion"] == VERSION
        assert caller.welcome["capabilities"]["tasks"] == (WITH_LIST if way == "memory" else WITHOUT_LIST)


@pytest.mark.requirement("v2025-capability-declared", "v2025-list-not-for-strangers")
async def test_a_caller_with_a_header_or_a_token_is_offered_lists() -> None:
    async with v2025_caller(ExampleServer(), "http", headers=ALICE) as caller:
        assert caller.welcome["capabilities"]["tasks"] == WITH_LIST
    async with v2025_caller(make_with_tokens(), "http", headers=ALICE) as caller:
        assert caller.welcome["capabilities"]["tasks"] == WITH_LIST


def no_owner(_: AnyContext) -> Owner:
    return Owner.anonymous()


def ada(_: AnyContext) -> Owner:
    return Owner.token("", "ada")


@pytest.mark.requirement("v2025-list-not-for-strangers")
async def test_the_owner_that_a_server_determines_decides_which_capabilities_are_declared() -> None:
    async with v2025_caller(ExampleServer(owner=no_owner)) as caller:
        assert caller.welcome["capabilities"]["tasks"] == WITHOUT_LIST
    async with v2025_caller(ExampleServer(owner=ada), "http") as caller:
        assert caller.welcome["capabilities"]["tasks"] == WITH_LIST


def unknown_owner(_: AnyContext) -> Owner:
    raise RuntimeError("postgres://admin:hunter2@db")


async def test_a_caller_without_an_owner_gets_its_handshake_and_no_tasks() -> None:
    example_server = ExampleServer(owner=unknown_owner)
    add_echo(example_server)
    async with v2025_caller(example_server) as caller:
        assert caller.welcome["capabilities"]["tasks"] == WITHOUT_LIST
        for method in (*METHODS, "tools/call"):
            refused = await refusal(caller, method, {"taskId": "unknown", "name": "say", "task": {}})
            assert (refused.code, refused.message) == (-32603, "Internal server error")
        await caller.ping()


async def test_the_servers_other_capabilities_are_declared_as_usual() -> None:
    async with v2025_caller(ExampleServer()) as caller:
        welcome = {**caller.welcome, "capabilities": {**caller.welcome["capabilities"]}}
    del welcome["capabilities"]["tasks"]
    async with v2025_memory(ExampleServer().mcp) as transport, connected(transport, version="2025-06-18") as older:
        assert welcome["capabilities"] == older.welcome["capabilities"]
        assert welcome["serverInfo"] == older.welcome["serverInfo"]


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.requirement("v2025-task-ignored-if-not-declared")
async def test_a_version_without_tasks_gets_no_task_capability_and_no_task_methods(version: str) -> None:
    example_server = ExampleServer()
    add_gated(example_server).open.set()
    async with v2025_caller(example_server, version=version) as caller:
        assert caller.welcome["protocolVersion"] == version
        assert "tasks" not in caller.welcome["capabilities"]
        assert all("execution" not in tool for tool in (await caller.request("tools/list"))["tools"])
        for method in METHODS:
            refused = await refusal(caller, method, {"taskId": "unknown"})
            assert (refused.code, refused.message) == (-32601, "Method not found")
        # A field that means nothing to that version, whatever is in it.
        for task in ({"ttl": 60_000}, {"ttl": -1}, {}):
            assert text_of(await caller.call("gated", task=task)) == "through"


async def test_the_version_of_2026_gets_only_the_extension_whatever_else_is_connected() -> None:
    example_server = ExampleServer()
    add_gated(example_server)
    async with v2025_caller(example_server), in_memory(example_server.mcp) as transport:
        capabilities = (await Caller(transport).request("server/discover"))["capabilities"]
        assert "tasks" not in capabilities
        (tool,) = (await Caller(transport).request("tools/list"))["tools"]
        assert "execution" not in tool


async def test_an_unknown_version_is_answered_with_2025_11_25_and_its_tasks() -> None:
    async with v2025_memory(ExampleServer().mcp) as transport:
        welcome = await V2025Caller(transport, version="2099-01-01").greet()
        assert welcome["protocolVersion"] == VERSION
        assert welcome["capabilities"]["tasks"] == WITH_LIST


@pytest.mark.parametrize("version", OLDER)
async def test_a_session_does_not_change_its_version_with_a_header(version: str) -> None:
    """Over HTTP each request repeats the negotiated version. A different version in a request has no effect."""
    example_server = ExampleServer()
    add_gated(example_server)
    async with v2025_caller(example_server, "http", version=version) as caller:
        caller.http.headers["mcp-protocol-version"] = VERSION
        assert (await refusal(caller, "tasks/get", {"taskId": "unknown"})).code == -32601


async def test_without_sessions_each_request_has_the_version_of_its_header() -> None:
    example_server = ExampleServer()
    add_gated(example_server)
    async with v2025_caller(example_server, "http-stateless") as caller:
        task_id = await caller.start("gated")
        for version in OLDER:
            caller.http.headers["mcp-protocol-version"] = version
            assert (await refusal(caller, "tasks/get", {"taskId": task_id})).code == -32601
        caller.http.headers["mcp-protocol-version"] = VERSION
        assert (await caller.get(task_id))["status"] == "working"


@pytest.mark.requirement("v2025-tool-declares-support")
async def test_each_tool_declares_whether_it_may_be_called_as_a_task() -> None:
    example_server = ExampleServer()
    task_support = {"required": "required", "auto": "optional", "forbidden": "forbidden"}
    for name in task_support:
        add_gated(example_server, name, mode=name)
        example_server.mcp.add_tool(plain, name=f"enabled_{name}")
        example_server.tasks.enable(f"enabled_{name}", mode=name)  # type: ignore[arg-type] # one of the three
    add_gated(example_server, "usual")
    example_server.mcp.add_tool(plain, name="enabled_as_usual")
    example_server.tasks.enable("enabled_as_*")
    example_server.mcp.add_tool(plain)
    async with v2025_caller(example_server, capabilities={"tasks": {}}) as caller:
        listed = (await caller.request("tools/list"))["tools"]
        assert {tool["name"]: tool.get("execution") for tool in listed} == {
            **{name: {"taskSupport": support} for name, support in task_support.items()},
            **{f"enabled_{name}": {"taskSupport": support} for name, support in task_support.items()},
            "usual": {"taskSupport": "optional"},
            "enabled_as_usual": {"taskSupport": "optional"},
            "plain": None,
        }
        # And of itself nothing else than before.
        assert {"name", "inputSchema", "outputSchema"} <= listed[0].keys()


async def plain() -> str:
    return "plain"


async def list_pages(_: AnyContext, params: PaginatedRequestParams | None) -> ListToolsResult:
    pages = {None: (["served", "theirs"], "2"), "2": (["other"], None)}
    names, more = pages[None if params is None else params.cursor]
    tools = [
        Tool.model_validate({"name": name, "inputSchema": {"type": "object"}, **THEIRS.get(name, {})}) for name in names
    ]
    return ListToolsResult(tools=tools, next_cursor=more)


THEIRS = {"theirs": {"execution": {"taskSupport": "forbidden"}}}


async def call_nothing(_: AnyContext, __: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[])


@pytest.mark.requirement("v2025-tool-declares-support")
async def test_the_pages_of_a_low_level_servers_list_are_marked_and_otherwise_left_alone() -> None:
    server = Server[Any]("shop", on_call_tool=call_nothing, on_list_tools=list_pages)
    Tasks(server, "memory:", settings=QUICK).enable("served", mode="required")
    async with v2025_memory(server) as transport, connected(transport) as caller:
        first = await caller.request("tools/list")
        assert {tool["name"]: tool.get("execution") for tool in first["tools"]} == {
            "served": {"taskSupport": "required"},
            "theirs": {"taskSupport": "forbidden"},
        }
        second = await caller.request("tools/list", {"cursor": first["nextCursor"]})
        assert [tool.get("execution") for tool in second["tools"]] == [None]
        assert "nextCursor" not in second


@pytest.mark.parametrize("method", [*METHODS, "tools/call"])
async def test_before_the_handshake_nothing_is_done(method: str) -> None:
    example_server = ExampleServer()
    add_echo(example_server)
    async with v2025_caller(example_server) as caller:
        task_id = await caller.start("say")
        await caller.result(task_id)
        async with v2025_memory(example_server.mcp) as transport:
            stranger = V2025Caller(transport)
            refused = await refusal(stranger, method, {"taskId": task_id, "name": "say", "task": {}})
            assert refused.code == -32602
        assert await count_tasks(example_server) == 1


async def test_a_method_of_the_other_generation_does_not_exist() -> None:
    example_server = ExampleServer()
    add_gated(example_server)
    async with v2025_caller(example_server) as caller:
        params: dict[str, Any] = {"taskId": await caller.start("gated"), "inputResponses": {}}
        assert (await refusal(caller, "tasks/update", params)).code == -32601


async def test_two_sessions_of_one_server_may_speak_different_versions() -> None:
    example_server = ExampleServer()
    add_gated(example_server).open.set()
    async with (
        v2025_serving(example_server.mcp) as serving,
        v2025_http(serving) as first,
        v2025_http(serving) as second,
        connected(first) as caller,
        connected(second, version="2025-06-18") as older,
    ):
        task_id = await caller.start("gated")
        assert text_of(await older.call("gated", task={})) == "through"
        assert (await refusal(older, "tasks/get", {"taskId": task_id})).code == -32601
        assert text_of(await caller.result(task_id)) == "through"
