"""Adapt a FastMCP server to the `MCPServer` interface, and its author's functions to tools that run as tasks.

FastMCP creates the tool: its schema, its injected parameters, and the conversion of its result. It sees the function
without its task parameter. When the function runs as a task, that parameter is passed too.

The adapter implements only the part of `MCPServer` that tasks need: listing tools, calling a tool in a task, and the
low-level server.
"""

import inspect
from typing import Any, cast

from fastmcp.server.dependencies import without_injected_parameters
from fastmcp.tools import FunctionTool, Tool
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, InputRequiredResult
from mcp_types import Tool as ListedTool
from pydantic import PydanticSchemaGenerationError, PydanticUserError
from starlette.applications import Starlette

from raincheck.engine.execution.context import TaskContext
from raincheck.engine.settings import check_body, context_parameters, is_coroutine_function
from raincheck.errors import ConfigurationError
from raincheck.fastmcp.body import AnyFastMCP, current_task, list_all_tools, lowlevel_of, run_in_task
from raincheck.fastmcp.tools import ToolCatalog
from raincheck.server.sdk_compat import request_of
from raincheck.server.tools.functions import AnyFunction, ServedFunction
from raincheck.server.tools.registry import make_handler_body
from raincheck.server.tools.task_session import SdkContextFactory


class ServerAdapter(MCPServer[Any]):
    """The `MCPServer` interface of a FastMCP server, as far as tasks need it."""

    def __init__(self, server: AnyFastMCP) -> None:  # pyright: ignore[reportMissingSuperCall] - the SDK's server exists already
        self.server = server
        self.catalog = ToolCatalog(server)
        # Under the names that tasks look up in an MCPServer.
        vars(self).update(
            _lowlevel_server=lowlevel_of(server), _tool_manager=self.catalog, _extensions=[], _subscriptions=None
        )

    def streamable_http_app(self, **options: Any) -> Starlette:  # noqa: ANN401 - the SDK's own
        """Return FastMCP's own application, which has its own options."""
        del options
        return self.server.http_app(path="/mcp")

    async def list_tools(self) -> list[ListedTool]:
        tools = await list_all_tools(self.server)
        self.catalog.record_all(tools)
        return [tool.to_mcp_tool() for tool in tools]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Run a tool in a task."""
        ctx = None if context is None else request_of(context)
        assert ctx is not None  # noqa: S101 - only task bodies call it, with a context
        task = cast("TaskContext", getattr(ctx.session, "_task"))  # noqa: B009 - private in a session
        return await run_in_task(self.server, name, arguments, ctx, task)


class FastMCPFunction(ServedFunction):
    """A function of the server's author, as a FastMCP tool."""

    def __init__(
        self,
        fn: AnyFunction,
        name: str,
        adapter: ServerAdapter,
        sdk_contexts: SdkContextFactory,
        **listed: Any,  # noqa: ANN401 - the options of FastMCP's tools
    ) -> None:  # pyright: ignore[reportMissingSuperCall] - FastMCP creates the tool
        self.fn = fn
        self.name = name
        self._sdk_contexts = sdk_contexts
        check_body(name, fn, is_isolated=False)
        self._context_name = next(iter(context_parameters(fn)), None)
        self.is_async = is_coroutine_function(fn)
        self.signature = self._signature()
        self.tool = self._make_tool(listed)
        self.sdk = adapter.catalog.to_sdk_tool(self.tool)

    def body(self, isolation: str | None) -> AnyFunction:
        if isolation is None:
            return make_handler_body(self.name, self._unused_handler, self._sdk_contexts)
        if self._has_injected_parameters():
            raise ConfigurationError(
                f"tool {self.name!r} runs in its own process, without the server: it can take a TaskContext, but no "
                f"parameters that FastMCP injects"
            )
        return ServedFunction(self.fn, self.name, self._sdk_contexts).body(isolation)

    def _make_tool(self, listed: dict[str, Any]) -> FunctionTool:
        try:
            return Tool.from_function(self.stand_in(self._run), name=self.name, **listed)
        except (TypeError, ValueError, PydanticUserError, PydanticSchemaGenerationError) as error:
            raise ConfigurationError(f"tool {self.name!r} can't be listed: {error}") from error

    async def _run(self, **arguments: Any) -> Any:  # noqa: ANN401 - any arguments and any result
        return await self._call(current_task(self.name), arguments)

    def _has_injected_parameters(self) -> bool:
        return inspect.signature(without_injected_parameters(self.tool.fn)).parameters.keys() != (
            self.signature.parameters.keys()
        )

    async def _unused_handler(self, *_: object) -> None:
        """Placeholder handler that is never called: a FastMCP server runs its tools by name."""
