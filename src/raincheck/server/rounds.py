"""Calls in several rounds: what the SDK answers with `InputRequiredResult`, a task asks by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import resolve_arguments
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import CallToolRequestParams, InputRequiredResult

from raincheck.engine.context import TaskContext
from raincheck.errors import ToolError
from raincheck.server.workplace import ask

T = TypeVar("T")

MOST_ROUNDS = 100
"""A call that asks more often than that asks in circles."""


async def resolve(
    tool: SdkTool, arguments: Mapping[str, Any], context: Context[Any, Any]
) -> dict[str, Any] | InputRequiredResult:
    """What the resolvers of a tool find out, or what has to be asked for it."""
    found = await resolve_arguments(tool.resolved_params, tool.resolver_plans, arguments, context)
    return found if isinstance(found, InputRequiredResult) else dict(found)


async def play_rounds(
    task: TaskContext,
    params: CallToolRequestParams,
    play: Callable[[CallToolRequestParams], Awaitable[T | InputRequiredResult]],
    first: InputRequiredResult | None = None,
) -> T:
    """Play a call round by round, until it needs no more input. Questions are asked through the task.

    `first` is what the first round came to, if that has been played.

    Raises:
        ToolError: it never ends.
    """
    for _ in range(MOST_ROUNDS):
        result, first = first or await play(params), None
        if not isinstance(result, InputRequiredResult):
            return result
        requests = result.input_requests or {}
        answers: list[Any] = await asyncio.gather(*(ask(task, one, name=key) for key, one in requests.items()))
        params = CallToolRequestParams.model_validate(
            {
                "name": params.name,
                "arguments": params.arguments,
                "inputResponses": dict(zip(requests, answers, strict=True)),
                "requestState": result.request_state,
            },
            by_name=False,
        )
    raise ToolError(f"tool {params.name!r} has asked for input {MOST_ROUNDS} times without an end")
