"""How tools are listed to FastMCP's own client, which makes values of what they return by their output schema.

Callers without tasks are told that the output of a tool may be a task instead. To that client, a schema of two kinds is
just an object, so the properties of the first kind are said once more, where it looks for them.
"""

from collections.abc import Mapping
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult

from raincheck.server.sdk import AnyContext, fields_of
from raincheck.wire.plain_listing import TASK_SCHEMA


async def keep_shapes(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """Middleware around what lists tools to callers without tasks."""
    result = await call_next(ctx)
    if ctx.method != "tools/list":
        return result
    page = fields_of(result)
    return page | {"tools": [_with_shape(tool) for tool in page.get("tools", ())]}


def _with_shape(tool: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = tool.get("outputSchema") or {}
    kinds: list[Any] = schema.get("anyOf") or []
    if len(kinds) != 2 or kinds[1] != TASK_SCHEMA:
        return tool
    return {**tool, "outputSchema": {**_shape_of(kinds[0]), **schema}}


def _shape_of(own: Mapping[str, Any]) -> dict[str, Any]:
    """What can be said of both kinds: properties that a task does not have. The client follows no references there."""
    properties: Mapping[str, Any] = own.get("properties", {})
    tasks = cast("Mapping[str, Any]", TASK_SCHEMA)["properties"]
    if not properties or not properties.keys().isdisjoint(tasks) or "$ref" in str(properties):
        return {}
    shape = {name: value for name, value in own.items() if name in ("title", "x-fastmcp-wrap-result")}
    return {**shape, "properties": properties}
