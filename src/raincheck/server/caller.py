"""What a request says of itself: what its caller can take, and which task it is about."""

from enum import StrEnum
from typing import Any

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import HTTPConnection

from raincheck.errors import TaskNotFound
from raincheck.server.errors import invalid_params, json_kind, missing_capability
from raincheck.server.sdk_compat import AnyContext, Handler, connection_of
from raincheck.wire import errors, v2025
from raincheck.wire.v2026 import EXTENSION

LONGEST_ID = 200
"""Characters. Ours have far fewer."""

USES_TASKS = "raincheck/uses-tasks"
"""Where a connection keeps that its caller has used tasks."""


class Tier(StrEnum):
    """How a caller is served."""

    G1 = "2025-11-25"
    G2 = "2026-07-28"
    PLAIN = "plain"
    """It can't use tasks."""


def tier_of(ctx: AnyContext) -> Tier:
    """The tier of whoever makes a request.

    Callers of 2025-11-25 need not say that they can use tasks. One that declares tasks of its own can, and so can one
    that has used them on this connection.
    """
    if is_modern(ctx):
        return Tier.G2 if knows_tasks(ctx) else Tier.PLAIN
    declared = ctx.session.client_capabilities
    has_tasks = declared is not None and declared.tasks is not None
    uses_tasks = has_tasks or USES_TASKS in connection_of(ctx).state
    return Tier.G1 if speaks_g1(ctx) and uses_tasks else Tier.PLAIN


def remember_use(ctx: AnyContext) -> None:
    """Remember, for as long as its connection lasts, that a caller of 2025-11-25 uses tasks."""
    if asks_for_task(ctx) or (speaks_g1(ctx) and ctx.method.startswith("tasks/")):
        connection_of(ctx).state[USES_TASKS] = True


def is_modern(ctx: AnyContext) -> bool:
    """Whether the request is of a version whose tasks are an extension."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def knows_tasks(ctx: AnyContext) -> bool:
    """Whether the caller said, with this very request, that it can take a task."""
    declared = ctx.session.client_capabilities
    return is_modern(ctx) and declared is not None and EXTENSION in (declared.extensions or {})


def speaks_g1(ctx: AnyContext) -> bool:
    """Whether the request is of the version whose tasks are part of the core protocol."""
    return ctx.protocol_version == v2025.VERSION


def asks_for_task(ctx: AnyContext) -> bool:
    """Whether the caller itself asks for a task, as it does in that version."""
    return speaks_g1(ctx) and (ctx.params or {}).get("task") is not None


def by_generation(*, v2025_handler: Handler | None = None, v2026_handler: Handler | None = None) -> Handler:
    """What serves a method in each generation. Where it serves none, there is no such method."""

    async def serve(ctx: AnyContext, params: Any) -> HandlerResult:  # noqa: ANN401 - any method's
        handler = v2026_handler if is_modern(ctx) else v2025_handler if speaks_g1(ctx) else None
        if handler is None:
            raise MCPError(errors.METHOD_NOT_FOUND, "Method not found", ctx.method)
        return await handler(ctx, params)

    return serve


def routed_task(ctx: AnyContext) -> str:
    """The task that a request of the extension is about.

    Raises:
        MCPError: the caller does not know tasks, or it is not clear which is meant.
        TaskNotFound: no task has such an id.
    """
    if not knows_tasks(ctx):
        raise missing_capability()
    task_id = named_task(ctx)
    _check_routing(ctx, task_id)
    return task_id


def named_task(ctx: AnyContext) -> str:
    """The task that a request names.

    Raises:
        MCPError: it names none.
        TaskNotFound: no task has such an id.
    """
    task_id: object = (ctx.params or {}).get("taskId")
    if not isinstance(task_id, str):
        kind = "nothing" if task_id is None else json_kind(task_id)
        raise invalid_params(f"{ctx.method} needs params.taskId, a string, not {kind}")
    if len(task_id) > LONGEST_ID:
        # Not looked for, and not repeated: the rest of it is nobody's id.
        raise TaskNotFound(f"{task_id[:LONGEST_ID]}…")
    return task_id


def _check_routing(ctx: AnyContext, task_id: str) -> None:
    """Proxies route by the header, and we answer by the body: both must mean the same task."""
    request: Any = ctx.request
    if not isinstance(request, HTTPConnection):
        return
    name = request.headers.get(MCP_NAME_HEADER)
    if decode_header_value(name) != task_id:
        wrong = "is missing" if name is None else "names something else"
        raise MCPError(errors.HEADER_MISMATCH, f"the header Mcp-Name {wrong}: it must be the request's params.taskId")
