"""Tells callers which tools take their keys. Only where that is said may a call be made again that got no answer.

A server without raincheck would begin it twice. And a caller who can't be told from others is refused a key. It is said
to those who ask for it: for all others, tools are listed as they would be without tasks.
"""

from collections.abc import Mapping
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError

from raincheck.core.owner import OwnerKind
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext, fields_of
from raincheck.server.served import ServedTools
from raincheck.wire.results import TAKES_KEYS


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
