"""Turn calls of a FastMCP server into tasks: after its middleware and other extensions, before the tool.

FastMCP has a hook for that, an extension's `intercept_tool_call`. But the hook receives neither the request itself nor
the `_meta` of a call, and accepts no answers of other protocol versions. So each call is recorded when it comes in, and
its outcome is put into the answer when that is sent.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, cast

from fastmcp.exceptions import ToolError as FastToolError
from fastmcp.server.dependencies import extract_version_spec, fastmcp_request_ctx
from fastmcp.server.extensions import ServerExtension, ToolCallContinuation, ToolCallOutcome
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, ListToolsResult
from pydantic import BaseModel

from fastmcp import Context
from raincheck.fastmcp.adapter import ServerAdapter, is_client_call
from raincheck.server.caller import Caller
from raincheck.server.errors import invalid_params
from raincheck.server.results import text_of
from raincheck.server.sdk_compat import AnyContext, Handler
from raincheck.server.tools.functions import DirectCalls
from raincheck.wire.v2026 import EXTENSION


class RawAnswer(BaseModel):
    """An answer that FastMCP has no type for, on its way out through its middleware."""

    fields: dict[str, Any]


class FastMCPOutcome(BaseModel):
    """The outcome in FastMCP of a call that became no task, on its way through raincheck."""

    outcome: Any


_incoming_call: ContextVar[tuple[AnyContext, CallToolRequestParams] | None] = ContextVar(
    "raincheck_fastmcp_request", default=None
)
"""The request and the parameters of a call, as it came in."""

_call_next: ContextVar[ToolCallContinuation | None] = ContextVar("raincheck_fastmcp_call_next", default=None)


class CallInterceptor(ServerExtension):
    """Serves calls after FastMCP's middleware. Until its handlers are set, FastMCP serves them."""

    identifier = EXTENSION

    def __init__(self, lowlevel: Server[Any], adapter: ServerAdapter) -> None:
        self._adapter = adapter
        self.original_call, self._list = handler_of(lowlevel, "tools/call"), handler_of(lowlevel, "tools/list")
        self._serve: Handler | None = None
        self._direct_calls: DirectCalls | None = None
        self._fallback_names: frozenset[str] = frozenset()
        self.task_only_tools: set[str] = set()
        """The names of the tools that run only as tasks."""

    def set_handlers(self, serve: Handler, direct_calls: DirectCalls, fallback_names: frozenset[str]) -> None:
        """Set the handlers of calls. `fallback_names` are those of tools that FastMCP does not have."""
        self._serve, self._direct_calls, self._fallback_names = serve, direct_calls, fallback_names

    async def call(self, ctx: AnyContext, params: CallToolRequestParams) -> HandlerResult:
        """Serve `tools/call`."""
        assert self._serve is not None  # noqa: S101 - set before this is registered
        if params.name in self._fallback_names and not await self._look_up(params.name):
            # Not through FastMCP's middleware, which looks up the tool.
            return await self._serve(ctx, params)
        before = _incoming_call.set((ctx, params))
        try:
            answer = await self.original_call(ctx, params)
        finally:
            _incoming_call.reset(before)
        return answer.fields if isinstance(answer, RawAnswer) else answer

    async def list(self, ctx: AnyContext, params: Any) -> HandlerResult:  # noqa: ANN401 - the SDK's
        """Serve `tools/list`, and record the tools that are seen for the first time."""
        result = await self._list(ctx, params)
        if isinstance(result, ListToolsResult):
            for tool in result.tools:
                if self._adapter.catalog.get_tool(tool.name) is None:
                    await self._look_up(tool.name)
        return result

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        context: Context,  # noqa: ARG002 - it has less than the request
        call_next: ToolCallContinuation,
    ) -> ToolCallOutcome:
        incoming = _incoming_call.get()
        if self._serve is None or self._direct_calls is None:
            return await call_next()
        if incoming is None or not is_client_call():
            if params.name not in self.task_only_tools:
                return await call_next()
            return await self._call_directly(self._direct_calls, params)
        ctx, original = incoming
        if _version_in(ctx) is not None or not await self._look_up(params.name):
            if Caller.of(ctx).wants_task:
                raise invalid_params(
                    f"there is no tool {params.name!r} to call as a task: check its name, and request no version of it"
                )
            return await call_next()
        # Middleware may have changed the tool and its arguments. The rest is as it came in.
        changed = original.model_copy(update={"name": params.name, "arguments": params.arguments})
        before = _call_next.set(call_next)
        try:
            return _as_outcome(await self._serve(ctx, changed))
        finally:
            _call_next.reset(before)

    async def call_original(self, _ctx: AnyContext, _params: CallToolRequestParams) -> HandlerResult:
        """Let FastMCP serve a call that becomes no task."""
        call_next = _call_next.get()
        assert call_next is not None  # noqa: S101 - set by `intercept_tool_call`, which leads here
        return FastMCPOutcome(outcome=await call_next())

    async def _call_directly(self, direct_calls: DirectCalls, params: CallToolRequestParams) -> ToolCallOutcome:
        """Serve a call that the program itself makes. It runs as a task of the caller that is being served.

        Raises:
            ConfigurationError: a task calls a tool that runs as a task.
            FastToolError: the tool reports an error to its caller.
        """
        request = fastmcp_request_ctx.get()
        ctx = None if request is None else request._srctx  # pyright: ignore[reportPrivateUsage] - no public API returns it
        result = await direct_calls.run(params.name, params.arguments or {}, ctx)
        if result.get("isError"):
            raise FastToolError(text_of(result))
        return ToolResult.from_mcp_result(CallToolResult.model_validate(result, by_name=False))

    async def _look_up(self, name: str) -> bool:
        """Return whether the caller may call a tool of this name, and record the tool."""
        tool = await self._adapter.server.get_tool(name)
        if tool is not None:
            self._adapter.catalog.record(tool)
        return tool is not None


def _as_outcome(answer: HandlerResult) -> ToolCallOutcome:
    """Convert an answer to the types of FastMCP's middleware, as far as it has one."""
    match answer:
        case FastMCPOutcome():
            return answer.outcome
        case CallToolResult():
            return ToolResult.from_mcp_result(answer)
        case Mapping() if answer.get("resultType") == "input_required":
            return InputRequiredToolResult(InputRequiredResult.model_validate(answer, by_name=False))
        case Mapping() if "content" in answer:
            return ToolResult.from_mcp_result(CallToolResult.model_validate(answer, by_name=False))
        case _:
            return RawAnswer(fields=cast("dict[str, Any]", answer))


def _version_in(ctx: AnyContext) -> str | None:
    """Return the version of the tool that the caller requests. A task always runs the latest."""
    meta = (ctx.params or {}).get("_meta")
    return extract_version_spec(cast("dict[str, Any]", meta)) if isinstance(meta, dict) else None


def handler_of(lowlevel: Server[Any], method: str) -> Handler:
    """Return what serves a method that every FastMCP server has."""
    entry = lowlevel.get_request_handler(method)
    assert entry is not None  # noqa: S101 - as above
    return entry.handler
