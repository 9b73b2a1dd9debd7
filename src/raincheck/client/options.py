"""What a client can be told: how to connect, and how to call."""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, cast
from urllib.parse import urlsplit

from mcp.client import Transport
from mcp.client.caching import CacheConfig
from mcp.client.extension import ClientExtension
from mcp.client.session import ElicitationFnT, ListRootsFnT, LoggingFnT, MessageHandlerFnT, SamplingFnT
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import DiscoverResult, Implementation, LoggingLevel, SamplingCapability

from raincheck.client.updates import Progress

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
