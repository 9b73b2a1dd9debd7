"""Tells callers that there are other tools now: `notifications/tools/list_changed`, in each generation's own way.

Since 2026 a caller asks for such news with `subscriptions/listen`, and the SDK serves that: something is published, and
it goes out. Before, news went out on every connection, and the SDK neither keeps those nor lets an `MCPServer` say at
the handshake that it sends any. Both are done here. It can go when the SDK does either.

Tells callers which tools take their keys. Only where that is said may a call be made again that got no answer.

A server without raincheck would begin it twice. And a caller who can't be told from others is refused a key. It is said
to those who ask for it: for all others, tools are listed as they would be without tasks.

Tools that are ready, in the list of a low-level server: it makes its list itself, and ours are put behind it.
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
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext, bus_of, connection_of, fields_of
from raincheck.server.tools.registry import ServedTools
from raincheck.wire.results import TAKES_KEYS

METHOD = "tools/list"


class ReadyListing:
    """Serves `tools/list` with both."""

    def __init__(self, server: Server[Any], tools: ServedTools) -> None:
        found = server.get_request_handler(METHOD)
        self._theirs = None if found is None else found.handler
        self._tools = tools
        # In the place of theirs, and not as middleware: what marks tools that become tasks sees ours too.
        server.add_request_handler(METHOD, PaginatedRequestParams, self.serve)

    async def serve(self, ctx: AnyContext, params: PaginatedRequestParams) -> HandlerResult:
        page = {} if self._theirs is None else fields_of(await self._theirs(ctx, params))
        if page.get("nextCursor"):
            return page
        ours = [_listed(tool.sdk) for tool in self._tools.ready if tool.sdk is not None]
        # Ours are what is called by their names.
        names = {tool["name"] for tool in ours}
        return page | {"tools": [*(tool for tool in page.get("tools", ()) if tool["name"] not in names), *ours]}


def _listed(sdk: SdkTool) -> dict[str, Any]:
    tool = Tool(
        name=sdk.name,
        title=sdk.title,
        description=sdk.description,
        input_schema=sdk.parameters,
        annotations=sdk.annotations,
    )
    return tool.model_dump(by_alias=True, mode="json", exclude_none=True)


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


class KeyListing:
    """Middleware that marks, in a list of tools, those whose calls become tasks."""

    def __init__(self, running: Running, tools: ServedTools) -> None:
        self._running = running
        self._tools = tools

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        asked = cast("Mapping[str, Any] | None", ctx.meta) or {}
        if ctx.method != "tools/list" or TAKES_KEYS not in asked or not await self._takes_keys(ctx):
            return result
        page = fields_of(result)
        return page | {"tools": [self._marked(tool) for tool in page.get("tools", ())]}

    async def _takes_keys(self, ctx: AnyContext) -> bool:
        """Whether the same call finds its task after this connection has broken, or this server has been killed."""
        try:
            owner = await self._running.owner_of(ctx)
        except MCPError:
            # If nothing is kept for this caller, it is told so when it asks for something.
            return False
        # Who is known by the session alone is somebody else in the next.
        return self._running.is_durable and owner.may_list and owner.kind is not OwnerKind.SESSION

    def _marked(self, tool: dict[str, Any]) -> dict[str, Any]:
        if self._tools.find(tool["name"]) is None:
            return tool
        return tool | {"_meta": {**(tool.get("_meta") or {}), TAKES_KEYS: True}}
