"""List the fallback tools to callers without tasks, and detect conflicts with the names of the server's own tools.

The SDK lists the same tools to every caller, so middleware adds the fallback tools for callers without tasks.

If a tool of the server has the name of a fallback tool, the server's tool is listed and called. A server that reports
its tools at startup is rejected at startup. A low-level server reports its tools only to callers that list them, and
other servers add tools while they run. Redirecting calls from those tools would break callers that use them.

A tool whose call may return a task id instead of its result declares that in its output schema, because hosts validate
the structured content of an answer against the schema.
"""

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp_types import PaginatedRequestParams

from raincheck.server.caller import Caller, OwnerResolver
from raincheck.server.sdk_compat import AnyContext, fields_of
from raincheck.server.tools.registry import ToolRegistry
from raincheck.tracebacks import text_logger
from raincheck.wire.fallback_text import FallbackMessages
from raincheck.wire.fallback_tools import allow_task_output, list_fallback_tools

logger = text_logger(__name__)

MAX_PAGES = 100
"""Maximum number of pages to read of a tool list, because a faulty server may never end it."""


def declared_tool_names(server: Server[Any], names: Iterable[str]) -> set[str]:
    """Return which names the server reports as its tools without `tools/list`. Most low-level servers report none."""
    find_schema = server.get_tool_input_schema
    return set() if find_schema is None else {name for name in names if find_schema(name) is not None}


class FallbackToolList:
    """Lists the fallback tools to callers without tasks, and detects names that the server's own tools use."""

    def __init__(
        self, server: Server[Any], owners: OwnerResolver, tools: ToolRegistry, messages: FallbackMessages
    ) -> None:
        self.names = frozenset(messages.tools)
        self._server = server
        self._owners = owners
        self._tools = tools
        self._messages = messages
        self._warned: set[str] = set()
        self._has_read_list = False

    def _record(self, names: Iterable[str]) -> None:
        """Record the names of tools that the server has, and warn about each new conflict."""
        conflicts = set(names) & set(self._messages.tools)
        self._messages.name_conflicts.update(conflicts)
        for name in sorted(conflicts - self._warned):
            self._warned.add(name)
            logger.warning(
                "the server's own tool %r has the name of a fallback tool, so callers without tasks can't call that "
                'fallback tool: pass fallback_tools=FallbackTools.prefixed("…_") to rename the fallback tools',
                name,
            )

    async def refresh(self, ctx: AnyContext) -> None:
        """Update the conflicts from the server's current tools, before a fallback tool is called or listed."""
        if self._server.get_tool_input_schema is not None:
            declared = declared_tool_names(self._server, self._messages.tools)
            # The server may also have removed a tool.
            self._messages.name_conflicts.intersection_update(declared)
            self._record(declared)
        elif not self._has_read_list and ctx.method == "tools/call":
            await self._read_list(ctx)

    async def _read_list(self, ctx: AnyContext) -> None:
        """Read the server's tool list once. Later conflicts are detected in the lists that callers request."""
        try:
            async for page in self._pages(ctx):
                self._record(tool["name"] for tool in page.get("tools", ()))
        except Exception:
            # If the server can't list its tools, callers must still be able to continue with a task.
            logger.exception("failed to list the tools of server %r", self._server.name)
        else:
            self._has_read_list = True

    async def _pages(self, ctx: AnyContext) -> AsyncGenerator[dict[str, Any]]:
        entry = self._server.get_request_handler("tools/list")
        if entry is None:
            return
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = fields_of(await entry.handler(ctx, PaginatedRequestParams(cursor=cursor)))
            yield page
            cursor = page.get("nextCursor")
            if not cursor:
                return

    async def extend(self, caller: Caller, result: HandlerResult) -> HandlerResult:
        """Return the server's tool list, for a caller without tasks as the caller sees it."""
        page = fields_of(result)
        self._record(tool["name"] for tool in page.get("tools", ()))
        if caller.uses_tasks:
            return result
        own_tools: list[dict[str, Any]] = [
            allow_task_output(tool) if self._may_be_task(tool["name"]) else tool for tool in page.get("tools", ())
        ]
        # List the fallback tools once, after all of the server's own tools.
        if page.get("nextCursor") or not self._tools.has_mode("auto"):
            return page | {"tools": own_tools}
        owner = await self._owners.find_owner_of(caller.ctx)
        fallback_tools = list_fallback_tools(self._messages, may_list=owner is not None and owner.may_list)
        # Clients reject a list that contains the same name twice.
        listed = [tool for tool in fallback_tools if tool["name"] not in self._messages.name_conflicts]
        return page | {"tools": [*own_tools, *listed]}

    def _may_be_task(self, name: str) -> bool:
        tool = self._tools.find(name)
        return tool is not None and tool.policy.mode == "auto"
