"""The connection to a server, which reconnects when it breaks.

Each connection of the SDK's client runs in its own background task: when it breaks, the SDK cancels the task that
entered it.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar, cast

import anyio
import httpx2
from mcp.client import Client
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from raincheck._async import timeout_after
from raincheck.client.errors import RequestRefused, ResponseTooLarge, ServerUnreachable
from raincheck.clock import Clock
from raincheck.core.policies import backoff_seconds
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.wire import errors

MAX_RESPONSE_BYTES = 64 * 2**20
"""The default limit: 64 MiB. Reading, parsing and printing a response takes about five times its size in memory."""

EVENT_STREAM = "text/event-stream"


@dataclass(slots=True)
class HttpResponseInfo:
    """The HTTP details of the last response to a request."""

    status: int | None = None
    """None if the transport is not HTTP, or its client has no hook."""
    retry_after: float | None = None
    """Seconds after which the server accepts a retry."""
    too_large: ResponseTooLarge | None = None
    """The error, if the response is larger than the client reads."""


_response_info: ContextVar[HttpResponseInfo | None] = ContextVar("raincheck_http_status", default=None)


@contextmanager
def record_response(info: HttpResponseInfo) -> Generator[None]:
    """Record the responses to the requests that are sent inside the context."""
    before = _response_info.set(info)
    try:
        yield
    finally:
        _response_info.reset(before)


async def record_http_status(response: "httpx2.Response") -> None:
    """A response hook for your own HTTP client, so that a status such as 401 is reported at once.

    httpx2.AsyncClient(headers=…, event_hooks={"response": [record_http_status]})
    """
    info = _response_info.get()
    if info is not None:
        info.status = response.status_code
        retry_after = response.headers.get("retry-after", "")
        # A date depends on the server's clock, which may differ.
        info.retry_after = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None


def record_too_large(error: ResponseTooLarge) -> None:
    """Record that a transport stopped reading a response. The request fails with this error, and is not retried."""
    info = _response_info.get()
    if info is not None:
        info.too_large = error


@asynccontextmanager
async def http_transport(
    url: str, headers: Mapping[str, str] | None = None, *, max_response_bytes: int = MAX_RESPONSE_BYTES
) -> AsyncGenerator[TransportStreams]:
    """Open the SDK's transport to a URL, with the hook and the limit."""
    # In a thread, because it loads certificates.
    http = await asyncio.to_thread(create_mcp_http_client, headers=None if headers is None else dict(headers))
    async with http:
        http.event_hooks = {"response": [record_http_status, response_limiter(max_response_bytes, record_too_large)]}
        async with streamable_http_client(url, http_client=http, max_sse_event_size=max_response_bytes) as streams:
            yield streams


class LossKind(Enum):
    """What was lost when a request got no response."""

    RESPONSE = auto()
    """Only the response was lost. The next request may succeed."""
    CONNECTION = auto()
    """The connection was lost, or the server has dropped its session."""


_HTTP_ERROR_MESSAGE = "Server returned an error response"
"""The SDK's message for a status from 400 on, except 404 and responses that contain an MCP error."""

_NO_ENDPOINT = (METHOD_NOT_FOUND, "Not Found")
"""The SDK's error for a 404 without a session."""

TOO_MANY_REQUESTS = 429

_REFUSED = range(400, 500)
_RETRYABLE_STATUSES = (408, 425)
"""Client errors for a request that did not arrive, or not in time."""

_LOSS_MESSAGES = (
    (CONNECTION_CLOSED, "Connection closed", LossKind.CONNECTION),
    (INVALID_REQUEST, "Session terminated", LossKind.CONNECTION),
    # Sent by servers that are built on the SDKs for Python and for TypeScript.
    (INVALID_REQUEST, "Session not found", LossKind.CONNECTION),
    (REQUEST_TIMEOUT, "Session not found", LossKind.CONNECTION),
    (CONNECTION_CLOSED, "SSE stream", LossKind.RESPONSE),
    (INTERNAL_ERROR, _HTTP_ERROR_MESSAGE, LossKind.RESPONSE),
    (REQUEST_TIMEOUT, "Request '", LossKind.RESPONSE),
    (REQUEST_TIMEOUT, "Timed out after", LossKind.RESPONSE),
)


_EVENT_TOO_LARGE = re.compile(r"^SSE stream failed: Server-sent event exceeded the (\d+) byte limit")


def classify_loss(error: MCPError) -> LossKind | None:
    """Return what was lost; None if the error is the server's response."""
    detail = error.error
    if detail.data is not None:
        return None
    return next(
        (loss for code, start, loss in _LOSS_MESSAGES if detail.code == code and detail.message.startswith(start)),
        None,
    )


def event_too_large(error: MCPError) -> ResponseTooLarge | None:
    """Return the error for an event of a stream that the SDK stopped reading; None for any other error."""
    found = _EVENT_TOO_LARGE.search(error.error.message)
    return ResponseTooLarge(None, int(found[1])) if found and classify_loss(error) is not None else None


def is_store_unavailable(error: MCPError) -> bool:
    """Return whether the server's store is unavailable. This counts as no response."""
    return (error.error.code, error.error.message) == (errors.INTERNAL_ERROR, errors.STORE_UNAVAILABLE)


def http_refusal(server: str, error: MCPError, info: HttpResponseInfo) -> RequestRefused | None:
    """Return the refusal of a request by its HTTP status; None if the error is of another kind."""
    detail = error.error
    is_http_error = classify_loss(error) is not None and detail.message == _HTTP_ERROR_MESSAGE
    if info.status is None or not (is_http_error or (detail.code, detail.message) == _NO_ENDPOINT):
        return None
    if info.status not in _REFUSED or info.status in _RETRYABLE_STATUSES:
        return None
    return RequestRefused(server, info.status, info.retry_after)


def describe_loss(error: MCPError, info: HttpResponseInfo) -> str:
    """Describe what was lost."""
    message = error.error.message
    return message if message != _HTTP_ERROR_MESSAGE or info.status is None else f"{message}: HTTP {info.status}"


logger = logging.getLogger(__name__)

CLOSE_TIMEOUT = 10.0
"""Seconds allowed to close a connection. The SDK gives a stdio server six seconds to stop."""


class ConnectionTask:
    """One connection, from connect to close, in a background task."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.is_closed = False
        """Whether the connection can no longer carry a response."""
        self.last_response = HttpResponseInfo()
        """The HTTP response received while connecting."""
        self._clock = clock
        self._connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._running = asyncio.create_task(self._run(client))

    async def client(self) -> Client:
        """Return the client once it is connected. Raises the error that prevents this."""
        return await asyncio.shield(self._connected)

    async def close(self) -> None:
        """Close the connection, and wait until it is closed."""
        self.is_closed = True
        self._closing.set()
        if not self._connected.done():
            self._running.cancel()
        try:
            async with timeout_after(self._clock, CLOSE_TIMEOUT):
                await asyncio.wait([self._running])
        except TimeoutError:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _run(self, client: Client) -> None:
        try:
            with record_response(self.last_response):
                async with client:
                    self._connected.set_result(client)
                    await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - any error goes to the caller that waits for the connection
            logger.debug("connection broke: %r", error)
            self._fail(error)
        except BaseException:
            self._fail(ConnectionAbortedError("the connection attempt was cancelled"))
            raise
        finally:
            self.is_closed = True

    def _fail(self, error: Exception) -> None:
        if not self._connected.done():
            self._connected.set_exception(error)
            # Mark the error as retrieved, since there may be no caller left that waits for it.
            self._connected.exception()


def root_cause(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups: the SDK wraps errors in groups."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return error


def describe_cause(error: BaseException) -> str:
    """Describe an error for a user who can't connect."""
    if isinstance(error, FileNotFoundError):
        return "the program was not found"
    if "header value" in str(error).lower():
        # The error's own text contains the value, which may be a secret.
        return "a header contains a character that can't be sent, such as a line break"
    return str(error) or type(error).__name__


T = TypeVar("T")
Send = Callable[[Client], Awaitable[T]]

RESPONSE_TIMEOUT = 30.0
"""Seconds within which a server should respond to a request about a task."""


class NoResponse(Exception):
    """A request got no response: it may or may not have arrived."""


class ServerConnection:
    """Connects on first use, and reconnects after the connection breaks."""

    def __init__(self, server: str, make_client: Callable[[], Client], reconnect_timeout: float, clock: Clock) -> None:
        self._server = server
        self._make_client = make_client
        self._reconnect_timeout = reconnect_timeout
        self._clock = clock
        self._current: ConnectionTask | None = None
        self._is_open = False
        self._connecting = asyncio.Lock()

    async def open(self) -> None:
        """Connect, or fail at once.

        Raises:
            ServerUnreachable: the server can't be reached.
        """
        self._is_open = True
        try:
            await self._ensure_connected()
        except BaseException:
            self._is_open = False
            raise

    async def close(self) -> None:
        """Close the connection. Requests in flight fail."""
        self._is_open = False
        connection, self._current = self._current, None
        if connection is not None:
            await connection.close()

    async def client(self) -> Client:
        """Return the SDK's client, connected."""
        return await (await self._ensure_connected()).client()

    async def request(self, send: Send[T], *, response_timeout: float | None = RESPONSE_TIMEOUT) -> T:
        """Send an idempotent request, and retry until there is a response or `reconnect_timeout` has passed.

        Raises:
            ServerUnreachable: there is no response.
            RequestRefused: the server refuses the request, and would do so again.
            MCPError: the server responds with an error.
        """
        started_at, attempts = self._clock.monotonic(), 0
        while True:
            try:
                return await self.request_once(send, response_timeout=response_timeout)
            except (NoResponse, ServerUnreachable, MCPError) as error:
                if isinstance(error, MCPError) and not is_store_unavailable(error):
                    raise
                attempts += 1
                min_wait = _retry_wait(error)
                if response_timeout is None and attempts == 1:
                    # The first attempt has no response timeout, so it may rightly have taken long.
                    started_at = self._clock.monotonic()
                if self._clock.monotonic() + min_wait - started_at >= self._reconnect_timeout:
                    if isinstance(error, ServerUnreachable):
                        raise
                    raise ServerUnreachable(self._server, str(error)) from error
                logger.info("retrying a request to %s, which got no response: %s", self._server, error)
            await self._clock.sleep(max(backoff_seconds(attempts), min_wait))

    async def request_once(self, send: Send[T], *, response_timeout: float | None = None) -> T:
        """Send a request once.

        Raises:
            NoResponse: there is no response.
            ServerUnreachable: the server can't be reached.
            RequestRefused: the server refuses the request.
            ResponseTooLarge: the response is larger than the client reads.
        """
        connection = await self._ensure_connected()
        client = await connection.client()
        timeout: asyncio.Timeout | None = None
        info = HttpResponseInfo()
        try:
            async with timeout_after(self._clock, response_timeout) as timeout:
                with record_response(info):
                    return await send(client)
        except TimeoutError as error:
            if timeout is None or not timeout.expired():
                # A different timeout, such as that of a callback that waited for its user.
                raise
            raise NoResponse(f"no response within {response_timeout:g} s") from error
        except MCPError as error:
            too_large = info.too_large or connection.last_response.too_large or event_too_large(error)
            if too_large is not None:
                # On a socket the rest of the response would follow.
                connection.is_closed = connection.is_closed or connection.last_response.too_large is not None
                raise too_large from error
            refusal = http_refusal(self._server, error, info)
            if refusal is not None:
                raise refusal from error
            loss = classify_loss(error)
            if loss is None:
                raise
            connection.is_closed = connection.is_closed or loss is LossKind.CONNECTION
            raise NoResponse(describe_loss(error, info)) from error
        except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            # Another request has found the connection broken, and closed it.
            if not connection.is_closed:
                raise
            raise NoResponse("the connection broke") from error

    async def _ensure_connected(self) -> ConnectionTask:
        """Return the current connection, or a new one if it broke.

        Raises:
            ConfigurationError: the client was not opened, or it was closed.
            ServerUnreachable: the server can't be reached.
        """
        async with self._connecting:
            if not self._is_open:
                raise ConfigurationError(f"the client of {self._server} is not open: use it inside `async with`")
            connection = self._current
            if connection is not None and connection.is_closed:
                self._current = None
                await connection.close()
                connection = None
            return await self._connect() if connection is None else connection

    async def _connect(self) -> ConnectionTask:
        # Assign it at once, so that a concurrent close also closes this connection.
        self._current = connection = ConnectionTask(self._make_client(), self._clock)
        try:
            async with timeout_after(self._clock, self._reconnect_timeout):
                await connection.client()
        except BaseException as error:
            if self._current is connection:
                self._current = None
            await connection.close()
            if not isinstance(error, Exception):
                raise
            raise self._connect_error(error, connection.last_response) from error
        return connection

    def _connect_error(self, error: Exception, info: HttpResponseInfo) -> RaincheckError:
        if info.too_large is not None:
            return info.too_large
        if isinstance(error, TimeoutError):
            return ServerUnreachable(self._server, f"no response within {self._reconnect_timeout:g} s")
        cause = root_cause(error)
        if not isinstance(cause, MCPError):
            return ServerUnreachable(self._server, describe_cause(cause))
        return http_refusal(self._server, cause, info) or ServerUnreachable(self._server, describe_loss(cause, info))


def _retry_wait(error: Exception) -> float:
    """Return the minimum number of seconds before a retry.

    Raises:
        RequestRefused: a retry would be refused again.
    """
    if not isinstance(error, RequestRefused):
        return 0.0
    if error.status != TOO_MANY_REQUESTS:
        raise error
    return error.retry_after or 0.0


def check_max_response_bytes(max_bytes: int) -> int:
    """Return a limit that is valid.

    Raises:
        ConfigurationError: it allows no response.
    """
    if max_bytes < 1:
        raise ConfigurationError(f"max_response_bytes is {max_bytes}, which allows no response: set it to at least 1")
    return max_bytes


class _BodyTooLarge(httpx2.StreamError):
    """A body exceeds the limit. The SDK ends the request with an error if a body raises this class."""


class _LimitedBody(httpx2.AsyncByteStream):
    """The decoded body of a response, up to the limit."""

    def __init__(
        self, response: httpx2.Response, max_bytes: int, on_too_large: Callable[[ResponseTooLarge], None]
    ) -> None:
        self._body = response.stream
        self._declared = _content_length(response)
        # Decodes the body, however little of it was sent compressed.
        self._decoded = httpx2.Response(response.status_code, headers=response.headers, stream=self._body)
        self._max_bytes = max_bytes
        self._on_too_large = on_too_large

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        if self._declared is not None and self._declared > self._max_bytes:
            raise self._error(self._declared)
        size = 0
        async for chunk in self._decoded.aiter_bytes():
            size += len(chunk)
            if size > self._max_bytes:
                raise self._error(None)
            yield chunk

    def _error(self, size: int | None) -> _BodyTooLarge:
        error = ResponseTooLarge(size, self._max_bytes)
        self._on_too_large(error)
        return _BodyTooLarge(str(error))

    async def aclose(self) -> None:
        if isinstance(self._body, httpx2.AsyncByteStream):
            await self._body.aclose()


def response_limiter(
    max_bytes: int, on_too_large: Callable[[ResponseTooLarge], None]
) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a response hook that limits each body. Events of a stream are limited by the SDK's transport."""

    async def limit(response: httpx2.Response) -> None:
        if not response.headers.get("content-type", "").lower().startswith(EVENT_STREAM):
            response.stream = _LimitedBody(response, max_bytes, on_too_large)
            response.headers.pop("content-encoding", None)

    return limit


def _content_length(response: httpx2.Response) -> int | None:
    """Return the size that the server declares for a body that is not compressed."""
    declared = response.headers.get("content-length", "")
    is_plain = "content-encoding" not in response.headers
    return int(declared) if is_plain and declared.isascii() and declared.isdigit() else None
