"""Name conflicts with fallback tools: known ones stop the start, otherwise the server's own tools are used."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

from raincheck import FallbackTools, Tasks
from raincheck.clock import SystemClock
from raincheck.errors import ConfigurationError
from tests.support.server.caller_v2026 import TASKS, Caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.fallback.hosts import FALLBACK_TOOL_NAMES, Model, connected_host, model_text
from tests.support.server.tools import add_gated
from tests.support.server.transports import in_memory

pytestmark = pytest.mark.anyio

AnyContext = ServerRequestContext[Any, Any]


class LowLevelServer:
    """A low-level server whose tools return their names, and which counts the requests for its list."""

    def __init__(self, *names: str, page: int = 100, enabled: str = "slow", **options: Any) -> None:
        self.names = list(names)
        self.lists = 0
        self.is_broken = False
        self._page = page
        knows: Callable[[str], dict[str, Any] | None] | None = options.pop("get_tool_input_schema", None)
        self.server: Server[Any] = Server(
            "low", on_call_tool=self._call, on_list_tools=self._list, get_tool_input_schema=knows
        )
        self.tasks = Tasks(self.server, "memory:", settings=QUICK, **options)
        self.tasks.enable(enabled)

    async def _call(self, _: AnyContext, params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=f"the server's own {params.name}")])

    async def _list(self, _: AnyContext, params: PaginatedRequestParams | None) -> ListToolsResult:
        self.lists += 1
        if self.is_broken:
            raise OSError("the disk is full")
        begin = int(params.cursor or 0) if params is not None else 0
        end = begin + self._page
        tools = [Tool(name=name, input_schema={"type": "object"}) for name in self.names[begin:end]]
        return ListToolsResult(tools=tools, next_cursor=str(end) if end < len(self.names) else None)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "raincheck.server.fallback.tool_list"]


@pytest.mark.parametrize("capabilities", [{}, TASKS], ids=["without tasks", "with tasks"])
@pytest.mark.parametrize("lists_first", [True, False])
@pytest.mark.parametrize("page", [1, 100])
async def test_a_low_level_servers_own_tool_is_called_and_listed_in_a_conflict(
    *, capabilities: dict[str, Any], lists_first: bool, page: int, caplog: pytest.LogCaptureFixture
) -> None:
    low = LowLevelServer("slow", "task_status", "other", page=page)
    async with in_memory(low.server) as transport:
        model = Model(Caller(transport, capabilities=capabilities), SystemClock())
        if lists_first:
            await list_all(model)
        assert model_text(await model.call("task_status", {})) == "the server's own task_status"
        listed_fallback_tools = (
            [name for name in FALLBACK_TOOL_NAMES if name != "task_status"] if not capabilities else []
        )
        assert await list_all(model) == ["slow", "task_status", "other", *listed_fallback_tools]
    (warning,) = warnings(caplog)
    assert "the server's own tool 'task_status'" in warning
    assert 'fallback_tools=FallbackTools.prefixed("…_")' in warning


async def list_all(model: Model) -> list[str]:
    """The names of all tools, in their order, page after page."""
    names: list[str] = []
    cursor: dict[str, Any] | None = {}
    while cursor is not None:
        page = await model.caller.request("tools/list", cursor)
        names += [tool["name"] for tool in page["tools"]]
        cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
    return names


async def test_the_other_fallback_tools_still_work_and_the_tool_list_is_read_once() -> None:
    low = LowLevelServer("slow", "task_status")
    async with in_memory(low.server) as transport:
        model = Model(Caller(transport, capabilities={}), SystemClock())
        for _ in range(3):
            assert "You have no task 'x'" in model_text(await model.call("task_wait", {"task_id": "x"}))
    assert low.lists == 1


async def test_a_low_level_server_that_has_no_such_tool_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    low = LowLevelServer("slow", "other")
    async with in_memory(low.server) as transport:
        model = Model(Caller(transport, capabilities={}), SystemClock())
        assert list(await model.tools()) == ["slow", "other", *FALLBACK_TOOL_NAMES]
        assert model_text(await model.call("other")) == "the server's own other"
    assert warnings(caplog) == []


async def test_fallback_tools_work_although_the_server_can_not_list_its_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    low = LowLevelServer("slow", "task_wait")
    low.is_broken = True
    async with in_memory(low.server) as transport:
        model = Model(Caller(transport, capabilities={}), SystemClock())
        assert "You have no task 'x'" in model_text(await model.call("task_wait", {"task_id": "x"}))
        low.is_broken = False
        assert model_text(await model.call("task_wait", {"task_id": "x"})) == "the server's own task_wait"
    assert "failed to list the tools of server 'low'" in warnings(caplog)[0]


async def test_with_renamed_fallback_tools_a_low_level_server_has_no_conflict(
    caplog: pytest.LogCaptureFixture,
) -> None:
    low = LowLevelServer("slow", "task_status", fallback_tools=FallbackTools.prefixed("low_"))
    async with in_memory(low.server) as transport:
        model = Model(Caller(transport, capabilities={}), SystemClock())
        assert list(await model.tools()) == ["slow", "task_status", *(f"low_{name}" for name in FALLBACK_TOOL_NAMES)]
        assert model_text(await model.call("task_status", {})) == "the server's own task_status"
        assert model_text(await model.call("low_task_status", {})) == "You have no tasks."
    assert warnings(caplog) == []


def of_one(name: str) -> dict[str, Any] | None:
    return {"type": "object"} if name in ("slow", "task_cancel") else None


@pytest.mark.parametrize(
    "low",
    [
        LowLevelServer("slow", enabled="task_cancel"),
        LowLevelServer("slow", "task_cancel", get_tool_input_schema=of_one),
    ],
    ids=["it is enabled", "the server knows it"],
)
async def test_a_low_level_server_with_a_known_conflict_does_not_start(low: LowLevelServer) -> None:
    with pytest.raises(ConfigurationError, match="the server's tool 'task_cancel' has the name of a fallback tool"):
        async with low.tasks.running():
            pytest.fail("it started")


async def test_a_conflicting_tool_is_called_until_it_is_removed_and_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    server = ExampleServer()
    add_gated(server)
    async with connected_host(server) as model:
        for _ in range(2):
            server.mcp.add_tool(lambda: "its own", name="task_status")
            assert model_text(await model.call("task_status")) == "its own"
            assert list(await model.tools()).count("task_status") == 1
            server.mcp.remove_tool("task_status")
            assert model_text(await model.call("task_status")) == "You have no tasks."
            assert list(await model.tools()) == ["gated", *FALLBACK_TOOL_NAMES]
    assert len(warnings(caplog)) == 1
