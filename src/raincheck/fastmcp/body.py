"""A tool of FastMCP as the body of a task: it runs as in a call, with a context that works on the task."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from fastmcp import Context
from fastmcp.exceptions import DisabledError, FastMCPError, NotFoundError
from fastmcp.server.dependencies import bind_request_context
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp_types import CallToolResult, InputRequiredResult

from raincheck.engine.context import TaskContext
from raincheck.errors import ConfigurationError, ToolError
from raincheck.fastmcp.library import AnyFastMCP, run_tool
from raincheck.server.results import as_json, error_result
from raincheck.server.sdk import AnyContext
from raincheck.server.workplace import TaskSession
from raincheck.wire import g1

_task: ContextVar[TaskContext | None] = ContextVar("raincheck_fastmcp_task", default=None)


class FastSession(TaskSession):
    """A session with whoever reads the task, as FastMCP's context uses one."""

    def __init__(self, task: TaskContext) -> None:
        super().__init__(task)
        # What `ctx.set_state` keeps is found again in the task's next attempt, and by nobody else.
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


def running_task(name: str) -> TaskContext:
    """The task whose body this is.

    Raises:
        ConfigurationError: it is none.
    """
    task = _task.get()
    if task is None:
        raise ConfigurationError(f"tool {name!r} runs only as a task: call it through its server")
    return task


async def run_in_task(
    server: AnyFastMCP, name: str, arguments: dict[str, Any], ctx: AnyContext, task: TaskContext
) -> CallToolResult | InputRequiredResult:
    """Run a tool in a task. Middleware is not asked again: it has seen the call.

    Raises:
        ToolError: what the tool, or FastMCP for it, says to its caller.
    """
    with bind_request_context(_as_request(ctx, task)), _answering(), _running(task):
        async with Context(fastmcp=server):
            tool = await server.get_tool(name)
            if tool is None:
                raise NotFoundError(f"tool {name!r} is not there any more, or not for whoever called it")
            return as_mcp(await run_tool(tool, arguments))


def _as_request(ctx: AnyContext, task: TaskContext) -> AnyContext:
    """The request that FastMCP's context sees. Of a version in which a tool may ask while it runs: a task may."""
    return replace(ctx, session=FastSession(task), protocol_version=g1.VERSION, meta={"progress_token": task.id})


@contextmanager
def _running(task: TaskContext) -> Generator[None]:
    before = _task.set(task)
    try:
        yield
    finally:
        _task.reset(before)


@contextmanager
def _answering() -> Generator[None]:
    """What FastMCP tells a caller in a result is an answer. Anything else is a crash, which may be tried again."""
    try:
        yield
    except (FastMCPError, NotFoundError, DisabledError) as error:
        raise ToolError(str(error), content=as_json(error_result(str(error)))) from error


def as_mcp(result: ToolResult) -> CallToolResult | InputRequiredResult:
    """What a tool returned, as it goes out."""
    if isinstance(result, InputRequiredToolResult):
        return result.input_required
    plain = result.to_mcp_result()
    if isinstance(plain, CallToolResult):
        return plain
    content, structured = plain if isinstance(plain, tuple) else (plain, None)
    return CallToolResult(content=content, structured_content=structured)
