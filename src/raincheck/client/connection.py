"""The connection to a server, which reconnects when it breaks.

Each connection of the SDK's client runs in its own background task: when it breaks, the SDK cancels the task that
entered it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from raincheck._async import timeout_after
from raincheck.client.errors import RequestRefused, ServerUnreachable
from raincheck.client.transport_errors import (
    TOO_MANY_REQUESTS,
    HttpResponseInfo,
    LossKind,
    classify_loss,
    describe_loss,
    http_refusal,
    is_store_unavailable,
    record_response,
)
from raincheck.clock import Clock
from raincheck.core.policies import backoff_seconds
from raincheck.errors import ConfigurationError

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
                return await self._request_or_lose(send, response_timeout)
            except (NoResponse, ServerUnreachable) as error:
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

    async def _request_or_lose(self, send: Send[T], response_timeout: float | None) -> T:
        try:
            return await self.request_once(send, response_timeout=response_timeout)
        except MCPError as error:
            if not is_store_unavailable(error):
                raise
            raise NoResponse(str(error)) from error

    async def request_once(self, send: Send[T], *, response_timeout: float | None = None) -> T:
        """Send a request once.

        Raises:
            NoResponse: there is no response.
            ServerUnreachable: the server can't be reached.
            RequestRefused: the server refuses the request.
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

    def _connect_error(self, error: Exception, info: HttpResponseInfo) -> ServerUnreachable:
        if isinstance(error, TimeoutError):
            return ServerUnreachable(self._server, f"no response within {self._reconnect_timeout:g} s")
        cause = root_cause(error)
        if not isinstance(cause, MCPError):
            return ServerUnreachable(self._server, describe_cause(cause))
        return http_refusal(self._server, cause, info) or ServerUnreachable(self._server, describe_loss(cause, info))


def _retry_wait(error: NoResponse | ServerUnreachable) -> float:
    """Return the minimum number of seconds before a retry.

    Raises:
        RequestRefused: a retry would be refused again.
    """
    if not isinstance(error, RequestRefused):
        return 0.0
    if error.status != TOO_MANY_REQUESTS:
        raise error
    return error.retry_after or 0.0
