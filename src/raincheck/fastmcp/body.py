"""Run FastMCP tools as the bodies of tasks, and adapt the private names of FastMCP that this needs.

In a task, a tool runs as in a call, with a context that works on the task.

A tool that the server's own program calls with `mcp.call_tool` runs as a task of the caller that is being served.

The private names are checked when tasks are attached, so that a FastMCP version without one of them is refused there
with a clear message, and not at the first call.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias, cast

from fastmcp.exceptions import DisabledError, FastMCPError, NotFoundError
from fastmcp.exceptions import ToolError as FastToolError
from fastmcp.server import dependencies
from fastmcp.server.dependencies import bind_request_context, fastmcp_request_ctx
from fastmcp.server.extensions import ToolCallContinuation, ToolCallOutcome
from fastmcp.server.providers import AggregateProvider
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult
from pydantic_core import to_jsonable_python

import fastmcp
from fastmcp import Context, FastMCP
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import ConfigurationError, ToolError
from raincheck.server.disconnect import AbandonedCalls
from raincheck.server.identity import describe_caller, is_in_task_body
from raincheck.server.render import TaskRenderer
from raincheck.server.runtime import UNSEEN_TASK_TIMEOUT, ServerRuntime
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.tools.results import as_json, error_result, text_of
from raincheck.server.tools.task_session import TaskSession
from raincheck.wire import v2025


class DirectCalls:
    """Serves the calls that the program itself makes. Tools that run without tasks are unaffected."""

    def __init__(self, runtime: ServerRuntime) -> None:
        self.tool_names: set[str] = set()
        """The tools that run only as tasks."""
        self._runtime = runtime
        self._abandoned_calls, self._renderer = AbandonedCalls(runtime), TaskRenderer(runtime)

    async def call(self, params: CallToolRequestParams, call_next: ToolCallContinuation) -> ToolCallOutcome:
        """Call a tool, and wait for its task, which no caller sees.

        Raises:
            ConfigurationError: a task calls a tool that runs as a task.
            FastToolError: the tool reports an error to its caller.
        """
        if params.name not in self.tool_names:
            return await call_next()
        if is_in_task_body():
            # The task would hold its slot while it waits for another task. Enough of them would deadlock.
            raise ConfigurationError(
                f"a task can't wait for tool {params.name!r}, which runs as a task too: use `task.spawn`"
            )
        request = fastmcp_request_ctx.get()
        ctx = None if request is None else request._srctx  # pyright: ignore[reportPrivateUsage] - no public API returns it
        owner = Owner.local() if ctx is None else await self._runtime.owner_of(ctx)
        # A caller that waits here can't be asked for input.
        caller: dict[str, Json] = {} if ctx is None else describe_caller(ctx)
        caller["capabilities"] = {}
        engine, arguments = self._runtime.engine, to_jsonable_python(params.arguments or {})
        creating = engine.submit(params.name, arguments, owner=owner, caller=caller, timeout=UNSEEN_TASK_TIMEOUT)
        task = await self._abandoned_calls.wait_for_creation(creating)
        view = await self._abandoned_calls.wait_or_cancel(task, engine.wait(task.id, owner=owner))
        result = await self._renderer.render_result(view)
        if result.get("isError"):
            raise FastToolError(text_of(result))
        return ToolResult.from_mcp_result(CallToolResult.model_validate(result, by_name=False))


AnyFastMCP: TypeAlias = FastMCP[Any]

PRIVATE: tuple[tuple[object, str], ...] = ((Tool, "_run"), (dependencies, "_is_client_tool_call"))


def lowlevel_of(server: AnyFastMCP) -> Server[Any]:
    """Return the SDK's server that a FastMCP server is built on.

    Raises:
        ConfigurationError: `server` is something else, or of an unknown version.
    """
    if not isinstance(server, FastMCP):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        raise ConfigurationError(
            f"these tasks attach to a server of FastMCP 4, not to {server!r}: for a server of the `mcp` SDK, import "
            f"Tasks from raincheck"
        )
    lowlevel = getattr(server, "_mcp_server", None)
    missing = [name for owner, name in PRIVATE if not hasattr(owner, name)]
    if missing or not isinstance(lowlevel, Server):
        name = missing[0] if missing else "_mcp_server"
        raise ConfigurationError(
            f"FastMCP {fastmcp.__version__} has no {name}: install a version of FastMCP 4 that has it"
        )
    return cast("Server[Any]", lowlevel)


def has_name(server: AnyFastMCP) -> bool:
    """Return whether the author named the server. A server without a name gets another one each time it starts."""
    return re.fullmatch(rf"{type(server).__name__}-[0-9a-f]{{4}}", server.name) is None


async def list_all_tools(server: AnyFastMCP) -> Sequence[Tool]:
    """Return every tool of a server, whichever caller may use it, since tasks of any caller may be waiting."""
    return await AggregateProvider.list_tools(server)


def is_client_call() -> bool:
    """Return whether a client made this call, and not a tool or middleware while it serves another call."""
    return cast("Callable[[], bool]", getattr(dependencies, "_is_client_tool_call"))()  # noqa: B009 - it has no public name


async def run_tool(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    """Run a tool as its server would, through the middleware of a mounted server, and propagate its errors."""
    run = cast("Callable[[dict[str, Any]], Awaitable[ToolResult]]", getattr(tool, "_run"))  # noqa: B009 - likewise
    return await run(arguments)


_current_task: ContextVar[TaskContext | None] = ContextVar("raincheck_fastmcp_task", default=None)


class FastMCPSession(TaskSession):
    """A session with the caller of a task, as FastMCP's context uses one."""

    def __init__(self, task: TaskContext) -> None:
        super().__init__(task)
        # So that the task's next attempt, and no other task, finds the state that `ctx.set_state` stores.
        self._fastmcp_state_prefix = f"raincheck-{task.id}"

    async def send_progress_notification(
        self,
        progress_token: str | int,  # noqa: ARG002 - there is one task
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: str | None = None,  # noqa: ARG002 - likewise
    ) -> None:
        await self._task.progress(progress, total, message)


def current_task(name: str) -> TaskContext:
    """Return the task whose body is running.

    Raises:
        ConfigurationError: no task body is running.
    """
    task = _current_task.get()
    if task is None:
        raise ConfigurationError(f"tool {name!r} runs only as a task: call it through its server")
    return task


async def run_in_task(
    server: AnyFastMCP, name: str, arguments: dict[str, Any], ctx: AnyContext, task: TaskContext
) -> CallToolResult | InputRequiredResult:
    """Run a tool in a task. Middleware does not run again: it has seen the call.

    Raises:
        ToolError: the tool, or FastMCP on its behalf, reports an error to its caller.
    """
    with bind_request_context(_as_request(ctx, task)), _map_errors(), _set_current_task(task):
        async with Context(fastmcp=server):
            tool = await server.get_tool(name)
            if tool is None:
                raise NotFoundError(f"tool {name!r} no longer exists, or its caller may not use it any more")
            return to_call_result(await run_tool(tool, arguments))


def _as_request(ctx: AnyContext, task: TaskContext) -> AnyContext:
    """Return the request for FastMCP's context, in a protocol version that lets tools send requests while they run."""
    return replace(ctx, session=FastMCPSession(task), protocol_version=v2025.VERSION, meta={"progress_token": task.id})


@contextmanager
def _set_current_task(task: TaskContext) -> Generator[None]:
    before = _current_task.set(task)
    try:
        yield
    finally:
        _current_task.reset(before)


@contextmanager
def _map_errors() -> Generator[None]:
    """Convert errors that FastMCP reports to a caller in a result. Other errors are crashes, which may be retried."""
    try:
        yield
    except (FastMCPError, NotFoundError, DisabledError) as error:
        raise ToolError(str(error), content=as_json(error_result(str(error)))) from error


def to_call_result(result: ToolResult) -> CallToolResult | InputRequiredResult:
    """Convert the result of a tool to the type of the SDK."""
    if isinstance(result, InputRequiredToolResult):
        return result.input_required
    converted = result.to_mcp_result()
    if isinstance(converted, CallToolResult):
        return converted
    content, structured = converted if isinstance(converted, tuple) else (converted, None)
    return CallToolResult(content=content, structured_content=structured)
