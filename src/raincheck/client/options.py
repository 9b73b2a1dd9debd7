"""What a client can be told: how to connect, and how to call.

The client's callbacks for questions, and who else may answer.
"""

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

from raincheck.client.inputs import key_of
from raincheck.client.tracker import Heard
from raincheck.client.updates import Progress, Question
from raincheck.wire.results import INPUT_KEY

Target: TypeAlias = str | StdioServerParameters | Transport | Server[Any] | MCPServer
"""Where a server is."""


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
    """What else to say of a call."""

    key: str | None
    """What tells this call from others, so that it is begun once."""
    ttl: float | None
    """Seconds for which to keep the task. Servers of 2026-07-28 decide that by themselves."""
    meta: Mapping[str, Any] | None
    """For the `_meta` of the request."""
    progressed: Callable[[Progress, str | None], Awaitable[None]] | None
    """Told how far the work is, while a call is answered that becomes no task."""


def maker_of(server: Target | Callable[[], Target]) -> Callable[[], Target] | None:
    """The function that makes what to connect to, if it is one. A transport can be called too, but makes none."""
    is_function = callable(server) and not hasattr(server, "__aenter__")
    return cast("Callable[[], Target]", server) if is_function else None


def name_of(server: Target | Callable[[], Target]) -> str | None:
    """What a server is called in a book, without what may be a secret in its address; None if it has no name."""
    if isinstance(server, str):
        url = urlsplit(server)
        return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
    if isinstance(server, StdioServerParameters):
        return shlex.join([server.command, *server.args])
    return server.name if isinstance(server, Server | MCPServer) else None


Callback = Callable[..., Coroutine[Any, Any, Any]]

CALLBACKS = {
    "elicitation/create": "elicitation_callback",
    "sampling/createMessage": "sampling_callback",
    "roots/list": "list_roots_callback",
}
"""Which option answers which question."""

REQUESTS: dict[str, type[ElicitRequest | CreateMessageRequest | ListRootsRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}
_ANSWERS: dict[str, type[BaseModel]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}


async def by_hand(context: ClientRequestContext, params: object = None) -> Any:  # noqa: ANN401 - stands in for several
    """A callback that says: ask, and I answer with `Handle.answer`.

        TaskClient(server, elicitation_callback=by_hand)

    A server asks only those who declare that they can be asked. What is asked by a call that is no task is refused:
    nobody has a handle of it.
    """
    del context, params
    return ErrorData(code=INVALID_REQUEST, message="only tasks may ask here, and this call is none")


def can_ask(options: ClientOptions, method: str) -> bool:
    """Whether there is a callback that answers such a question."""
    return options.get(CALLBACKS.get(method, "")) not in (None, by_hand)


def wrap_callbacks(options: ClientOptions, heard: Heard) -> None:
    """Have each callback asked once, even if a task asks again on another connection."""
    everything = cast("dict[str, Any]", options)
    for method, option in CALLBACKS.items():
        if everything.get(option) is not None:
            everything[option] = _once(heard, method, everything[option])


def _once(heard: Heard, method: str, callback: Callback) -> Callback:
    async def ask(context: ClientRequestContext, *params: BaseModel) -> object:
        held = heard.related(cast("Mapping[str, Any] | None", context.meta))
        if held is None:
            return await callback(context, *params)
        words = params[0].model_dump(by_alias=True, mode="json", exclude_none=True) if params else {}
        input_key = (context.meta or {}).get(INPUT_KEY)
        is_named = isinstance(input_key, str)
        key = key_of(method, words, input_key if is_named else None)
        if callback is not by_hand:
            return await held.asked.ask(key, lambda: callback(context, *params), is_named=is_named)
        held.changed()
        question = Question(key, {"method": method, "params": words})
        return _read_answer(method, await held.asked.wait_for_hand(question, is_named=is_named))

    return ask


def _read_answer(method: str, answer: Mapping[str, Any]) -> object:
    try:
        return _ANSWERS[method].model_validate(answer, by_name=False)
    except ValidationError as error:
        return ErrorData(code=INVALID_PARAMS, message=f"that is no answer: {error.errors()[0]['msg']}")
