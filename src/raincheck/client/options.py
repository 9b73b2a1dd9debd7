"""Options of the client and of its calls, and the callbacks that answer questions."""

import shlex
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, cast
from urllib.parse import urlsplit

from mcp.client import Transport
from mcp.client.caching import CacheConfig
from mcp.client.extension import ClientExtension
from mcp.client.session import (
    ClientRequestContext,
    ElicitationFnT,
    ListRootsFnT,
    LoggingFnT,
    MessageHandlerFnT,
    SamplingFnT,
)
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CreateMessageRequest,
    CreateMessageResult,
    DiscoverResult,
    ElicitRequest,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    LoggingLevel,
    SamplingCapability,
)
from pydantic import BaseModel, ValidationError

from raincheck.client.inputs import question_key
from raincheck.client.tracker import TaskTracker
from raincheck.client.updates import Question, TaskProgress
from raincheck.wire.results import INPUT_META_KEY

ServerTarget: TypeAlias = str | StdioServerParameters | Transport | Server[Any] | MCPServer
"""What the SDK's client can connect to."""


class ClientOptions(TypedDict, total=False):
    """The options of the SDK's client, which are passed on to it."""

    elicitation_callback: ElicitationFnT | None
    sampling_callback: SamplingFnT | None
    sampling_capabilities: SamplingCapability | None
    list_roots_callback: ListRootsFnT | None
    logging_callback: LoggingFnT | None
    log_level: LoggingLevel | None
    message_handler: MessageHandlerFnT | None
    client_info: Implementation | None
    mode: str
    prior_discover: DiscoverResult | None
    read_timeout_seconds: float | None
    input_required_max_rounds: int
    extensions: Sequence[ClientExtension] | None
    cache: CacheConfig | None
    raise_exceptions: bool


class CallOptions(TypedDict, total=False):
    """Options of a call."""

    key: str | None
    """The idempotency key: the server starts all calls with the same key only once."""
    ttl: float | None
    """Seconds for which to keep the task. Servers of 2026-07-28 decide this themselves."""
    meta: Mapping[str, Any] | None
    """Additional entries for the request's `_meta`."""
    progress_callback: Callable[[TaskProgress, str | None], Awaitable[None]] | None
    """Receives the progress of a call that does not become a task, while it runs."""


def connection_factory(server: ServerTarget | Callable[[], ServerTarget]) -> Callable[[], ServerTarget] | None:
    """Return the function that makes a server target; None for a target.

    A transport is callable, but makes no target.
    """
    is_function = callable(server) and not hasattr(server, "__aenter__")
    return cast("Callable[[], ServerTarget]", server) if is_function else None


def default_server_name(server: ServerTarget | Callable[[], ServerTarget]) -> str | None:
    """Return a server's name for saved calls, without secrets in its address; None if it has no name."""
    if isinstance(server, str):
        url = urlsplit(server)
        return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
    if isinstance(server, StdioServerParameters):
        return shlex.join([server.command, *server.args])
    return server.name if isinstance(server, Server | MCPServer) else None


Callback = Callable[..., Coroutine[Any, Any, Any]]

CALLBACK_OPTIONS = {
    "elicitation/create": "elicitation_callback",
    "sampling/createMessage": "sampling_callback",
    "roots/list": "list_roots_callback",
}
"""The option of the callback that answers each method."""

REQUEST_TYPES: dict[str, type[ElicitRequest | CreateMessageRequest | ListRootsRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}
_RESULT_TYPES: dict[str, type[BaseModel]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}


async def answer_later(context: ClientRequestContext, params: object = None) -> Any:  # noqa: ANN401 - stands in for several callbacks
    """A callback that accepts questions, to be answered with `Handle.answer`.

        TaskClient(server, elicitation_callback=answer_later)

    A server sends questions only to clients that declare that they answer them. A question from a call that is not a
    task is refused, because such a call has no handle.
    """
    del context, params
    return ErrorData(code=INVALID_REQUEST, message="only tasks may ask questions here, and this call is not a task")


def has_callback(options: ClientOptions, method: str) -> bool:
    """Return whether a callback answers this method."""
    return options.get(CALLBACK_OPTIONS.get(method, "")) not in (None, answer_later)


def wrap_callbacks(options: ClientOptions, tracker: TaskTracker) -> None:
    """Wrap the callbacks so that each question reaches them once, even if a task asks again on another connection."""
    by_name = cast("dict[str, Any]", options)
    for method, option in CALLBACK_OPTIONS.items():
        if by_name.get(option) is not None:
            by_name[option] = _ask_once(tracker, method, by_name[option])


def _ask_once(tracker: TaskTracker, method: str, callback: Callback) -> Callback:
    async def ask(context: ClientRequestContext, *params: BaseModel) -> object:
        tracked = tracker.find_related(cast("Mapping[str, Any] | None", context.meta))
        if tracked is None:
            return await callback(context, *params)
        content = params[0].model_dump(by_alias=True, mode="json", exclude_none=True) if params else {}
        input_key = (context.meta or {}).get(INPUT_META_KEY)
        has_input_key = isinstance(input_key, str)
        key = question_key(method, content, input_key if has_input_key else None)
        if callback is not answer_later:
            return await tracked.inputs_2025.run_callback(
                key, lambda: callback(context, *params), has_input_key=has_input_key
            )
        tracked.notify()
        question = Question(key, {"method": method, "params": content})
        return _read_answer(method, await tracked.inputs_2025.wait_for_answer(question, has_input_key=has_input_key))

    return ask


def _read_answer(method: str, answer: Mapping[str, Any]) -> object:
    try:
        return _RESULT_TYPES[method].model_validate(answer, by_name=False)
    except ValidationError as error:
        return ErrorData(code=INVALID_PARAMS, message=f"invalid answer: {error.errors()[0]['msg']}")
