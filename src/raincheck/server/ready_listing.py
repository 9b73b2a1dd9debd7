"""Tools that are ready, in the list of a low-level server: it makes its list itself, and ours are put behind it."""

from typing import Any

from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import PaginatedRequestParams, Tool

from raincheck.server.sdk import AnyContext, fields_of
from raincheck.server.served import ServedTools

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
