"""Ready-made tools on a low-level server are listed after its own, and served as on an `MCPServer`."""

from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp_types import ListToolsResult, PaginatedRequestParams

from raincheck import Tasks
from raincheck.errors import ConfigurationError
from tests.server.lifecycle.test_low_level_server import AnyContext, call_tool, lifespan, list_tools
from tests.server.tools.test_dynamic_tools import CHANGED, SCHEMA, TASK, a_tool, listed
from tests.support.server.caller_v2025 import connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import QUICK
from tests.support.server.tools import text_of
from tests.support.server.transports import in_memory
from tests.support.server.transports_v2025 import v2025_memory

pytestmark = pytest.mark.anyio


def low_level(*, lists: bool = True) -> tuple[Server[Any], Tasks]:
    server = Server[Any]("low", on_call_tool=call_tool, on_list_tools=list_tools if lists else None, lifespan=lifespan)
    return server, Tasks(server, "memory:", settings=QUICK)


async def test_a_low_level_server_lists_added_tools_after_its_own_and_serves_them() -> None:
    server, tasks = low_level()
    tasks.add(a_tool(), input_schema=SCHEMA, title="Release", description="Release it.", policy=TASK)
    async with in_memory(server) as transport:
        caller = Caller(transport)
        tools = (await caller.request("tools/list"))["tools"]
        assert tools[-1] | {"_meta": None} == {
            "name": "release",
            "title": "Release",
            "description": "Release it.",
            "inputSchema": SCHEMA,
            "_meta": None,
        }
        assert len(tools) > 1
        result = await caller.result(await caller.start("release", {"tag": "v1"}))
        assert result["structuredContent"] == {"tag": "v1", "is_task": True}
        assert "5 is not of type 'string'" in text_of(await caller.call("release", {"tag": 5}))
        tasks.remove("release")
        assert "release" not in await listed(caller)
        assert text_of(await caller.call("add", {"a": 1, "b": 2})) == "3"


async def test_a_low_level_server_without_a_tool_list_gets_one_with_change_notifications() -> None:
    server, tasks = low_level(lists=False)
    tasks.add(a_tool(), input_schema=SCHEMA, policy=TASK)
    async with v2025_memory(server) as transport, connected(transport) as caller:
        assert caller.welcome["capabilities"]["tools"] == {"listChanged": True}
        assert (await listed(caller))["release"]["execution"] == {"taskSupport": "optional"}
        tasks.replace(a_tool(version="2"), input_schema={"type": "object"}, policy=TASK)
        await tasks.notify_list_changed()
        await caller.seen(lambda message: message.get("method") == CHANGED)
        assert (await listed(caller))["release"]["inputSchema"] == {"type": "object"}
        result = await caller.result(await caller.start("release", {"tag": "v1"}))
        assert result["structuredContent"]["tag"] == "v1"


async def list_in_pages(ctx: AnyContext, params: PaginatedRequestParams | None) -> ListToolsResult:
    page = await list_tools(ctx, params)
    if params is None or params.cursor is None:
        return ListToolsResult(tools=page.tools[:1], next_cursor="more")
    return ListToolsResult(tools=page.tools[1:])


async def test_a_low_level_server_with_pages_lists_added_tools_on_the_last() -> None:
    server = Server[Any]("low", on_call_tool=call_tool, on_list_tools=list_in_pages, lifespan=lifespan)
    tasks = Tasks(server, "memory:", settings=QUICK)
    tasks.add(a_tool(), input_schema=SCHEMA)
    async with in_memory(server) as transport:
        caller = Caller(transport)
        first = await caller.request("tools/list")
        assert "release" not in [tool["name"] for tool in first["tools"]]
        last = await caller.request("tools/list", {"cursor": first["nextCursor"]})
        assert last["tools"][-1]["name"] == "release"


def test_two_added_tools_can_not_have_one_name() -> None:
    _, tasks = low_level()
    tasks.add(a_tool(), input_schema=SCHEMA)
    with pytest.raises(ConfigurationError, match="already has a tool 'release'"):
        tasks.add(a_tool(), input_schema=SCHEMA)
