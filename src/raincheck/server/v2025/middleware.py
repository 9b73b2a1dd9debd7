"""How tasks of 2025-11-25 get past the SDK, which has no place for them.

The SDK 2.x speaks that version and left its tasks out. Three things are missing: a server can't declare the capability,
a tool can't say whether it may be called as a task, and a result that is a task does not pass the SDK's check of what
`tools/call` may answer in that version. Middleware stands around that check, so this is where the three are mended.

It is safe because nothing is taken from the SDK but the last word: a request goes down the whole chain, through other
middleware, the SDK's own validation and other extensions, to the same handler as every call. That handler leaves the
task with us, and answers with an empty result in its place, which is all that is exchanged here. Requests of other
versions, and calls that ask for no task, are passed on untouched.

It can go when the SDK lets servers declare `capabilities.tasks` and `execution`, and lets a handler answer with a task.
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
from raincheck.server.caller import asks_for_task, remember_use
from raincheck.server.disconnect import give_up
from raincheck.server.errors import invalid_params, json_kind
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext, connection_of, fields_of, is_theirs
from raincheck.server.tools.registry import ServedTools
from raincheck.server.v2025.notifications import Pushing
from raincheck.wire import v2025
from raincheck.wire.fields import LARGEST_INTEGER

HANDED_OUT = "raincheck/handed-out"
"""Marks the empty result that stands for a task."""

DECLARED_WITHIN = 5.0
"""Seconds."""

_left: "ContextVar[list[HandedOut] | None]" = ContextVar("raincheck_handed_out", default=None)


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A task that the handler of a call leaves here."""

    task: Task
    answer: Mapping[str, Any]


def hand_out(task: Task, answer: Mapping[str, Any]) -> CallToolResult:
    """Leave a task here, to be the answer to the call that is being handled; and what to answer in its place."""
    left = _left.get()
    assert left is not None  # noqa: S101 - looked at before there was a task
    left.append(HandedOut(task, answer))
    mark = {HANDED_OUT: task.id}
    # Twice, since others on the way may have a use for the one or the other.
    return CallToolResult.model_validate({"content": [], "structuredContent": mark, "_meta": mark})


def check_may_hand_out() -> None:
    """Refuse to make a task that could not be handed out.

    Raises:
        ConfigurationError: something around calls runs them elsewhere, without their context.
    """
    if _left.get() is None:
        raise ConfigurationError(
            "a call that asks for a task lost its context on the way: middleware of this server runs it in a job or a "
            "thread of its own, which must be given a copy of the context (contextvars.copy_context)"
        )


class G1Middleware:
    """Adds what the SDK leaves out of the handshake, of lists of tools, and of calls."""

    def __init__(self, running: Running, tools: ServedTools, pushing: Pushing) -> None:
        self._running = running
        self._tools = tools
        self._pushing = pushing

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        remember_use(ctx)
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
            # The connection reads nothing else meanwhile, so whoever says whose a request is has only so long.
            async with asyncio.timeout(DECLARED_WITHIN):
                owner = await self._running.owner_of(ctx)
                # From here on the connection is.
                is_theirs(connection_of(ctx), owner)
                may_list = owner.may_list
        except (MCPError, TimeoutError):
            # If nothing is kept for this caller, it is told so when it asks for something.
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
        left: list[HandedOut] = []
        handed: HandedOut | None = None
        before = _left.set(left)
        try:
            result = await call_next(ctx)
            # Somebody on the way may have had another answer, or called more than once.
            handed = next((one for one in left if one.task.id in _marks(result)), None)
        finally:
            _left.reset(before)
            for other in left:
                if other is not handed:
                    # Its caller never hears of it.
                    give_up(self._running, other.task, self._running.engine)
        if handed is None:
            return result
        self._pushing.begin(ctx, handed.task, _token_of(ctx.params))
        return dict(handed.answer)


def _check_task(params: Mapping[str, Any] | None) -> None:
    """Refuse what the SDK would refuse without a word of what is wrong with it.

    Raises:
        MCPError: it says what is.
    """
    task, meta = (params or {}).get("task"), (params or {}).get("_meta")
    if not isinstance(task, Mapping):
        raise invalid_params(f'params.task is an object, such as {{"ttl": 60000}}, not {json_kind(task)}')
    ttl = cast("Mapping[str, object]", task).get("ttl")
    # What has a point is whole for some, up to where it can't be told.
    is_whole = isinstance(ttl, int) or (isinstance(ttl, float) and ttl.is_integer() and ttl <= LARGEST_INTEGER)
    if ttl is not None and (isinstance(ttl, bool) or not is_whole or cast("float", ttl) <= 0):
        raise invalid_params(f"params.task.ttl is a whole number of milliseconds, at least 1, not {json_kind(ttl)}")
    if meta is not None and not isinstance(meta, Mapping):
        raise invalid_params(f"params._meta is an object, not {json_kind(meta)}")
    token: object = _token_of(params)
    is_given = meta is not None and "progressToken" in meta
    if is_given and (isinstance(token, bool) or not isinstance(token, str | int)):
        raise invalid_params(f"params._meta.progressToken is a string or a whole number, not {json_kind(token)}")


def _token_of(params: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - whatever the caller gave
    meta = (params or {}).get("_meta")
    return cast("Mapping[str, Any]", meta).get("progressToken") if isinstance(meta, Mapping) else None


def _marks(result: HandlerResult) -> list[object]:
    fields = fields_of(result)
    marked: list[Any] = [fields.get("_meta"), fields.get("structuredContent")]
    return [one[HANDED_OUT] for one in marked if isinstance(one, Mapping) and HANDED_OUT in one]
