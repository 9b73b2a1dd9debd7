"""A server whose own tools have names of the five: refused where that is known, else its own are listed and called."""

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
from tests.support.server.example import QUICK, Shop
from tests.support.server.fallback.hosts import FIVE, Model, hosted, told
from tests.support.server.tools import add_gated
from tests.support.server.transports import in_memory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

AnyContext = ServerRequestContext[Any, Any]


class Low:
    """A low-level server, whose tools say that they were called, and which counts how often it is asked for a list."""

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
async def test_a_low_level_servers_own_tool_is_the_one_that_is_called_and_listed(
    *, capabilities: dict[str, Any], lists_first: bool, page: int, caplog: pytest.LogCaptureFixture
) -> None:
    low = Low("slow", "task_status", "other", page=page)
    async with in_memory(low.server) as wire:
        model = Model(Caller(wire, capabilities=capabilities), SystemClock())
        if lists_first:
            await list_all(model)
        assert told(await model.call("task_status", {})) == "the server's own task_status"
        ours = [name for name in FIVE if name != "task_status"] if not capabilities else []
        assert await list_all(model) == ["slow", "task_status", "other", *ours]
    (warning,) = warnings(caplog)
    assert "'task_status' of its own" in warning
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


async def test_the_rest_of_the_five_are_ours_and_the_list_is_looked_at_once() -> None:
    low = Low("slow", "task_status")
    async with in_memory(low.server) as wire:
        model = Model(Caller(wire, capabilities={}), SystemClock())
        for _ in range(3):
            assert "You have no task 'x'" in told(await model.call("task_wait", {"task_id": "x"}))
    assert low.lists == 1


async def test_a_low_level_server_that_has_no_such_tool_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    low = Low("slow", "other")
    async with in_memory(low.server) as wire:
        model = Model(Caller(wire, capabilities={}), SystemClock())
        assert list(await model.tools()) == ["slow", "other", *FIVE]
        assert told(await model.call("other")) == "the server's own other"
    assert warnings(caplog) == []


async def test_whoever_goes_on_with_a_task_can_though_the_server_can_not_list_its_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    low = Low("slow", "task_wait")
    low.is_broken = True
    async with in_memory(low.server) as wire:
        model = Model(Caller(wire, capabilities={}), SystemClock())
        assert "You have no task 'x'" in told(await model.call("task_wait", {"task_id": "x"}))
        low.is_broken = False
        assert told(await model.call("task_wait", {"task_id": "x"})) == "the server's own task_wait"
    assert "the tools of server 'low' can't be listed" in warnings(caplog)[0]


async def test_with_other_names_a_low_level_server_has_its_own_and_nobody_is_warned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    low = Low("slow", "task_status", fallback_tools=FallbackTools.prefixed("low_"))
    async with in_memory(low.server) as wire:
        model = Model(Caller(wire, capabilities={}), SystemClock())
        assert list(await model.tools()) == ["slow", "task_status", *(f"low_{name}" for name in FIVE)]
        assert told(await model.call("task_status", {})) == "the server's own task_status"
        assert told(await model.call("low_task_status", {})) == "You have no tasks."
    assert warnings(caplog) == []


def of_one(name: str) -> dict[str, Any] | None:
    return {"type": "object"} if name in ("slow", "task_cancel") else None


@pytest.mark.parametrize(
    "low",
    [Low("slow", enabled="task_cancel"), Low("slow", "task_cancel", get_tool_input_schema=of_one)],
    ids=["it is enabled", "the server knows it"],
)
async def test_a_low_level_server_that_says_so_before_does_not_start(low: Low) -> None:
    with pytest.raises(ConfigurationError, match="the server has a tool 'task_cancel', a name that is needed"):
        async with low.tasks.running():
            pytest.fail("it started")


async def test_a_tool_that_is_added_later_is_called_until_it_is_removed_and_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    shop = Shop()
    add_gated(shop)
    async with hosted(shop) as model:
        for _ in range(2):
            shop.mcp.add_tool(lambda: "its own", name="task_status")
            assert told(await model.call("task_status")) == "its own"
            assert list(await model.tools()).count("task_status") == 1
            shop.mcp.remove_tool("task_status")
            assert told(await model.call("task_status")) == "You have no tasks."
            assert list(await model.tools()) == ["gated", *FIVE]
    assert len(warnings(caplog)) == 1
