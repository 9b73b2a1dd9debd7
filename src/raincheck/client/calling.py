"""Calls of tools as the SDK makes them, and what may come of them: a result, a task, or words about one."""

from collections.abc import Mapping
from typing import Any, cast

from mcp.client import Client
from mcp_types import CallToolResult

from raincheck.client.claims import Claimed
from raincheck.client.raw import checking, reading
from raincheck.client.tiers import Begun, Call
from raincheck.client.updates import Progress
from raincheck.wire.plain import HANDLE, TOOLS


async def call_tool(client: Client, call: Call) -> Begun:
    """Call a tool."""

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        if call.progressed is not None:
            await call.progressed(Progress(progress, total), message)

    with reading(f"the answer to a call of {call.tool!r}"), checking(call.tool):
        result = await client.call_tool(
            call.tool,
            dict(call.arguments),
            progress_callback=None if call.progressed is None else progressed,
            meta=dict(call.meta),  # pyright: ignore[reportArgumentType] - the SDK's own keys, and others
        )
    return read_call(result)


def read_call(result: CallToolResult) -> Begun:
    """What a call came to."""
    if isinstance(result, Claimed):
        return Begun(task_id=result.created.task_id, tier="2026-07-28")
    told: Mapping[str, Any] = result.meta or {}
    task_id, tools = told.get(HANDLE), told.get(TOOLS)
    if not isinstance(task_id, str) or not isinstance(tools, Mapping) or result.is_error:
        return Begun(result)
    names = {str(use): str(name) for use, name in cast("Mapping[Any, Any]", tools).items()}
    return Begun(task_id=task_id, tier="plain", tools=names)
