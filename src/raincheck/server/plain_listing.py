"""What callers without tasks find in a list of tools besides the server's own. The SDK lists the same for everybody.

A tool whose call may be answered with a task's id instead of its result says so in its output schema: hosts hold the
structured content of an answer against that.
"""

from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from raincheck.server.plain_names import OwnNames
from raincheck.server.requests import Tier, tier_of
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext, fields_of
from raincheck.server.served import ServedTools
from raincheck.wire.plain import Telling
from raincheck.wire.plain_listing import listed, may_be_task


class PlainListing:
    """Middleware that lists, for callers without tasks, the tools by which they go on with one."""

    def __init__(self, server: Server[Any], running: Running, tools: ServedTools, telling: Telling) -> None:
        self._running = running
        self._tools = tools
        self._telling = telling
        self._own_names = OwnNames(server, telling)
        self._names = frozenset(telling.tools)

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        is_list = ctx.method == "tools/list"
        if is_list or (ctx.method == "tools/call" and (ctx.params or {}).get("name") in self._names):
            await self._own_names.look(ctx)
        result = await call_next(ctx)
        if not is_list:
            return result
        page = fields_of(result)
        self._own_names.note(tool["name"] for tool in page.get("tools", ()))
        if tier_of(ctx) is not Tier.PLAIN:
            return result
        theirs: list[dict[str, Any]] = [
            may_be_task(tool) if self._may_be_task(tool["name"]) else tool for tool in page.get("tools", ())
        ]
        # Once, behind all of the server's own.
        if page.get("nextCursor") or not self._tools.has_any("auto"):
            return page | {"tools": theirs}
        ours = listed(self._telling, may_list=await self._may_list(ctx))
        # Nobody takes a list with the same name twice.
        return page | {"tools": [*theirs, *(tool for tool in ours if tool["name"] not in self._telling.taken)]}

    async def _may_list(self, ctx: AnyContext) -> bool:
        try:
            return (await self._running.owner_of(ctx)).may_list
        except MCPError:
            # If nothing is kept for this caller, it is told so when it asks for something.
            return False

    def _may_be_task(self, name: str) -> bool:
        tool = self._tools.find(name)
        return tool is not None and tool.policy.mode == "auto"
