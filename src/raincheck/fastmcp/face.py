"""A FastMCP server with the face of an `MCPServer`, which is what tasks are attached to.

It has no more of one than they ask for: which tools there are, how each is called in a task, and the server below.
"""

from typing import Any, cast

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, InputRequiredResult
from mcp_types import Tool as ListedTool
from starlette.applications import Starlette

from raincheck.engine.context import TaskContext
from raincheck.fastmcp.body import run_in_task
from raincheck.fastmcp.catalogue import Catalogue
from raincheck.fastmcp.library import AnyFastMCP, all_tools_of, lowlevel_of
from raincheck.server.sdk import request_of


class Face(MCPServer[Any]):
    """What tasks see of a FastMCP server."""

    def __init__(self, server: AnyFastMCP) -> None:  # pyright: ignore[reportMissingSuperCall] - the server below is there already
        self.server = server
        self.catalogue = Catalogue(server)
        # Under the names that are looked for in an MCPServer.
        vars(self).update(
            _lowlevel_server=lowlevel_of(server), _tool_manager=self.catalogue, _extensions=[], _subscriptions=None
        )

    def streamable_http_app(self, **options: Any) -> Starlette:  # noqa: ANN401 - the SDK's own
        """The application that FastMCP itself makes, which has options of its own."""
        del options
        return self.server.http_app(path="/mcp")

    async def list_tools(self) -> list[ListedTool]:
        tools = await all_tools_of(self.server)
        self.catalogue.note_all(tools)
        return [tool.to_mcp_tool() for tool in tools]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Run a tool in a task."""
        ctx = None if context is None else request_of(context)
        assert ctx is not None  # noqa: S101 - only bodies call it, with the task's own
        task = cast("TaskContext", getattr(ctx.session, "_task"))  # noqa: B009 - a session keeps it to itself
        return await run_in_task(self.server, name, arguments, ctx, task)
