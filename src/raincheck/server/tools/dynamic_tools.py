"""Ready-made tools, which are added, replaced and removed while a server runs, such as tools that a file defines.

The SDK makes a tool of a function, whose signature declares the arguments. A ready-made tool declares them in a JSON
Schema: the schema is listed unchanged, arguments are validated against it, and any JSON that the body returns is the
result.

`DynamicToolList` lists the ready-made tools of a low-level server: the server makes its list itself, and ready-made
tools are appended to it.

`ToolListChanges` sends `notifications/tools/list_changed`, in each generation's own way. Since 2026-07-28 a caller
subscribes with `subscriptions/listen`, which the SDK serves: a published change is sent. Before, the notification was
sent on every connection, and the SDK neither tracks those nor lets an `MCPServer` declare at the handshake that it
sends any. This module does both. It can go when the SDK does either.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, cast

from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.subscriptions import ToolsListChanged
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import CallToolResult, PaginatedRequestParams, TextContent, Tool, ToolAnnotations
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from raincheck.core.json_schema import InvalidSchema, SchemaValidator, check_schema
from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.sync_context import SyncTaskContext
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.server.caller import CallerContext
from raincheck.server.results import WRAPPED, SdkErrorMapping, encode_result, value_of
from raincheck.server.sdk_compat import AnyContext, bus_of, connection_of, fields_of
from raincheck.server.tools.functions import CONTEXT_PARAMETER, REQUEST_PARAMETER
from raincheck.server.tools.policy import TaskPolicy
from raincheck.server.tools.registry import ToolRegistry
from raincheck.wire.fallback_text import clip_text

MAX_SHOWN_ERRORS = 5
"""Most errors in arguments that a message lists: enough to fix a call."""


class InputSchema:
    """The arguments of a tool, as a JSON Schema.

    Raises:
        ConfigurationError: the schema is invalid, or not that of an object.
    """

    def __init__(self, tool: str, schema: Mapping[str, Json]) -> None:
        self.listed = cast("dict[str, Any]", dict(schema))
        """The schema as it is listed."""
        try:
            check_schema(self.listed)
        except InvalidSchema as error:
            raise ConfigurationError(f"tool {tool!r}: its input schema is invalid: {error}") from error
        if self.listed.get("type") != "object":
            raise ConfigurationError(
                f'tool {tool!r}: its input schema must have "type": "object", because arguments are an object'
            )
        for reserved in (CONTEXT_PARAMETER, REQUEST_PARAMETER):
            if reserved in self.names:
                raise ConfigurationError(f"tool {tool!r}: {reserved!r} is a reserved name: rename the argument")
        problem = find_invalid_x_mcp_header(self.listed)
        if problem is not None:
            raise ConfigurationError(f"tool {tool!r} has an invalid x-mcp-header in its input schema: {problem}")
        self._validator = SchemaValidator(self.listed)

    @property
    def names(self) -> Mapping[str, Any]:
        """The arguments that the schema names."""
        return self.listed.get("properties", {})

    def describe_errors(self, arguments: Mapping[str, Any]) -> str | None:
        """Return a description of the errors in arguments; None if they fit."""
        errors = sorted(self._validator.errors(dict(arguments)), key=lambda error: list(map(str, error.path)))
        texts = [_describe_error(list(error.absolute_path), str(error.message)) for error in errors[:MAX_SHOWN_ERRORS]]
        if len(errors) > MAX_SHOWN_ERRORS:
            texts.append(f"and {len(errors) - MAX_SHOWN_ERRORS} more")
        return "; ".join(texts) or None


def _describe_error(path: list[str | int], message: str) -> str:
    return f"{'.'.join(map(str, path))}: {clip_text(message)}" if path else clip_text(message)


class SchemaFuncMetadata(FuncMetadata):
    """Validates arguments by a JSON Schema, where the SDK would use a signature."""

    input_schema: InputSchema

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged.

        Raises:
            ToolError: they don't fit.
        """
        problems = self.input_schema.describe_errors(arguments_to_validate)
        if problems is not None:
            raise SdkToolError(f"the arguments do not fit its input schema: {problems}")
        return arguments_to_validate


async def stand_in(*, raincheck_request: Context[Any, Any]) -> CallToolResult:
    """Placeholder from which the SDK makes a tool, before the schema is applied. It is never called."""
    raise AssertionError(raincheck_request)


def make_schema_body(tool: TaskTool) -> Callable[..., Any]:
    """Return the body that a task runs for a ready-made tool: the tool's own, with its result in protocol form.

    Raises:
        ConfigurationError: the tool runs in a separate process, which has no way to find its body.
    """
    if tool.isolation is not None:
        raise ConfigurationError(
            f"tool {tool.name!r} runs in a separate process, which only functions can: serve it with @tasks.tool"
        )

    async def in_loop(*, raincheck_context: TaskContext, **arguments: Json) -> Json:
        task = raincheck_context
        with CallerContext(task.caller, task.id, tool.name), SdkErrorMapping():
            return encode_result(as_result(await tool.body(**arguments, **_with_task(tool, task))))

    def in_thread(*, raincheck_context: SyncTaskContext, **arguments: Json) -> Json:
        task = raincheck_context
        with CallerContext(task.caller, task.id, tool.name), SdkErrorMapping():
            return encode_result(as_result(tool.body(**arguments, **_with_task(tool, task))))

    body: Callable[..., Any] = in_loop if tool.is_async else in_thread
    body.__name__ = body.__qualname__ = tool.name
    return body


def _with_task(tool: TaskTool, task: TaskContext | SyncTaskContext) -> dict[str, Any]:
    return {} if tool.context_parameter is None else {tool.context_parameter: task}


def as_result(value: Any) -> CallToolResult:  # noqa: ANN401 - whatever a body returned
    """Convert a value to a result with text for models and structured content for programs."""
    if isinstance(value, CallToolResult):
        return value
    text = value if isinstance(value, str) else to_json(value, indent=2).decode()
    content = [] if value is None else [TextContent(type="text", text=text)]
    # An object that looks wrapped is wrapped too, so that each value is restored unchanged.
    is_itself = isinstance(value, dict) and set(cast("dict[str, Any]", value)) != {WRAPPED}
    return CallToolResult(content=list(content), structured_content=value if is_itself else {WRAPPED: value})


def _check_arguments(tool: TaskTool, schema: InputSchema, arguments: Mapping[str, Json]) -> None:
    """Check the arguments of a task that starts without a call, such as a child task."""
    problems = schema.describe_errors(arguments)
    if problems is not None:
        raise InvalidValue(f"the arguments do not fit tool {tool.name!r}: {problems}")
    tool.validate(arguments)


METHOD = "tools/list"


class DynamicToolList:
    """Serves `tools/list` with the server's own tools and the ready-made ones."""

    def __init__(self, server: Server[Any], tools: ToolRegistry) -> None:
        entry = server.get_request_handler(METHOD)
        self._own_handler = None if entry is None else entry.handler
        self._tools = tools
        # It replaces the server's handler, and is not middleware, so that middleware that marks tools sees these too.
        server.add_request_handler(METHOD, PaginatedRequestParams, self.serve)

    async def serve(self, ctx: AnyContext, params: PaginatedRequestParams) -> HandlerResult:
        page = {} if self._own_handler is None else fields_of(await self._own_handler(ctx, params))
        if page.get("nextCursor"):
            return page
        dynamic_tools = [_listed(tool.sdk) for tool in self._tools.dynamic_tools if tool.sdk is not None]
        # A call by name runs the ready-made tool.
        names = {tool["name"] for tool in dynamic_tools}
        own_tools = [tool for tool in page.get("tools", ()) if tool["name"] not in names]
        return page | {"tools": [*own_tools, *dynamic_tools]}


def _listed(sdk: SdkTool) -> dict[str, Any]:
    tool = Tool(
        name=sdk.name,
        title=sdk.title,
        description=sdk.description,
        input_schema=sdk.parameters,
        annotations=sdk.annotations,
    )
    return tool.model_dump(by_alias=True, mode="json", exclude_none=True)


NOTIFY_TIMEOUT = 5.0
"""Seconds for one connection to accept the notification. Its client may have stopped reading."""


class ToolListChanges:
    """Middleware that declares the notifications at the handshake, and tracks the connections to notify."""

    def __init__(self, server: MCPServer[Any] | None, lowlevel: Server[Any]) -> None:
        self._server = server
        self._connections: dict[int, Connection] = {}
        lowlevel.middleware.append(self)

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method != "initialize" or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return result
        connection = connection_of(ctx)
        if connection.has_standalone_channel and id(connection) not in self._connections:
            self._connections[id(connection)] = connection
            connection.exit_stack.callback(self._connections.pop, id(connection), None)
        fields = fields_of(result)
        capabilities = fields.get("capabilities", {})
        tools = {**capabilities.get("tools", {}), "listChanged": True}
        return fields | {"capabilities": {**capabilities, "tools": tools}}

    async def notify(self) -> None:
        """Notify every client that subscribed, or that has a connection for notifications."""
        # It is unknown where a low-level server publishes.
        bus = None if self._server is None else bus_of(self._server)
        if bus is not None:
            await bus.publish(ToolsListChanged())
        await asyncio.gather(*map(_notify_connection, list(self._connections.values())))


async def _notify_connection(connection: Connection) -> None:
    try:
        async with asyncio.timeout(NOTIFY_TIMEOUT):
            await connection.send_tool_list_changed()
    except TimeoutError:
        # The client will list the tools again later, or is gone.
        return


class DynamicToolOptions(TypedDict, total=False):
    """Options of a dynamic tool, besides its name and its input schema."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | None
    policy: TaskPolicy | None
    """How its calls become tasks."""


def as_served(tool: TaskTool, schema: InputSchema) -> TaskTool:
    """Return the tool that tasks run for a ready-made one."""
    return replace(
        tool, body=make_schema_body(tool), validate=partial(_check_arguments, tool, schema), extract_value=value_of
    )
