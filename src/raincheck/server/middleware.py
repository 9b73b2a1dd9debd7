"""Middleware that adds tasks to the handshake, to tool lists and to calls, where the SDK leaves them out.

The SDK 2.x implements 2025-11-25 without tasks. It lacks three things: a server can't declare the capability, a tool
can't declare whether it may be called as a task, and a result that is a task does not pass the SDK's check of what
`tools/call` may return in that version. Middleware runs around that check, so it supplies all three.

It is safe because it replaces only the final answer. A request passes down the whole chain, through other middleware,
the SDK's own validation and other extensions, to the same handler as every call. That handler leaves the task with this
middleware and returns an empty result in its place, and the middleware replaces only that result. Requests of other
versions, and calls that request no task, pass unchanged.

Remove that part when the SDK lets servers declare `capabilities.tasks` and `execution`, and lets a handler return a
task.

Tool lists also tell callers which tools accept their idempotency keys. Only where that is declared may a call that got
no answer be repeated: a server without raincheck would start it twice, and a caller that can't be distinguished from
others is refused a key. It is declared to callers that ask for it: for all other callers, tools are listed as they
would be without tasks.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp_types import CallToolResult

from raincheck.core.owner import OwnerKind
from raincheck.core.records import Task
from raincheck.errors import ConfigurationError
from raincheck.server.caller import Caller, OwnerResolver, record_task_use
from raincheck.server.disconnect import cancel_abandoned
from raincheck.server.errors import describe_json, invalid_params
from raincheck.server.fallback.tool_list import FallbackToolList
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, connection_of, fields_of, is_owned_by
from raincheck.server.tools.registry import ToolRegistry
from raincheck.server.v2025.notifications import StatusNotifier
from raincheck.wire import v2025
from raincheck.wire.fields import LARGEST_INTEGER, SUPPORTS_KEYS_META_KEY

HANDOFF_KEY = "raincheck/handed-out"
"""Key that marks the empty result which stands for a task."""

OWNER_TIMEOUT = 5.0
"""Seconds allowed for determining the owner of a connection during the handshake."""

_handoffs: "ContextVar[list[TaskHandoff] | None]" = ContextVar("raincheck_handoffs", default=None)


@dataclass(frozen=True, slots=True)
class TaskHandoff:
    """A task that the handler of a call leaves with the middleware."""

    task: Task
    answer: Mapping[str, Any]


def hand_off_task(task: Task, answer: Mapping[str, Any]) -> CallToolResult:
    """Leave a task as the answer to the current call, and return the result that stands for it until then."""
    handoffs = _handoffs.get()
    assert handoffs is not None  # noqa: S101 - checked before the task was created
    handoffs.append(TaskHandoff(task, answer))
    mark = {HANDOFF_KEY: task.id}
    # Mark both fields, because other middleware may overwrite one of them.
    return CallToolResult.model_validate({"content": [], "structuredContent": mark, "_meta": mark})


def check_can_hand_off() -> None:
    """Check, before a task is created, that it can be returned.

    Raises:
        ConfigurationError: other middleware runs calls in another context.
    """
    if _handoffs.get() is None:
        raise ConfigurationError(
            "a call that requests a task lost its context: middleware of this server runs the call in a separate "
            "asyncio task or thread. Run it there in a copy of the context (contextvars.copy_context)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class TaskMiddleware:
    """Adds tasks to the handshake, to tool lists and to calls. `fallback_list` lists the fallback tools, if any."""

    runtime: ServerRuntime
    owners: OwnerResolver
    tools: ToolRegistry
    notifier: StatusNotifier
    fallback_list: FallbackToolList | None

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            # A notification has no answer, whatever its method: an error would end up as a traceback in the log.
            return await call_next(ctx)
        if ctx.method.startswith("tasks/") or (ctx.params or {}).get("task") is not None:
            record_task_use(ctx)
        match ctx.method:
            case "initialize":
                return await self._declare_capability(ctx, fields_of(await call_next(ctx)))
            case "tools/list":
                return await self._list(Caller.of(ctx), call_next)
            case "tools/call":
                return await self._call(Caller.of(ctx), call_next)
            case _:
                return await call_next(ctx)

    async def _declare_capability(self, ctx: AnyContext, result: dict[str, Any]) -> HandlerResult:
        if result.get("protocolVersion") != v2025.VERSION:
            return result
        owner = None
        with suppress(TimeoutError):
            # The connection reads no other message meanwhile, so the time to determine the owner is limited.
            async with asyncio.timeout(OWNER_TIMEOUT):
                owner = await self.owners.find_owner_of(ctx)
        if owner is not None:
            # From here on, the connection belongs to this owner.
            is_owned_by(connection_of(ctx), owner)
        tasks = v2025.capability(may_list=owner is not None and owner.may_list)
        return result | {"capabilities": {**result.get("capabilities", {}), "tasks": tasks}}

    async def _list(self, caller: Caller, call_next: CallNext) -> HandlerResult:
        if self.fallback_list is not None:
            await self.fallback_list.refresh(caller.ctx)
        result = await call_next(caller.ctx)
        if self.fallback_list is not None:
            result = await self.fallback_list.extend(caller, result)
        meta = cast("Mapping[str, Any] | None", caller.ctx.meta) or {}
        takes_keys = SUPPORTS_KEYS_META_KEY in meta and await self._supports_keys(caller.ctx)
        if not (caller.is_v2025 or takes_keys):
            return result
        page = fields_of(result)
        tools = [dict(tool) for tool in page.get("tools", ())]
        for tool in tools:
            if (served := self.tools.find(tool["name"])) is None:
                continue
            if caller.is_v2025:
                tool["execution"] = {"taskSupport": served.policy.task_support}
            if takes_keys:
                tool["_meta"] = {**(tool.get("_meta") or {}), SUPPORTS_KEYS_META_KEY: True}
        return page | {"tools": tools}

    async def _supports_keys(self, ctx: AnyContext) -> bool:
        """Return whether a repeated call finds its task after this connection broke, or this server was killed."""
        owner = await self.owners.find_owner_of(ctx)
        # An owner that is known only by its session is another owner in the next session.
        is_known_later = owner is not None and owner.may_list and owner.kind is not OwnerKind.SESSION
        return self.runtime.is_durable and is_known_later

    async def _call(self, caller: Caller, call_next: CallNext) -> HandlerResult:
        ctx = caller.ctx
        if caller.is_modern and "task" in (ctx.params or {}):
            # Since 2026-07-28 the server alone decides on a task.
            ctx = replace(ctx, params={name: value for name, value in (ctx.params or {}).items() if name != "task"})
        if caller.wants_task:
            _check_task(ctx.params)
        name: object = (ctx.params or {}).get("name")
        if self.fallback_list is not None and isinstance(name, str) and name in self.fallback_list.names:
            await self.fallback_list.refresh(ctx)
        return await (self._call_as_task(ctx, call_next) if caller.wants_task else call_next(ctx))

    async def _call_as_task(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        handoffs: list[TaskHandoff] = []
        returned: TaskHandoff | None = None
        reset_token = _handoffs.set(handoffs)
        try:
            result = await call_next(ctx)
            # Other middleware may have returned another answer, or called the handler more than once.
            returned = next((handoff for handoff in handoffs if handoff.task.id in _marked_ids(result)), None)
        finally:
            _handoffs.reset(reset_token)
            for handoff in handoffs:
                if handoff is not returned:
                    # The caller never receives the id of this task.
                    cancel_abandoned(self.runtime, handoff.task, self.runtime.engine)
        if returned is None:
            return result
        self.notifier.start(ctx, returned.task, _token_of(ctx.params))
        return dict(returned.answer)


def _check_task(params: Mapping[str, Any] | None) -> None:
    """Reject parameters that the SDK would reject without an explanation.

    Raises:
        MCPError: a parameter is invalid. The error names it.
    """
    task, meta = (params or {}).get("task"), (params or {}).get("_meta")
    if not isinstance(task, Mapping):
        raise invalid_params(f'params.task must be an object such as {{"ttl": 60000}}, not {describe_json(task)}')
    ttl = cast("Mapping[str, object]", task).get("ttl")
    # Some clients send an integer as a float, which is exact up to a limit.
    is_whole = isinstance(ttl, int) or (isinstance(ttl, float) and ttl.is_integer() and ttl <= LARGEST_INTEGER)
    if ttl is not None and (isinstance(ttl, bool) or not is_whole or cast("float", ttl) <= 0):
        raise invalid_params(
            f"params.task.ttl must be a whole number of milliseconds, at least 1, not {describe_json(ttl)}"
        )
    if meta is not None and not isinstance(meta, Mapping):
        raise invalid_params(f"params._meta must be an object, not {describe_json(meta)}")
    token: object = _token_of(params)
    has_token = meta is not None and "progressToken" in meta
    if has_token and (isinstance(token, bool) or not isinstance(token, str | int)):
        raise invalid_params(
            f"params._meta.progressToken must be a string or a whole number, not {describe_json(token)}"
        )


def _token_of(params: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - any JSON value
    meta = (params or {}).get("_meta")
    return cast("Mapping[str, Any]", meta).get("progressToken") if isinstance(meta, Mapping) else None


def _marked_ids(result: HandlerResult) -> list[object]:
    """Return the ids of tasks that a result stands for."""
    fields = fields_of(result)
    values: list[Any] = [fields.get("_meta"), fields.get("structuredContent")]
    return [value[HANDOFF_KEY] for value in values if isinstance(value, Mapping) and HANDOFF_KEY in value]
