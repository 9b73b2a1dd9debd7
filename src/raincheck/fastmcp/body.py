"""A tool of FastMCP as the body of a task: it runs as in a call, with a context that works on the task.

Tools that the server's own program calls, with `mcp.call_tool`: a task of whoever is being served.

What we need of FastMCP and what it has no public name for, in one place.

It is looked for when tasks are attached, so that a FastMCP that has moved it is noticed there, with a message that says
so, and not at the first call.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias, cast

import fastmcp
from fastmcp import Context, FastMCP
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

from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import ConfigurationError, ToolError
from raincheck.server.disconnect import Leaving
from raincheck.server.identity import describe_caller, is_acting
from raincheck.server.render import Showing
from raincheck.server.runtime import UNSEEN_FOR, Running
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.tools.results import as_json, error_result, text_of
from raincheck.server.tools.task_session import TaskSession
from raincheck.wire import v2025


class OwnCalls:
    """Serves them. Tools of others run as they always did."""

    def __init__(self, running: Running) -> None:
        self.names: set[str] = set()
        """The tools that run only as tasks."""
        self._running = running
        self._leaving, self._showing = Leaving(running), Showing(running)

    async def call(self, params: CallToolRequestParams, call_next: ToolCallContinuation) -> ToolCallOutcome:
        """Call a tool, and wait for its task, which nobody else sees.

        Raises:
            ConfigurationError: a task calls a tool that runs as a task.
            FastToolError: what the tool says to its caller.
        """
        if params.name not in self.names:
            return await call_next()
        if is_acting():
            # It would hold its place while it waits for another task, and enough of them would wait for ever.
            raise ConfigurationError(f"a task that needs tool {params.name!r} calls it with `task.spawn`")
        request = fastmcp_request_ctx.get()
        ctx = None if request is None else request._srctx  # pyright: ignore[reportPrivateUsage] - there is no other way to it
        owner = Owner.local() if ctx is None else await self._running.owner_of(ctx)
        # Nobody who waits here could be asked anything.
        caller: dict[str, Json] = {} if ctx is None else describe_caller(ctx)
        caller["capabilities"] = {}
        engine, arguments = self._running.engine, to_jsonable_python(params.arguments or {})
        creating = engine.submit(params.name, arguments, owner=owner, caller=caller, timeout=UNSEEN_FOR)
        task = await self._leaving.create(creating)
        ended = await self._leaving.while_wanted(task, engine.wait(task.id, owner=owner))
        result = await self._showing.answer(ended)
        if result.get("isError"):
            raise FastToolError(text_of(result))
        return ToolResult.from_mcp_result(CallToolResult.model_validate(result, by_name=False))


AnyFastMCP: TypeAlias = FastMCP[Any]

PRIVATE: tuple[tuple[object, str], ...] = ((Tool, "_run"), (dependencies, "_is_client_tool_call"))


def lowlevel_of(server: AnyFastMCP) -> Server[Any]:
    """The SDK's server that a FastMCP server is built on.

    Raises:
        ConfigurationError: it is something else, or of a version that we don't know.
    """
    if not isinstance(server, FastMCP):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        raise ConfigurationError(
            f"these tasks are attached to a server of FastMCP 4, not to {server!r}: for one of the `mcp` SDK, import "
            f"Tasks from raincheck"
        )
    lowlevel = getattr(server, "_mcp_server", None)
    missing = [name for place, name in PRIVATE if not hasattr(place, name)]
    if missing or not isinstance(lowlevel, Server):
        name = missing[0] if missing else "_mcp_server"
        raise ConfigurationError(f"FastMCP {fastmcp.__version__} has no {name}: use another 4.x with raincheck")
    return cast("Server[Any]", lowlevel)


def has_name(server: AnyFastMCP) -> bool:
    """Whether its author named a server. One that has no name gets another each time it starts."""
    return re.fullmatch(rf"{type(server).__name__}-[0-9a-f]{{4}}", server.name) is None


async def all_tools_of(server: AnyFastMCP) -> Sequence[Tool]:
    """Every tool that a server has, whoever may call it: tasks of each may be waiting."""
    return await AggregateProvider.list_tools(server)


def is_callers_own() -> bool:
    """Whether a call is the one that a client made, and not one that a tool or middleware makes on the way."""
    return cast("Callable[[], bool]", getattr(dependencies, "_is_client_tool_call"))()  # noqa: B009 - it has no public name


async def run_tool(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    """Run a tool as its server would, through the middleware of a server that is mounted, and see what it raises."""
    run = cast("Callable[[dict[str, Any]], Awaitable[ToolResult]]", getattr(tool, "_run"))  # noqa: B009 - likewise
    return await run(arguments)


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
    return replace(ctx, session=FastSession(task), protocol_version=v2025.VERSION, meta={"progress_token": task.id})


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
