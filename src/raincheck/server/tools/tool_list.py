"""Extend the tool lists of a server, and notify callers when the tools change.

`DynamicToolList` lists the ready-made tools of a low-level server: the server makes its list itself, and ready-made
tools are appended to it.

`ToolListChanges` sends `notifications/tools/list_changed`, in each generation's own way. Since 2026-07-28 a caller
subscribes with `subscriptions/listen`, which the SDK serves: a published change is sent. Before, the notification was
sent on every connection, and the SDK neither tracks those nor lets an `MCPServer` declare at the handshake that it
sends any. This module does both. It can go when the SDK does either.

`IdempotencyHints` tells callers which tools accept their keys. Only where that is declared may a call that got no
answer be repeated: a server without raincheck would start it twice, and a caller that can't be distinguished from
others is refused a key. It is declared to callers that ask for it: for all other callers, tools are listed as they
would be without tasks.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams, Tool

from raincheck.core.owner import OwnerKind
from raincheck.server.caller import is_modern
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, bus_of, connection_of, fields_of
from raincheck.server.tools.registry import ToolRegistry
from raincheck.wire.results import SUPPORTS_KEYS_META_KEY

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
        if ctx.method != "initialize" or is_modern(ctx):
            return result
        self._track(connection_of(ctx))
        fields = fields_of(result)
        capabilities = fields.get("capabilities", {})
        tools = {**capabilities.get("tools", {}), "listChanged": True}
        return fields | {"capabilities": {**capabilities, "tools": tools}}

    def _track(self, connection: Connection) -> None:
        if connection.has_standalone_channel and id(connection) not in self._connections:
            self._connections[id(connection)] = connection
            connection.exit_stack.callback(self._connections.pop, id(connection), None)

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


class IdempotencyHints:
    """Middleware that marks the tools whose calls become tasks, in lists of tools."""

    def __init__(self, runtime: ServerRuntime, tools: ToolRegistry) -> None:
        self._runtime = runtime
        self._tools = tools

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        meta = cast("Mapping[str, Any] | None", ctx.meta) or {}
        if ctx.method != METHOD or SUPPORTS_KEYS_META_KEY not in meta or not await self._supports_keys(ctx):
            return result
        page = fields_of(result)
        return page | {"tools": [self._marked(tool) for tool in page.get("tools", ())]}

    async def _supports_keys(self, ctx: AnyContext) -> bool:
        """Return whether a repeated call finds its task after this connection broke, or this server was killed."""
        try:
            owner = await self._runtime.owner_of(ctx)
        except MCPError:
            # If the server can't store tasks for this caller, the caller gets that error when it requests something.
            return False
        # An owner that is known only by its session is another owner in the next session.
        return self._runtime.is_durable and owner.may_list and owner.kind is not OwnerKind.SESSION

    def _marked(self, tool: dict[str, Any]) -> dict[str, Any]:
        if self._tools.find(tool["name"]) is None:
            return tool
        return tool | {"_meta": {**(tool.get("_meta") or {}), SUPPORTS_KEYS_META_KEY: True}}
