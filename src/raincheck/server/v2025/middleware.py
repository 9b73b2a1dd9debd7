"""Pass the tasks of 2025-11-25 through the SDK, which has no place for them.

The SDK 2.x implements that version without its tasks. Three things are missing: a server can't declare the capability,
a tool can't declare whether it may be called as a task, and a result that is a task does not pass the SDK's check of
what `tools/call` may return in that version. Middleware runs around that check, so it supplies all three.

It is safe because it replaces only the final answer. A request passes down the whole chain, through other middleware,
the SDK's own validation and other extensions, to the same handler as every call. That handler leaves the task with this
middleware and returns an empty result in its place, and only that result is exchanged. Requests of other versions, and
calls that request no task, pass unchanged.

It can go when the SDK lets servers declare `capabilities.tasks` and `execution`, and lets a handler return a task.
"""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.core.records import Task
from raincheck.errors import ConfigurationError
from raincheck.server.caller import asks_for_task, record_task_use
from raincheck.server.disconnect import cancel_abandoned
from raincheck.server.errors import describe_json, invalid_params
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, connection_of, fields_of, is_owned_by
from raincheck.server.tools.registry import ToolRegistry
from raincheck.server.v2025.notifications import StatusNotifier
from raincheck.wire import v2025
from raincheck.wire.fields import LARGEST_INTEGER

HANDOFF_KEY = "raincheck/handed-out"
"""Key that marks the empty result that stands for a task."""

OWNER_TIMEOUT = 5.0
"""Seconds to determine the owner of a connection, at the handshake."""

_handoffs: "ContextVar[list[TaskHandoff] | None]" = ContextVar("raincheck_handed_out", default=None)


@dataclass(frozen=True, slots=True)
class TaskHandoff:
    """A task that the handler of a call leaves with the middleware."""

    task: Task
    answer: Mapping[str, Any]


def hand_off_task(task: Task, answer: Mapping[str, Any]) -> CallToolResult:
    """Leave a task as the answer to the current call, and return the result that stands for it meanwhile."""
    left = _handoffs.get()
    assert left is not None  # noqa: S101 - checked before there was a task
    left.append(TaskHandoff(task, answer))
    mark = {HANDOFF_KEY: task.id}
    # In both places, because other middleware may use one of them.
    return CallToolResult.model_validate({"content": [], "structuredContent": mark, "_meta": mark})


def check_can_hand_off() -> None:
    """Check that a task could be returned, before it is created.

    Raises:
        ConfigurationError: something around calls runs them elsewhere, without their context.
    """
    if _handoffs.get() is None:
        raise ConfigurationError(
            "a call that asks for a task lost its context on the way: middleware of this server runs it in a job or a "
            "thread of its own, which must be given a copy of the context (contextvars.copy_context)"
        )


class V2025Middleware:
    """Adds tasks to the handshake, to lists of tools, and to calls, where the SDK leaves them out."""

    def __init__(self, runtime: ServerRuntime, tools: ToolRegistry, notifier: StatusNotifier) -> None:
        self._runtime = runtime
        self._tools = tools
        self._notifier = notifier

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        record_task_use(ctx)
        match ctx.method:
            case "initialize":
                return await self._declare(ctx, fields_of(await call_next(ctx)))
            case "tools/list" if ctx.protocol_version == v2025.VERSION:
                return self._mark(fields_of(await call_next(ctx)))
            case "tools/call" if asks_for_task(ctx):
                return await self._call(ctx, call_next)
            case _:
                return await call_next(ctx)

    async def _declare(self, ctx: AnyContext, result: dict[str, Any]) -> HandlerResult:
        if result.get("protocolVersion") != v2025.VERSION:
            return result
        try:
            # The connection reads nothing else meanwhile, so the function that returns the owner has only so long.
            async with asyncio.timeout(OWNER_TIMEOUT):
                owner = await self._runtime.owner_of(ctx)
                # From here on, the connection belongs to this owner.
                is_owned_by(connection_of(ctx), owner)
                may_list = owner.may_list
        except (MCPError, TimeoutError):
            # If the server can't store tasks for this caller, the caller gets that error when it requests something.
            may_list = False
        tasks = v2025.capability(may_list=may_list)
        return result | {"capabilities": {**result.get("capabilities", {}), "tasks": tasks}}

    def _mark(self, result: dict[str, Any]) -> HandlerResult:
        return result | {"tools": [self._marked(tool) for tool in result.get("tools", ())]}

    def _marked(self, tool: dict[str, Any]) -> dict[str, Any]:
        served = self._tools.find(tool["name"])
        return tool if served is None else tool | {"execution": {"taskSupport": served.policy.task_support}}

    async def _call(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        _check_task(ctx.params)
        left: list[TaskHandoff] = []
        handed: TaskHandoff | None = None
        before = _handoffs.set(left)
        try:
            result = await call_next(ctx)
            # Other middleware may have returned another answer, or called more than once.
            handed = next((one for one in left if one.task.id in _marks(result)), None)
        finally:
            _handoffs.reset(before)
            for other in left:
                if other is not handed:
                    # Its caller never receives its id.
                    cancel_abandoned(self._runtime, other.task, self._runtime.engine)
        if handed is None:
            return result
        self._notifier.start(ctx, handed.task, _token_of(ctx.params))
        return dict(handed.answer)


def _check_task(params: Mapping[str, Any] | None) -> None:
    """Reject parameters that the SDK would reject without an explanation.

    Raises:
        MCPError: it names the invalid parameter.
    """
    task, meta = (params or {}).get("task"), (params or {}).get("_meta")
    if not isinstance(task, Mapping):
        raise invalid_params(f'params.task is an object, such as {{"ttl": 60000}}, not {describe_json(task)}')
    ttl = cast("Mapping[str, object]", task).get("ttl")
    # Some clients send a whole number as a float, which is exact up to a limit.
    is_whole = isinstance(ttl, int) or (isinstance(ttl, float) and ttl.is_integer() and ttl <= LARGEST_INTEGER)
    if ttl is not None and (isinstance(ttl, bool) or not is_whole or cast("float", ttl) <= 0):
        raise invalid_params(f"params.task.ttl is a whole number of milliseconds, at least 1, not {describe_json(ttl)}")
    if meta is not None and not isinstance(meta, Mapping):
        raise invalid_params(f"params._meta is an object, not {describe_json(meta)}")
    token: object = _token_of(params)
    is_given = meta is not None and "progressToken" in meta
    if is_given and (isinstance(token, bool) or not isinstance(token, str | int)):
        raise invalid_params(f"params._meta.progressToken is a string or a whole number, not {describe_json(token)}")


def _token_of(params: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - whatever the caller gave
    meta = (params or {}).get("_meta")
    return cast("Mapping[str, Any]", meta).get("progressToken") if isinstance(meta, Mapping) else None


def _marks(result: HandlerResult) -> list[object]:
    fields = fields_of(result)
    marked: list[Any] = [fields.get("_meta"), fields.get("structuredContent")]
    return [one[HANDOFF_KEY] for one in marked if isinstance(one, Mapping) and HANDOFF_KEY in one]
