"""Classify the caller of a request, and read the task id that the request names."""

from enum import StrEnum
from typing import Any

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import HTTPConnection

from raincheck.errors import TaskNotFound
from raincheck.server.errors import describe_json, invalid_params, missing_capability
from raincheck.server.sdk_compat import AnyContext, Handler, connection_of
from raincheck.wire import errors, v2025
from raincheck.wire.v2026 import EXTENSION

MAX_ID_LENGTH = 200
"""Characters. Generated ids are far shorter."""

USES_TASKS = "raincheck/uses-tasks"
"""Key in a connection's state for the fact that its caller has used tasks."""


class Generation(StrEnum):
    """Protocol generation in which a caller is served."""

    V2025 = "2025-11-25"
    V2026 = "2026-07-28"
    FALLBACK = "plain"
    """The caller can't use tasks."""


def generation_of(ctx: AnyContext) -> Generation:
    """Return the generation of the caller of a request.

    Callers of 2025-11-25 need not declare that they can use tasks. A caller that declares its own tasks can, and so can
    a caller that has used tasks on this connection.
    """
    if is_modern(ctx):
        return Generation.V2026 if declares_tasks(ctx) else Generation.FALLBACK
    declared = ctx.session.client_capabilities
    has_tasks = declared is not None and declared.tasks is not None
    uses_tasks = has_tasks or USES_TASKS in connection_of(ctx).state
    return Generation.V2025 if is_v2025(ctx) and uses_tasks else Generation.FALLBACK


def record_task_use(ctx: AnyContext) -> None:
    """Record, for the life of the connection, that a caller of 2025-11-25 uses tasks."""
    if asks_for_task(ctx) or (is_v2025(ctx) and ctx.method.startswith("tasks/")):
        connection_of(ctx).state[USES_TASKS] = True


def is_modern(ctx: AnyContext) -> bool:
    """Return whether the protocol version of the request has tasks as an extension."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def declares_tasks(ctx: AnyContext) -> bool:
    """Return whether the caller declared, in this very request, that it accepts tasks."""
    declared = ctx.session.client_capabilities
    return is_modern(ctx) and declared is not None and EXTENSION in (declared.extensions or {})


def is_v2025(ctx: AnyContext) -> bool:
    """Return whether the protocol version of the request has tasks in the core protocol."""
    return ctx.protocol_version == v2025.VERSION


def asks_for_task(ctx: AnyContext) -> bool:
    """Return whether the caller itself requests a task, as callers of 2025-11-25 do."""
    return is_v2025(ctx) and (ctx.params or {}).get("task") is not None


def by_generation(*, v2025_handler: Handler | None = None, v2026_handler: Handler | None = None) -> Handler:
    """Return a handler that serves a method in each generation. Without a handler, the method does not exist there."""

    async def serve(ctx: AnyContext, params: Any) -> HandlerResult:  # noqa: ANN401 - any method's
        handler = v2026_handler if is_modern(ctx) else v2025_handler if is_v2025(ctx) else None
        if handler is None:
            raise MCPError(errors.METHOD_NOT_FOUND, "Method not found", ctx.method)
        return await handler(ctx, params)

    return serve


def routed_task_id(ctx: AnyContext) -> str:
    """Return the task id that a request of the extension names.

    Raises:
        MCPError: the caller does not declare tasks, or it is not clear which task is meant.
        TaskNotFound: no task has such an id.
    """
    if not declares_tasks(ctx):
        raise missing_capability()
    task_id = task_id_of(ctx)
    _check_routing(ctx, task_id)
    return task_id


def task_id_of(ctx: AnyContext) -> str:
    """Return the task id that a request names.

    Raises:
        MCPError: the request names no task.
        TaskNotFound: no task has such an id.
    """
    task_id: object = (ctx.params or {}).get("taskId")
    if not isinstance(task_id, str):
        kind = "nothing" if task_id is None else describe_json(task_id)
        raise invalid_params(f"{ctx.method} needs params.taskId, a string, not {kind}")
    if len(task_id) > MAX_ID_LENGTH:
        # Neither looked up nor repeated whole: no task has an id of that length.
        raise TaskNotFound(f"{task_id[:MAX_ID_LENGTH]}…")
    return task_id


def _check_routing(ctx: AnyContext, task_id: str) -> None:
    """Check that header and body name the same task: proxies route by the header, and the server by the body."""
    request: Any = ctx.request
    if not isinstance(request, HTTPConnection):
        return
    name = request.headers.get(MCP_NAME_HEADER)
    if decode_header_value(name) != task_id:
        problem = "is missing" if name is None else "names something else"
        raise MCPError(errors.HEADER_MISMATCH, f"the header Mcp-Name {problem}: it must be the request's params.taskId")
