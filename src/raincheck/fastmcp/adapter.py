"""Adapt a FastMCP server to the `MCPServer` interface, and run its tools as the bodies of tasks.

FastMCP creates the tool: its schema, its injected parameters, and the conversion of its result. It sees an author's
function without its task parameter. When the function runs as a task, that parameter is passed too. In a task, a tool
runs as in a call, with a context that works on the task.

The private names of FastMCP that this needs are checked when tasks are attached, so that a FastMCP version without one
of them is refused there with a clear message, and not at the first call.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast

from fastmcp.exceptions import DisabledError, FastMCPError, NotFoundError
from fastmcp.server import dependencies
from fastmcp.server.dependencies import bind_request_context, without_injected_parameters
from fastmcp.server.providers import AggregateProvider
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.utilities.versions import version_sort_key
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import CallToolResult, InputRequiredResult, RequestParamsMeta
from mcp_types import Tool as ListedTool
from starlette.applications import Starlette

import fastmcp
from fastmcp import Context, FastMCP
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import ConfigurationError, ToolError
from raincheck.fastmcp.tools import AnyFastMCP, ToolCatalog
from raincheck.server.results import as_json, error_result
from raincheck.server.sdk_compat import request_of
from raincheck.server.tools.functions import AnyFunction, ServedFunction
from raincheck.server.tools.registry import make_handler_body
from raincheck.server.tools.task_session import SdkContextFactory, TaskSession
from raincheck.wire import v2025

PRIVATE: tuple[tuple[object, str], ...] = ((Tool, "_run"), (dependencies, "_is_client_tool_call"))


def lowlevel_of(server: AnyFastMCP) -> Server[Any]:
    """Return the SDK's server that a FastMCP server is built on.

    Raises:
        ConfigurationError: `server` is something else, or of an unknown version.
    """
    if not isinstance(server, FastMCP):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        raise ConfigurationError(
            f"these tasks attach to a server of FastMCP 4, not to {server!r}: for a server of the `mcp` SDK, import "
            f"Tasks from raincheck"
        )
    lowlevel = getattr(server, "_mcp_server", None)
    missing = [name for owner, name in PRIVATE if not hasattr(owner, name)]
    if missing or not isinstance(lowlevel, Server):
        name = missing[0] if missing else "_mcp_server"
        raise ConfigurationError(
            f"FastMCP {fastmcp.__version__} has no {name}: install a version of FastMCP 4 that has it"
        )
    return cast("Server[Any]", lowlevel)


def has_name(server: AnyFastMCP) -> bool:
    """Return whether the author named the server. A server without a name gets another one each time it starts."""
    return re.fullmatch(rf"{type(server).__name__}-[0-9a-f]{{4}}", server.name) is None


def is_client_call() -> bool:
    """Return whether a client made this call, and not a tool or middleware while it serves another call."""
    return cast("Callable[[], bool]", getattr(dependencies, "_is_client_tool_call"))()  # noqa: B009 - it has no public name


async def run_tool(server: AnyFastMCP, name: str, arguments: dict[str, Any]) -> ToolResult:
    """Run a tool as its server would, through the middleware of a mounted server, and propagate its errors."""
    tool = await server.get_tool(name)
    if tool is None:
        raise NotFoundError(f"tool {name!r} no longer exists, or its caller may not use it any more")
    run = cast("Callable[[dict[str, Any]], Awaitable[ToolResult]]", getattr(tool, "_run"))  # noqa: B009 - likewise
    return await run(arguments)


_current_task: ContextVar[TaskContext | None] = ContextVar("raincheck_fastmcp_task", default=None)


class FastMCPSession(TaskSession):
    """A session with the caller of a task, as FastMCP's context uses one."""

    def __init__(self, task: TaskContext) -> None:
        super().__init__(task)
        # So that the task's next attempt, and no other task, finds the state that `ctx.set_state` stores.
        self._fastmcp_state_prefix = f"raincheck-{task.id}"

    async def send_progress_notification(
        self,
        progress_token: str | int,  # noqa: ARG002 - there is one task
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: str | None = None,  # noqa: ARG002 - likewise
    ) -> None:
        await self._task.progress(progress, total, message)


def to_call_result(result: ToolResult) -> CallToolResult | InputRequiredResult:
    """Convert the result of a tool to the type of the SDK."""
    if isinstance(result, InputRequiredToolResult):
        return result.input_required
    converted = result.to_mcp_result()
    if isinstance(converted, CallToolResult):
        return converted
    content, structured = converted if isinstance(converted, tuple) else (converted, None)
    return CallToolResult(content=content, structured_content=structured)


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
        # Whichever caller may use them, since tasks of any caller may be waiting.
        tools = await AggregateProvider.list_tools(self.server)
        # Of several versions of a tool, the latest is recorded last, since calls run that one.
        for tool in sorted(tools, key=version_sort_key):
            self.catalog.record(tool)
        return [tool.to_mcp_tool() for tool in tools]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: SdkContext[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Run a tool in a task. Middleware does not run again: it has seen the call.

        Raises:
            ToolError: the tool, or FastMCP on its behalf, reports an error to its caller.
        """
        ctx = None if context is None else request_of(context)
        assert ctx is not None  # noqa: S101 - only task bodies call it, with a context
        task = cast("TaskContext", getattr(ctx.session, "_task"))  # noqa: B009 - private in a session
        # In this protocol version, tools may send requests while they run.
        meta: RequestParamsMeta = {"progress_token": task.id}
        request = replace(ctx, session=FastMCPSession(task), protocol_version=v2025.VERSION, meta=meta)
        before = _current_task.set(task)
        try:
            with bind_request_context(request):
                async with Context(fastmcp=self.server):
                    return to_call_result(await run_tool(self.server, name, arguments))
        except (FastMCPError, NotFoundError, DisabledError) as error:
            # Other errors are crashes, which may be retried.
            raise ToolError(str(error), content=as_json(error_result(str(error)))) from error
        finally:
            _current_task.reset(before)


class FastMCPFunction(ServedFunction):
    """A function of the server's author, as a FastMCP tool."""

    def __init__(
        self,
        fn: AnyFunction,
        name: str,
        adapter: ServerAdapter,
        sdk_contexts: SdkContextFactory,
        **listed: Any,  # noqa: ANN401 - the options of FastMCP's tools
    ) -> None:
        self._catalog = adapter.catalog
        super().__init__(fn, name, sdk_contexts, **listed)

    def body(self, isolation: str | None) -> AnyFunction:
        if isolation is None:
            return make_handler_body(self.name, self._unused_handler, self._sdk_contexts)
        own_parameters = inspect.signature(without_injected_parameters(self.tool.fn)).parameters
        if own_parameters.keys() != self.signature.parameters.keys():
            raise ConfigurationError(
                f"tool {self.name!r} runs in its own process, without the server: it can take a TaskContext, but no "
                f"parameters that FastMCP injects"
            )
        return ServedFunction(self.fn, self.name, self._sdk_contexts).body(isolation)

    def _make_sdk_tool(self, listed: dict[str, Any]) -> SdkTool:
        self.tool = Tool.from_function(self.stand_in(self._run), name=self.name, **listed)
        return self._catalog.to_sdk_tool(self.tool)

    async def _run(self, **arguments: Any) -> Any:  # noqa: ANN401 - any arguments and any result
        task = _current_task.get()
        if task is None:
            raise ConfigurationError(f"tool {self.name!r} runs only as a task: call it through its server")
        return await self._call(task, arguments)

    async def _unused_handler(self, *_: object) -> None:
        """Placeholder handler that is never called: a FastMCP server runs its tools by name."""
