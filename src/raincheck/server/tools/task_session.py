"""Provide the SDK's context to bodies that run as tasks, whose caller may be gone.

The request that created a task has been answered, its connection is closed, and the process may be another one. So a
body that takes the SDK's `Context` gets one that works on the task: progress is the task's, questions are asked
through the task and survive a crash, and what needs the connection itself is dropped or refused.

In a call of several rounds, the task itself sends the input requests that the SDK returns in `InputRequiredResult`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import resolve_arguments
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_REQUEST,
    CallToolRequestParams,
    ClientCapabilities,
    InitializeRequestParams,
    InputRequiredResult,
    ServerNotification,
    ServerRequest,
)
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel

from raincheck.core.records import InputKind, shorten_id
from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import ProtocolError, ToolError
from raincheck.server.caller import answers_of, capabilities_of
from raincheck.server.sdk_compat import AnyContext, bus_of

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT", bound=BaseModel)

INPUT_KINDS: Mapping[str, tuple[InputKind, str]] = {
    "elicitation/create": (InputKind.ELICITATION, "elicit"),
    "sampling/createMessage": (InputKind.SAMPLING, "sample"),
    "roots/list": (InputKind.ROOTS, "roots"),
}
"""The kind of input request that a request to a caller becomes in a task, and its default name."""


class TaskSession(ServerSession):
    """A session with the caller of a task. It needs no connection."""

    def __init__(self, task: TaskContext) -> None:  # pyright: ignore[reportMissingSuperCall] - there is no connection to give it
        self._task = task

    @property
    def client_params(self) -> InitializeRequestParams | None:
        return None

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return capabilities_of(self._task.caller)

    @property
    def can_send_request(self) -> bool:
        return True

    @property
    def protocol_version(self) -> str:
        return LATEST_MODERN_VERSION

    def check_client_capability(self, capability: ClientCapabilities) -> bool:
        return _covers(_declared(self.client_capabilities), _declared(capability))

    async def send_request(
        self,
        request: ServerRequest,
        result_type: type[ResultT],
        request_read_timeout_seconds: float | None = None,  # noqa: ARG002 - it waits as long as it takes
        metadata: ServerMessageMetadata | None = None,  # noqa: ARG002 - there is one channel
        progress_callback: ProgressFnT | None = None,  # noqa: ARG002 - there is no progress
    ) -> ResultT:
        """Ask through the task. It waits for as long as it takes, and holds no worker slot meanwhile."""
        return result_type.model_validate(await ask_caller(self._task, request), by_name=False)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._task.progress(progress, total, message)

    async def _notify(self, notification: ServerNotification, *, request_scoped: bool) -> None:  # noqa: ARG002 - likewise
        logger.debug("task %s: %s was not sent: no caller is connected", shorten_id(self._task.id), notification.method)

    async def send_log_message(self, level: str, data: Any, *_: object, **__: object) -> None:  # noqa: ANN401 - any JSON
        logger.debug("task %s logged (%s): %s", shorten_id(self._task.id), level, data)


async def ask_caller(task: TaskContext, request: ServerRequest, name: str | None = None) -> Json:
    """Send a protocol request to the caller of a task.

    Raises:
        MCPError: tasks can't send that request, or the caller answers with an error.
    """
    if request.method not in INPUT_KINDS:
        raise MCPError(INVALID_REQUEST, f"a task can't send {request.method}, because its caller may not be connected")
    kind, default_name = INPUT_KINDS[request.method]
    params = request.params
    body = {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
    try:
        return await task.ask(kind, cast("Json", body), name=name or default_name)
    except ProtocolError as error:
        # Bodies that know the SDK expect its errors.
        raise MCPError(error.code, str(error), error.data) from error


def _covers(declared: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        name in declared
        and (
            _covers(declared[name], cast("Mapping[str, Any]", value))
            if isinstance(value, Mapping)
            else declared[name] == value
        )
        for name, value in wanted.items()
    )


def _declared(capabilities: ClientCapabilities) -> Mapping[str, Any]:
    return capabilities.model_dump(exclude_none=True)


class SdkContextFactory:
    """Makes the SDK contexts that bodies get, for one server."""

    def __init__(self, server: MCPServer[Any] | None) -> None:
        self.server = server
        self.lifespan_states: dict[object, Any] = {}
        """State of the server's own lifespan, for each time it is entered and not yet left. Bodies see the latest."""

    def call_params(self, task: TaskContext, name: str, arguments: Mapping[str, Json]) -> CallToolRequestParams:
        """Return the call as it was when its task started, with the answers that were given before."""
        answers = answers_of(task.caller)
        if not answers:
            # Unchanged since the server received and validated it.
            return CallToolRequestParams.model_construct(name=name, arguments=dict(arguments))
        return CallToolRequestParams.model_validate({"name": name, "arguments": arguments, **answers}, by_name=False)

    def request_context(self, task: TaskContext, params: CallToolRequestParams) -> AnyContext:
        """Return a request context for the handlers of a low-level server."""
        return ServerRequestContext(
            session=TaskSession(task),
            lifespan_context=next(reversed(self.lifespan_states.values()), dict[str, Any]()),
            protocol_version=LATEST_MODERN_VERSION,
            method="tools/call",
            params=params.model_dump(by_alias=True, mode="json", exclude_none=True),
            request_id=task.id,
        )

    def task_context(self, task: TaskContext, params: CallToolRequestParams) -> Context[Any, Any]:
        """Return a context for tools and resolvers of an `MCPServer`, in a task."""
        return self.context_for_request(self.request_context(task, params), params)

    def context_for_request(self, ctx: AnyContext, params: CallToolRequestParams) -> Context[Any, Any]:
        """Return a context for a request, as the server itself would make it."""
        assert self.server is not None  # noqa: S101 - only tools of such a server ask for it
        return Context(
            request_context=ctx, mcp_server=self.server, input_params=params, subscriptions=bus_of(self.server)
        )


T = TypeVar("T")

MAX_ROUNDS = 100
"""Most rounds of a call. A call that asks more often would never end."""


async def run_resolvers(
    tool: SdkTool, arguments: Mapping[str, Any], context: Context[Any, Any]
) -> dict[str, Any] | InputRequiredResult:
    """Return the values that the resolvers of a tool provide, or the input that they require."""
    return await resolve_arguments(tool.resolved_params, tool.resolver_plans, arguments, context)


async def run_rounds(
    task: TaskContext,
    params: CallToolRequestParams,
    run_round: Callable[[CallToolRequestParams], Awaitable[T | InputRequiredResult]],
    first_result: InputRequiredResult | None = None,
) -> T:
    """Run a call round by round, until it needs no more input. Questions are asked through the task.

    `first_result` is the result of the first round, if that has run already.

    Raises:
        ToolError: the call never ends.
    """
    for _ in range(MAX_ROUNDS):
        result, first_result = first_result or await run_round(params), None
        if not isinstance(result, InputRequiredResult):
            return result
        requests = result.input_requests or {}
        answers: list[Any] = await asyncio.gather(
            *(ask_caller(task, request, name=key) for key, request in requests.items())
        )
        params = CallToolRequestParams.model_validate(
            {
                "name": params.name,
                "arguments": params.arguments,
                "inputResponses": dict(zip(requests, answers, strict=True)),
                "requestState": result.request_state,
            },
            by_name=False,
        )
    raise ToolError(f"tool {params.name!r} asked for input in {MAX_ROUNDS} rounds and did not end")
