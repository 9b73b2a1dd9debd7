"""What a body finds of the SDK when it runs as a task: a context whose caller may be gone.

The request that a task came from has been answered, its connection is closed, and the process is perhaps another. So a
body that asks for the SDK's `Context` gets one that works on the task: progress is the task's, questions are asked
through the task and survive a crash, and what needs the connection itself is dropped or refused.

Calls in several rounds: what the SDK answers with `InputRequiredResult`, a task asks by itself.
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

from raincheck.core.payload import Json
from raincheck.core.records import InputKind, shorten_id
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import ProtocolError, ToolError
from raincheck.server.identity import answers_of, capabilities_of
from raincheck.server.sdk_compat import AnyContext, bus_of

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT", bound=BaseModel)

KINDS: Mapping[str, tuple[InputKind, str]] = {
    "elicitation/create": (InputKind.ELICITATION, "elicit"),
    "sampling/createMessage": (InputKind.SAMPLING, "sample"),
    "roots/list": (InputKind.ROOTS, "roots"),
}
"""What a request to a caller is to a task, and the name it is asked under."""


class TaskSession(ServerSession):
    """A session with whoever reads the task. Nothing of it needs a connection."""

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
        progress_callback: ProgressFnT | None = None,  # noqa: ARG002 - nobody tells
    ) -> ResultT:
        """Ask through the task. It waits as long as it takes, and holds no worker meanwhile."""
        return result_type.model_validate(await ask(self._task, request), by_name=False)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._task.progress(progress, total, message)

    async def _notify(self, notification: ServerNotification, *, request_scoped: bool) -> None:  # noqa: ARG002 - likewise
        logger.debug("task %s: %s was not sent: nobody is connected", shorten_id(self._task.id), notification.method)

    async def send_log_message(self, level: str, data: Any, *_: object, **__: object) -> None:  # noqa: ANN401 - any JSON
        logger.debug("task %s said (%s): %s", shorten_id(self._task.id), level, data)


async def ask(task: TaskContext, request: ServerRequest, name: str | None = None) -> Json:
    """Ask the caller of a task something, in the words of the protocol.

    Raises:
        MCPError: tasks can't ask that, or the caller answers with an error.
    """
    if request.method not in KINDS:
        raise MCPError(INVALID_REQUEST, f"a task can't send {request.method}: its caller need not be connected")
    kind, usual_name = KINDS[request.method]
    params = request.params
    body = {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
    try:
        return await task.ask(kind, cast("Json", body), name=name or usual_name)
    except ProtocolError as error:
        # Bodies that know the SDK know its errors.
        raise MCPError(error.code, str(error), error.data) from error


def _covers(has: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        name in has
        and (_covers(has[name], cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else has[name] == value)
        for name, value in wanted.items()
    )


def _declared(capabilities: ClientCapabilities) -> Mapping[str, Any]:
    return capabilities.model_dump(exclude_none=True)


class Workplace:
    """Makes what bodies get of the SDK, for one server."""

    def __init__(self, server: MCPServer[Any] | None) -> None:
        self.server = server
        self.states: dict[object, Any] = {}
        """What the server's own lifespan gave, for each time it was entered and not left yet. Bodies see the latest."""

    def first_round(self, task: TaskContext, name: str, arguments: Mapping[str, Json]) -> CallToolRequestParams:
        """The call as it was when its task began: with what was answered before."""
        answers = answers_of(task.caller)
        if not answers:
            # As it was when it came in, where it was validated.
            return CallToolRequestParams.model_construct(name=name, arguments=dict(arguments))
        return CallToolRequestParams.model_validate({"name": name, "arguments": arguments, **answers}, by_name=False)

    def request_context(self, task: TaskContext, params: CallToolRequestParams) -> AnyContext:
        """For the handlers of a low-level server."""
        return ServerRequestContext(
            session=TaskSession(task),
            lifespan_context=next(reversed(self.states.values()), dict[str, Any]()),
            protocol_version=LATEST_MODERN_VERSION,
            method="tools/call",
            params=params.model_dump(by_alias=True, mode="json", exclude_none=True),
            request_id=task.id,
        )

    def context(self, task: TaskContext, params: CallToolRequestParams) -> Context[Any, Any]:
        """For tools and resolvers of an `MCPServer`, in a task."""
        return self.context_of(self.request_context(task, params), params)

    def context_of(self, ctx: AnyContext, params: CallToolRequestParams) -> Context[Any, Any]:
        """The same for a request: what the server itself would give them."""
        assert self.server is not None  # noqa: S101 - only tools of such a server ask for it
        return Context(
            request_context=ctx, mcp_server=self.server, input_params=params, subscriptions=bus_of(self.server)
        )


T = TypeVar("T")

MOST_ROUNDS = 100
"""A call that asks more often than that asks in circles."""


async def resolve(
    tool: SdkTool, arguments: Mapping[str, Any], context: Context[Any, Any]
) -> dict[str, Any] | InputRequiredResult:
    """What the resolvers of a tool find out, or what has to be asked for it."""
    found = await resolve_arguments(tool.resolved_params, tool.resolver_plans, arguments, context)
    return found if isinstance(found, InputRequiredResult) else dict(found)


async def play_rounds(
    task: TaskContext,
    params: CallToolRequestParams,
    play: Callable[[CallToolRequestParams], Awaitable[T | InputRequiredResult]],
    first: InputRequiredResult | None = None,
) -> T:
    """Play a call round by round, until it needs no more input. Questions are asked through the task.

    `first` is what the first round came to, if that has been played.

    Raises:
        ToolError: it never ends.
    """
    for _ in range(MOST_ROUNDS):
        result, first = first or await play(params), None
        if not isinstance(result, InputRequiredResult):
            return result
        requests = result.input_requests or {}
        answers: list[Any] = await asyncio.gather(*(ask(task, one, name=key) for key, one in requests.items()))
        params = CallToolRequestParams.model_validate(
            {
                "name": params.name,
                "arguments": params.arguments,
                "inputResponses": dict(zip(requests, answers, strict=True)),
                "requestState": result.request_state,
            },
            by_name=False,
        )
    raise ToolError(f"tool {params.name!r} has asked for input {MOST_ROUNDS} times without an end")
