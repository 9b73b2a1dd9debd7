"""Tools that the server's own program calls, with `mcp.call_tool`: a task of whoever is being served."""

from fastmcp.exceptions import ToolError as FastToolError
from fastmcp.server.dependencies import fastmcp_request_ctx
from fastmcp.server.extensions import ToolCallContinuation, ToolCallOutcome
from fastmcp.tools.base import ToolResult
from mcp_types import CallToolRequestParams, CallToolResult
from pydantic_core import to_jsonable_python

from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.errors import ConfigurationError
from raincheck.server.callers import describe_caller, is_acting
from raincheck.server.leaving import Leaving
from raincheck.server.results import text_of
from raincheck.server.running import UNSEEN_FOR, Running
from raincheck.server.showing import Showing


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
