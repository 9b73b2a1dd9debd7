"""Names of the tools for callers without tasks that tools of the server's own have: those are listed, and called.

Where a server says at its start which tools it has, such a name is refused there. A low-level server says so only to
callers that list them, and others add tools while they run: to take calls of theirs away would break what has worked.

What callers without tasks find in a list of tools besides the server's own. The SDK lists the same for everybody.

A tool whose call may be answered with a task's id instead of its result says so in its output schema: hosts hold the
structured content of an answer against that.
"""

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams

from raincheck.server.caller import Tier, tier_of
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext, fields_of
from raincheck.server.tools.registry import ServedTools
from raincheck.tracebacks import text_logger
from raincheck.wire.fallback_text import Telling
from raincheck.wire.fallback_tool_list import listed, may_be_task

logger = text_logger(__name__)

MOST_PAGES = 100
"""Of a list that may have no end."""


def said_to_have(server: Server[Any], names: Iterable[str]) -> set[str]:
    """Those that the server says it has, without being asked for a list. Most low-level ones say nothing."""
    knows = server.get_tool_input_schema
    return set() if knows is None else {name for name in names if knows(name) is not None}


class OwnNames:
    """Finds out which of the names the server itself has."""

    def __init__(self, server: Server[Any], telling: Telling) -> None:
        self._server = server
        self._telling = telling
        self._told: set[str] = set()
        self._has_looked = False

    def note(self, names: Iterable[str]) -> None:
        """The server has tools of these names, and perhaps of ours."""
        found = set(names) & set(self._telling.tools)
        self._telling.taken.update(found)
        for name in sorted(found - self._told):
            self._told.add(name)
            logger.warning(
                "the server has a tool %r of its own, so callers without tasks can't call ours of that name, by which "
                'they go on with a task: give plain_tools=PlainTools.prefixed("…_")',
                name,
            )

    async def look(self, ctx: AnyContext) -> None:
        """Look at what the server has now, before one of ours is called or listed."""
        if self._server.get_tool_input_schema is not None:
            known = said_to_have(self._server, self._telling.tools)
            # A tool of theirs may be gone, too.
            self._telling.taken.intersection_update(known)
            self.note(known)
        elif not self._has_looked and ctx.method == "tools/call":
            await self._look_at_list(ctx)

    async def _look_at_list(self, ctx: AnyContext) -> None:
        """Once. From then on it is seen in the lists that callers get."""
        try:
            async for page in self._pages(ctx):
                self.note(tool["name"] for tool in page.get("tools", ()))
        except Exception:
            # Whatever keeps it from listing its tools keeps nobody from going on with a task.
            logger.exception("the tools of server %r can't be listed", self._server.name)
        else:
            self._has_looked = True

    async def _pages(self, ctx: AnyContext) -> AsyncGenerator[dict[str, Any]]:
        listing = self._server.get_request_handler("tools/list")
        if listing is None:
            return
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = fields_of(await listing.handler(ctx, PaginatedRequestParams(cursor=cursor)))
            yield page
            cursor = page.get("nextCursor")
            if not cursor:
                return


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
