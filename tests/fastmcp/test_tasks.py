"""Tasks are attached to a FastMCP server once, and what can't work is told where it is written."""

import subprocess
import sys
from typing import Any

import pytest
from fastmcp.server.extensions import ServerExtension
from mcp.server.mcpserver import MCPServer

import raincheck
from fastmcp import Client, Context, FastMCP
from raincheck import TaskContext
from raincheck.errors import ConfigurationError
from raincheck.fastmcp import Tasks, body
from raincheck.wire.v2026 import EXTENSION
from tests.support.fastmcp.example_server import FastShop

pytestmark = pytest.mark.anyio


class Theirs(ServerExtension):
    """As FastMCP's own."""

    identifier = EXTENSION


def named() -> FastMCP[Any]:
    return FastMCP("shop")


def test_a_server_without_a_name_gets_another_each_time_so_it_has_to_be_given_one() -> None:
    with pytest.raises(ConfigurationError, match=r'FastMCP\("reports"\)'):
        Tasks(FastMCP(), "memory:")
    Tasks(FastMCP(), "memory:", namespace="shop")


def test_tasks_are_attached_once() -> None:
    mcp = named()
    tasks = Tasks(mcp, "memory:")
    assert Tasks.of(mcp) is tasks
    assert Tasks.of(named()) is None
    with pytest.raises(ConfigurationError, match="has tasks already"):
        Tasks(mcp, "memory:")


def test_a_server_has_these_tasks_or_fastmcps_and_not_both() -> None:
    mcp = named()
    mcp.add_extension(Theirs())
    with pytest.raises(ConfigurationError, match="leave out FastMCP's TasksExtension"):
        Tasks(mcp, "memory:")
    mcp = named()
    Tasks(mcp, "memory:")
    with pytest.raises(ValueError, match="already registered"):
        mcp.add_extension(Theirs())


def test_each_kind_of_server_has_its_own_tasks() -> None:
    server: Any = MCPServer("shop")
    with pytest.raises(ConfigurationError, match="import Tasks from raincheck"):
        Tasks(server, "memory:")
    server = named()
    with pytest.raises(ConfigurationError, match=r"raincheck\.fastmcp"):
        raincheck.Tasks(server, "memory:")


def test_a_fastmcp_that_has_moved_what_is_needed_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "PRIVATE", ((FastMCP, "_not_there"),))
    with pytest.raises(ConfigurationError, match="has no _not_there: use another"):
        Tasks(named(), "memory:")


@pytest.mark.cold
def test_where_fastmcp_is_missing_it_is_told_how_to_get_it() -> None:
    program = "import sys; sys.modules['fastmcp'] = None; import raincheck.fastmcp"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert "pip install 'raincheck[fastmcp]'" in done.stderr


async def test_a_server_whose_tasks_could_not_be_attached_serves_its_tools_as_before() -> None:
    mcp = named()

    @mcp.tool
    async def look() -> str:
        return "looked"

    with pytest.raises(ConfigurationError, match="fallback_wait"):
        Tasks(mcp, "memory:", fallback_wait=-1)
    async with Client(mcp) as client:
        assert (await client.call_tool("look", {})).data == "looked"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"colour": "red"}, "no setting 'colour'"),
        ({"idempotency": "number"}, "has no 'number'"),
        ({"mode": "sometimes"}, "mode is"),
    ],
)
def test_settings_that_do_not_fit_are_refused_where_they_are_written(settings: Any, told: str) -> None:
    async def look(what: str) -> str:
        return what

    with pytest.raises(ConfigurationError, match=told):
        FastShop().tasks.tool(**settings)(look)


def test_functions_that_can_be_no_tools_are_refused_where_they_are_written() -> None:
    async def ours(raincheck_context: int) -> int:
        return raincheck_context

    async def odd(*numbers: int) -> int:
        return sum(numbers)

    async def twice(task: TaskContext) -> str:
        return task.id

    tasks = FastShop().tasks
    with pytest.raises(ConfigurationError, match="our own name"):
        tasks.tool(ours)
    with pytest.raises(ConfigurationError, match="can't be listed"):
        tasks.tool(odd)
    tasks.tool(twice)
    with pytest.raises(ConfigurationError, match="twice"):
        tasks.tool(twice)


def test_a_name_that_the_server_does_not_give_twice_is_refused_where_it_is_written() -> None:
    mcp: FastMCP[Any] = FastMCP("shop", on_duplicate="error")

    @mcp.tool
    def look() -> str:
        return "looked"

    with pytest.raises(ConfigurationError, match="'look' can't be added"):
        Tasks(mcp, "memory:").tool(name="look")(look)


async def test_tasks_run_without_anybody_being_served_and_tell_what_callers_get() -> None:
    shop = FastShop()

    @shop.tasks.tool(mode="required")
    async def work(ctx: Context) -> str:
        return ctx.fastmcp.name

    @shop.mcp.tool(task=True)
    async def theirs() -> str:
        return "theirs"

    explained = await shop.tasks.explain()
    assert [(tool.name, tool.mode) for tool in explained.tools] == [("work", "required"), ("theirs", "auto")]
    async with shop.tasks.running() as engine:
        task = await engine.submit("work", {})
        assert (await engine.wait(task.id)).task.status == "completed"
