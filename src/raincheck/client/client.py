"""The task client: built on the SDK's client, for servers of every kind."""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack, cast
from urllib.parse import urlsplit

from mcp.client import Client, Transport
from mcp.client.caching import CacheConfig
from mcp.client.extension import ClientExtension
from mcp.client.session import (
    ElicitationFnT,
    IncomingMessage,
    ListRootsFnT,
    LoggingFnT,
    MessageHandlerFnT,
    SamplingFnT,
)
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, DiscoverResult, Implementation, LoggingLevel, SamplingCapability

from raincheck.client.connection import (
    MAX_RESPONSE_BYTES,
    NoResponse,
    ServerConnection,
    check_max_response_bytes,
    http_transport,
)
from raincheck.client.errors import CallLost
from raincheck.client.handle import Handle
from raincheck.client.protocols.base import CallRequest
from raincheck.client.protocols.v2026 import TasksExtension
from raincheck.client.saved_calls import SavedCalls, TaskRef
from raincheck.client.session import ServerLink
from raincheck.client.tracker import TaskProgress, TaskTracker, has_callback, wrap_callbacks
from raincheck.clock import Clock, SystemClock
from raincheck.errors import ConfigurationError
from raincheck.wire.fields import IDEMPOTENCY_META_KEY

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


RECONNECT_TIMEOUT = 60.0
"""The default time, in seconds, to reconnect to an unavailable server before a request fails."""


class TaskClient:
    """Calls tools of one server, however long they run.

        async with TaskClient("http://127.0.0.1:8000/mcp") as client:
            result = await client.call_tool("build_report", {"year": 2026})   # waits for the result
            handle = await client.call("build_report", {"year": 2026})        # does not

    `server` is anything that the SDK's `Client` accepts (a URL, `StdioServerParameters`, a transport, a server), or a
    function that returns a new such object for each connection. `options` are the SDK's, such as
    `elicitation_callback=`. The client connects on entry, or fails at once. If the connection breaks later, the client
    reconnects for up to `reconnect_timeout` seconds. From a URL it reads at most `max_response_bytes` of a response;
    other transports have limits of their own, or none. With `saved_calls`, each task is saved before the client waits
    for it. `name` is the server's name in the saved calls; the default is its address.
    """

    def __init__(
        self,
        server: ServerTarget | Callable[[], ServerTarget],
        *,
        saved_calls: SavedCalls | None = None,
        name: str | None = None,
        reconnect_timeout: float = RECONNECT_TIMEOUT,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        clock: Clock | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        resolved_name = name or default_server_name(server)
        if resolved_name is None and saved_calls is not None:
            raise ConfigurationError("this server has no address under which its calls could be saved: pass name=…")
        self.name = resolved_name or "the server"
        self.saved_calls = saved_calls
        self._server = server
        self._is_used = False
        self._max_response_bytes = check_max_response_bytes(max_response_bytes)
        self._options = options
        self._clock = clock or SystemClock()
        self._tracker = TaskTracker(self._clock)
        connection = ServerConnection(self.name, self._make_client, reconnect_timeout, self._clock)
        self._link = ServerLink(connection, lambda method: has_callback(options, method), self._clock)

    async def __aenter__(self) -> Self:
        await self._link.connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._link.close()

    async def connected(self) -> Client:
        """Return the SDK's client, for all other requests. After a reconnect it is a different object."""
        return await self._link.connection.client()

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> CallToolResult:
        """Call a tool and wait for its result, as the SDK's client does, however long it takes.

        Raises:
            As `call`, and as `Handle.result`.
        """
        return await (await self.call(tool, arguments, **options)).result()

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> Handle:
        """Call a tool, and return as soon as the server has started the work or finished it.

        With a `key`, the server starts the call once however often it is sent, so the client sends the call again if it
        gets no response. This requires a server that declares that it accepts keys from this caller: one that runs
        raincheck and can identify the caller. Other servers receive the key too, but the call is sent only once.

        Raises:
            CallLost: the connection broke during the call, and there is no key that the server accepts.
            ServerUnreachable: there is no connection.
            RequestRefused: the server, or a proxy in front of it, refuses the request.
            MCPError: the server responds with an error.
            InvalidResponse: the response does not conform to the protocol.
            ResponseTooLarge: the response has more than `max_response_bytes`. The tool was called.
        """
        key = options.get("key")
        meta = {**(options.get("meta") or {}), **({} if key is None else {IDEMPOTENCY_META_KEY: key})}
        call = CallRequest(tool, arguments or {}, meta, options.get("ttl"), options.get("progress_callback"))
        connection = self._link.connection
        if key is not None and await connection.request(lambda client: self._link.supports_keys(client, tool)):
            return await connection.request(lambda client: self._start_once(client, call), response_timeout=None)
        try:
            return await connection.request_once(lambda client: self._start(client, call))
        except NoResponse as error:
            raise CallLost(self.name, tool, str(error), has_key=key is not None) from error

    def resume(self, task_ref: TaskRef) -> Handle:
        """Return a handle of a task that was started earlier, perhaps by another process."""
        return Handle(self._link, tracked=self._tracker.track(task_ref), saved_calls=self.saved_calls)

    async def open_calls(self) -> list[Handle]:
        """Return handles of this server's saved tasks, whose results have not been fetched yet.

        Raises:
            ConfigurationError: the client has no saved calls.
        """
        if self.saved_calls is None:
            raise ConfigurationError("this client saves no calls: pass saved_calls=SavedCalls(path)")
        return [self.resume(task_ref) for task_ref in await self.saved_calls.list_refs(self.name)]

    async def _start_once(self, client: Client, call: CallRequest) -> Handle:
        if not await self._link.supports_keys(client, call.tool):
            # After a reconnect the server may be a different one, which would start the call a second time.
            raise CallLost(self.name, call.tool, "the server no longer accepts keys", has_key=True)
        return await self._start(client, call)

    async def _start(self, client: Client, call: CallRequest) -> Handle:
        outcome = await self._link.start(client, call)
        if outcome.result is not None:
            return Handle(self._link, result=outcome.result)
        task_ref = TaskRef(
            server=self.name,
            task_id=outcome.task_id,
            tool=call.tool,
            tier=outcome.protocol,
            tools=dict(outcome.tools),
            taken_at=self._clock.now().isoformat(timespec="seconds"),
        )
        if self.saved_calls is not None:
            await self._save(self.saved_calls, task_ref)
        tracked = self._tracker.track(task_ref, outcome.progress_token)
        return Handle(self._link, tracked=tracked, saved_calls=self.saved_calls)

    async def _save(self, saved_calls: SavedCalls, task_ref: TaskRef) -> None:
        try:
            await saved_calls.add(task_ref)
        except ConfigurationError as error:
            error.add_note(f"The task was started all the same: resume it with TaskRef.load({task_ref.dump()!r})")
            raise

    def _make_client(self) -> Client:
        make = connection_factory(self._server)
        if make is None and self._is_used and not isinstance(self._server, _RECONNECTABLE):
            raise ConfigurationError(
                "the connection broke, and a transport can't be used twice: pass a function that returns a new one"
            )
        self._is_used = True
        callbacks = wrap_callbacks(self._options, self._tracker)
        options = cast("ClientOptions", {**self._options, **callbacks})
        options["extensions"] = [*(options.get("extensions") or ()), TasksExtension(self._tracker.notify)]
        options["message_handler"] = self._handle_message
        server = cast("ServerTarget", self._server) if make is None else make()
        if isinstance(server, str):
            # The SDK would set this cache target itself, but it does not see the URL here.
            cache = options.get("cache")
            if cache is not None and cache.target_id is None:
                options["cache"] = replace(cache, target_id=server)
            server = http_transport(server, max_response_bytes=self._max_response_bytes)
        return Client(server, **options)

    async def _handle_message(self, message: IncomingMessage) -> None:
        self._tracker.handle_message(message)
        handler = self._options.get("message_handler")
        if handler is not None:
            await handler(message)


_RECONNECTABLE = (str, StdioServerParameters, Server, MCPServer)
"""Server targets that can be connected to repeatedly."""
