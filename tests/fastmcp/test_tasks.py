"""Tasks attach to a FastMCP server once, and invalid settings are refused where they are written."""

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
from raincheck.fastmcp import Tasks, adapter
from raincheck.wire.v2026 import EXTENSION
from tests.support.fastmcp.example_server import FastMCPExample

pytestmark = pytest.mark.anyio


class ExtensionLikeTasks(ServerExtension):
    """As FastMCP's own."""

    identifier = EXTENSION


def named_server() -> FastMCP[Any]:
    return FastMCP("shop")


def test_an_unnamed_server_needs_a_name_or_a_namespace() -> None:
    with pytest.raises(ConfigurationError, match=r'FastMCP\("reports"\)'):
        Tasks(FastMCP(), "memory:")
    Tasks(FastMCP(), "memory:", namespace="example")


def test_tasks_are_attached_once() -> None:
    mcp = named_server()
    tasks = Tasks(mcp, "memory:")
    assert Tasks.of(mcp) is tasks
    assert Tasks.of(named_server()) is None
    with pytest.raises(ConfigurationError, match="has tasks already"):
        Tasks(mcp, "memory:")


def test_a_server_can_not_have_these_tasks_and_fastmcps() -> None:
    mcp = named_server()
    mcp.add_extension(ExtensionLikeTasks())
    with pytest.raises(ConfigurationError, match="remove FastMCP's TasksExtension"):
        Tasks(mcp, "memory:")
    mcp = named_server()
    Tasks(mcp, "memory:")
    with pytest.raises(ValueError, match="already registered"):
        mcp.add_extension(ExtensionLikeTasks())


def test_each_kind_of_server_has_its_own_tasks() -> None:
    server: Any = MCPServer("shop")
    with pytest.raises(ConfigurationError, match="import Tasks from raincheck"):
        Tasks(server, "memory:")
    server = named_server()
    with pytest.raises(ConfigurationError, match=r"raincheck\.fastmcp"):
        raincheck.Tasks(server, "memory:")


def test_a_fastmcp_without_a_needed_private_name_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "PRIVATE", ((FastMCP, "_not_there"),))
    with pytest.raises(ConfigurationError, match="has no _not_there: install a version of FastMCP 4"):
        Tasks(named_server(), "memory:")


@pytest.mark.cold
def test_without_fastmcp_the_error_says_how_to_install_it() -> None:
    program = "import sys; sys.modules['fastmcp'] = None; import raincheck.fastmcp"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'raincheck[fastmcp]'" in done.stderr


async def test_a_server_still_serves_its_tools_if_tasks_can_not_be_attached() -> None:
    mcp = named_server()

    @mcp.tool
    async def look() -> str:
        return "looked"

    with pytest.raises(ConfigurationError, match="fallback_wait"):
        Tasks(mcp, "memory:", fallback_wait=-1)
    async with Client(mcp) as client:
        assert (await client.call_tool("look", {})).data == "looked"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"colour": "red"}, "no setting 'colour'"),
        ({"idempotency": "number"}, "has no argument 'number'"),
        ({"mode": "sometimes"}, "mode is"),
    ],
)
def test_invalid_settings_are_refused_at_the_decorator(settings: Any, message: str) -> None:
    async def look(what: str) -> str:
        return what

    with pytest.raises(ConfigurationError, match=message):
        FastMCPExample().tasks.tool(**settings)(look)


def test_functions_that_can_not_be_tools_are_refused_at_the_decorator() -> None:
    async def ours(raincheck_context: int) -> int:
        return raincheck_context

    async def odd(*numbers: int) -> int:
        return sum(numbers)

    async def twice(task: TaskContext) -> str:
        return task.id

    tasks = FastMCPExample().tasks
    with pytest.raises(ConfigurationError, match="is a reserved name"):
        tasks.tool(ours)
    with pytest.raises(ConfigurationError, match="can't be listed"):
        tasks.tool(odd)
    tasks.tool(twice)
    with pytest.raises(ConfigurationError, match="twice"):
        tasks.tool(twice)


def test_a_duplicate_tool_name_is_refused_at_the_decorator() -> None:
    mcp: FastMCP[Any] = FastMCP("shop", on_duplicate="error")

    @mcp.tool
    def look() -> str:
        return "looked"

    with pytest.raises(ConfigurationError, match="'look' can't be added"):
        Tasks(mcp, "memory:").tool(name="look")(look)


async def test_tasks_run_and_explain_without_a_connected_client() -> None:
    example = FastMCPExample()

    @example.tasks.tool(mode="required")
    async def work(ctx: Context) -> str:
        return ctx.fastmcp.name

    @example.mcp.tool(task=True)
    async def theirs() -> str:
        return "theirs"

    explained = await example.tasks.explain()
    assert [(tool.name, tool.mode) for tool in explained.tools] == [("work", "required"), ("theirs", "auto")]
    async with example.tasks.running() as engine:
        task = await engine.submit("work", {})
        assert (await engine.wait(task.id)).task.status == "completed"
