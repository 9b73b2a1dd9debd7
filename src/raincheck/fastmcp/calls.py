"""Where calls become tasks in a FastMCP server: behind its middleware and other extensions, before the tool.

FastMCP has a place for that, an extension's `intercept_tool_call`. But it passes on neither the request itself nor what
the `_meta` of a call says, and takes no answers of other versions of the protocol. So a call is noted where it comes
in, and what came of it is put into its answer where that goes out.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from fastmcp import Context
from fastmcp.server.dependencies import extract_version_spec
from fastmcp.server.extensions import ServerExtension, ToolCallContinuation, ToolCallOutcome
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, ListToolsResult
from pydantic import BaseModel, ConfigDict

from raincheck.fastmcp.adapter import Face
from raincheck.fastmcp.body import OwnCalls, is_callers_own
from raincheck.server.caller import asks_for_task
from raincheck.server.errors import invalid_params
from raincheck.server.sdk_compat import AnyContext, Handler
from raincheck.wire.v2026 import EXTENSION


@dataclass(frozen=True, slots=True)
class Request:
    """A call that came in."""

    ctx: AnyContext
    params: CallToolRequestParams


class Answer(BaseModel):
    """An answer that FastMCP has no words for, on its way out through its middleware."""

    fields: dict[str, Any]


class Passed(BaseModel):
    """What FastMCP made of a call that became no task, on its way through us."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    outcome: Any


_request: ContextVar[Request | None] = ContextVar("raincheck_fastmcp_request", default=None)
_go_on: ContextVar[ToolCallContinuation | None] = ContextVar("raincheck_fastmcp_go_on", default=None)


class CallSeam(ServerExtension):
    """Serves calls where FastMCP is done with them. Until it knows by what, it leaves them to FastMCP."""

    identifier = EXTENSION

    def __init__(self, lowlevel: Server[Any], face: Face) -> None:
        self._face = face
        self._call, self._list = _handler_of(lowlevel, "tools/call"), _handler_of(lowlevel, "tools/list")
        self._serve: Handler | None = None
        self._own_calls: OwnCalls | None = None
        self._plain_names: frozenset[str] = frozenset()

    def serve_with(self, serve: Handler, own_calls: OwnCalls, plain_names: frozenset[str]) -> None:
        """Serve calls by this, from here on. The plain names are those of tools that FastMCP does not have."""
        self._serve, self._own_calls, self._plain_names = serve, own_calls, plain_names

    async def call(self, ctx: AnyContext, params: CallToolRequestParams) -> HandlerResult:
        """Serve `tools/call`."""
        assert self._serve is not None  # noqa: S101 - set before this is registered
        if params.name in self._plain_names and not await self._look_up(params.name):
            # FastMCP's middleware looks for the tool that is called.
            return await self._serve(ctx, params)
        before = _request.set(Request(ctx, params))
        try:
            answer = await self._call(ctx, params)
        finally:
            _request.reset(before)
        return answer.fields if isinstance(answer, Answer) else answer

    async def list(self, ctx: AnyContext, params: Any) -> HandlerResult:  # noqa: ANN401 - the SDK's
        """Serve `tools/list`, and note what is seen for the first time."""
        result = await self._list(ctx, params)
        if isinstance(result, ListToolsResult):
            for tool in result.tools:
                if self._face.catalogue.get_tool(tool.name) is None:
                    await self._look_up(tool.name)
        return result

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        context: Context,  # noqa: ARG002 - it has less than the request
        call_next: ToolCallContinuation,
    ) -> ToolCallOutcome:
        request = _request.get()
        if self._serve is None or self._own_calls is None:
            return await call_next()
        if request is None or not is_callers_own():
            return await self._own_calls.call(params, call_next)
        if _version_in(request.ctx) is not None or not await self._look_up(params.name):
            if asks_for_task(request.ctx):
                raise invalid_params(f"there is no tool {params.name!r} that can be called as a task like that")
            return await call_next()
        # Middleware may have changed what is called, and with what. The rest is as it came.
        changed = request.params.model_copy(update={"name": params.name, "arguments": params.arguments})
        before = _go_on.set(call_next)
        try:
            return _as_outcome(await self._serve(request.ctx, changed))
        finally:
            _go_on.reset(before)

    async def inside(self, _ctx: AnyContext, _params: CallToolRequestParams) -> HandlerResult:
        """What becomes of a call that becomes no task."""
        go_on = _go_on.get()
        assert go_on is not None  # noqa: S101 - called from where that is set
        return Passed(outcome=await go_on())

    async def _look_up(self, name: str) -> bool:
        """Whether whoever calls may call a tool of this name."""
        tool = await self._face.server.get_tool(name)
        if tool is not None:
            self._face.catalogue.note(tool)
        return tool is not None


def _as_outcome(answer: HandlerResult) -> ToolCallOutcome:
    """An answer as FastMCP's middleware knows it, as far as it does."""
    match answer:
        case Passed():
            return answer.outcome
        case CallToolResult():
            return ToolResult.from_mcp_result(answer)
        case Mapping() if answer.get("resultType") == "input_required":
            return InputRequiredToolResult(InputRequiredResult.model_validate(answer, by_name=False))
        case Mapping() if "content" in answer:
            return ToolResult.from_mcp_result(CallToolResult.model_validate(answer, by_name=False))
        case _:
            return Answer(fields=cast("dict[str, Any]", answer))


def _version_in(ctx: AnyContext) -> str | None:
    """The version of the tool that a caller names. A task runs the latest."""
    meta = (ctx.params or {}).get("_meta")
    return extract_version_spec(cast("dict[str, Any]", meta)) if isinstance(meta, dict) else None


def _handler_of(lowlevel: Server[Any], method: str) -> Handler:
    entry = lowlevel.get_request_handler(method)
    assert entry is not None  # noqa: S101 - every FastMCP server has it
    return entry.handler
