"""Tells callers that there are other tools now: `notifications/tools/list_changed`, in each generation's own way.

Since 2026 a caller asks for such news with `subscriptions/listen`, and the SDK serves that: something is published, and
it goes out. Before, news went out on every connection, and the SDK neither keeps those nor lets an `MCPServer` say at
the handshake that it sends any. Both are done here. It can go when the SDK does either.
"""

import asyncio
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import ToolsListChanged

from raincheck.server.requests import is_modern
from raincheck.server.sdk import AnyContext, bus_of, connection_of, fields_of

TOLD_WITHIN = 5.0
"""Seconds for one connection to take the news. Its caller may have stopped reading."""


class ToolChanges:
    """Middleware that says at the handshake that there will be news, and knows whom to tell."""

    def __init__(self, server: MCPServer[Any] | None, lowlevel: Server[Any]) -> None:
        self._server = server
        self._told: dict[int, Connection] = {}
        lowlevel.middleware.append(self)

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method != "initialize" or is_modern(ctx):
            return result
        self._remember(connection_of(ctx))
        fields = fields_of(result)
        capabilities = fields.get("capabilities", {})
        tools = {**capabilities.get("tools", {}), "listChanged": True}
        return fields | {"capabilities": {**capabilities, "tools": tools}}

    def _remember(self, connection: Connection) -> None:
        if connection.has_standalone_channel and id(connection) not in self._told:
            self._told[id(connection)] = connection
            connection.exit_stack.callback(self._told.pop, id(connection), None)

    async def tell(self) -> None:
        """Tell everybody who wants to know."""
        # Of a low-level server nobody knows where it publishes.
        bus = None if self._server is None else bus_of(self._server)
        if bus is not None:
            await bus.publish(ToolsListChanged())
        await asyncio.gather(*map(_tell, list(self._told.values())))


async def _tell(connection: Connection) -> None:
    try:
        async with asyncio.timeout(TOLD_WITHIN):
            await connection.send_tool_list_changed()
    except TimeoutError:
        # It lists them again some day, or its caller is gone.
        return
