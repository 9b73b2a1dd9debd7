"""Names of the tools for callers without tasks that tools of the server's own have: those are listed, and called.

Where a server says at its start which tools it has, such a name is refused there. A low-level server says so only to
callers that list them, and others add tools while they run: to take calls of theirs away would break what has worked.
"""

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import PaginatedRequestParams

from raincheck.server.sdk import AnyContext, fields_of
from raincheck.tracebacks import text_logger
from raincheck.wire.plain import Telling

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
