"""The connection to a server, made again when it breaks.

One connection of the SDK's client, in a job of its own: when it breaks, the SDK takes down whoever entered it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from raincheck._async import at_most
from raincheck.client.errors import RequestRefused, ServerUnreachable
from raincheck.client.transport_errors import TOO_MANY, Loss, Noted, is_away, loss_of, noting, refusal_of, words_of
from raincheck.clock import Clock
from raincheck.core.policies import pause_after
from raincheck.errors import ConfigurationError

logger = logging.getLogger(__name__)

CLOSED_WITHIN = 10.0
"""Seconds that saying goodbye may take. The SDK gives a program on its standard streams six to stop."""


class Line:
    """A connection, from the beginning to the end."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.is_over = False
        """Nothing that is sent over it will be answered."""
        self.noted = Noted()
        """What was answered while it was made, as HTTP has it."""
        self._clock = clock
        self._connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._job = asyncio.create_task(self._run(client))

    async def client(self) -> Client:
        """The client, when it is connected. Raises whatever prevents that."""
        return await asyncio.shield(self._connected)

    async def close(self) -> None:
        """Let it go, and wait until that is done."""
        self.is_over = True
        self._closing.set()
        if not self._connected.done():
            self._job.cancel()
        try:
            async with at_most(self._clock, CLOSED_WITHIN):
                await asyncio.wait([self._job])
        except TimeoutError:
            self._job.cancel()
            await asyncio.wait([self._job])

    async def _run(self, client: Client) -> None:
        try:
            with noting(self.noted):
                async with client:
                    self._connected.set_result(client)
                    await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - whatever broke it, whoever waits is told, and nobody else
            logger.debug("a connection broke: %r", error)
            self._tell(error)
        except BaseException:
            self._tell(ConnectionAbortedError("it was given up"))
            raise
        finally:
            self.is_over = True

    def _tell(self, error: Exception) -> None:
        if not self._connected.done():
            self._connected.set_exception(error)
            # Perhaps nobody waits for it any more.
            self._connected.exception()


def cause_of(error: BaseException) -> BaseException:
    """What is behind an error: the SDK wraps it in groups."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """What an error says, to whoever can't connect for it."""
    if isinstance(error, FileNotFoundError):
        return "there is no such program"
    if "header value" in str(error).lower():
        # It is told with the value, which may well be a secret.
        return "a header has something in it that can't be sent, such as the end of a line"
    return str(error) or type(error).__name__


T = TypeVar("T")
Send = Callable[[Client], Awaitable[T]]

ANSWERED_WITHIN = 30.0
"""Seconds in which a server should answer a question about a task."""


class Lost(Exception):
    """A request got no answer: it may have arrived, or not."""


class Connection:
    """Connects when it is first needed, and again when that broke."""

    def __init__(self, server: str, make: Callable[[], Client], patience: float, clock: Clock) -> None:
        self._server = server
        self._make = make
        self._patience = patience
        self._clock = clock
        self._line: Line | None = None
        self._is_open = False
        self._connecting = asyncio.Lock()

    async def open(self) -> None:
        """Connect, or fail at once.

        Raises:
            ServerUnreachable: it can't be.
        """
        self._is_open = True
        try:
            await self._connected()
        except BaseException:
            self._is_open = False
            raise

    async def close(self) -> None:
        """Let go. What is under way ends with an error."""
        self._is_open = False
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def client(self) -> Client:
        """The SDK's client, connected."""
        return await (await self._connected()).client()

    async def request(self, send: Send[T], *, within: float | None = ANSWERED_WITHIN) -> T:
        """Ask something that can be asked twice, and again until there is an answer, or patience is over.

        Raises:
            ServerUnreachable: there is none.
            RequestRefused: it says no, and would say so again.
            MCPError: the server's own.
        """
        began, tries = self._clock.elapsed(), 0
        while True:
            try:
                return await self._once_or_lost(send, within)
            except (Lost, ServerUnreachable) as error:
                tries += 1
                least = _least_wait(error)
                if within is None and tries == 1:
                    # It may have waited for long, and for good reasons.
                    began = self._clock.elapsed()
                if self._clock.elapsed() + least - began >= self._patience:
                    if isinstance(error, ServerUnreachable):
                        raise
                    raise ServerUnreachable(self._server, str(error)) from error
                logger.info("will ask %s again, since it did not answer: %s", self._server, error)
            await self._clock.sleep(max(pause_after(tries), least))

    async def _once_or_lost(self, send: Send[T], within: float | None) -> T:
        try:
            return await self.once(send, within=within)
        except MCPError as error:
            if not is_away(error):
                raise
            raise Lost(str(error)) from error

    async def once(self, send: Send[T], *, within: float | None = None) -> T:
        """Ask something once.

        Raises:
            Lost: there is no answer.
            ServerUnreachable: it can't be asked.
            RequestRefused: it says no.
        """
        line = await self._connected()
        client = await line.client()
        bound: asyncio.Timeout | None = None
        noted = Noted()
        try:
            async with at_most(self._clock, within) as bound:
                with noting(noted):
                    return await send(client)
        except TimeoutError as error:
            if bound is None or not bound.expired():
                # Somebody else's, such as that of a callback which gave up on its user.
                raise
            raise Lost(f"there is no answer within {within:g} s") from error
        except MCPError as error:
            refused = refusal_of(self._server, error, noted)
            if refused is not None:
                raise refused from error
            loss = loss_of(error)
            if loss is None:
                raise
            line.is_over = line.is_over or loss is Loss.OF_THE_CONNECTION
            raise Lost(words_of(error, noted)) from error
        except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            # Somebody else has found out that it is over, and let it go.
            if not line.is_over:
                raise
            raise Lost("the connection broke") from error

    async def _connected(self) -> Line:
        """The connection.

        Raises:
            ConfigurationError: nobody has opened it, or it was closed.
            ServerUnreachable: there is none.
        """
        async with self._connecting:
            if not self._is_open:
                raise ConfigurationError(f"the client of {self._server} is not open: use it inside `async with`")
            line = self._line
            if line is not None and line.is_over:
                self._line = None
                await line.close()
                line = None
            return await self._connect() if line is None else line

    async def _connect(self) -> Line:
        # At once, so that whoever closes this meanwhile closes that too.
        self._line = line = Line(self._make(), self._clock)
        try:
            async with at_most(self._clock, self._patience):
                await line.client()
        except BaseException as error:
            if self._line is line:
                self._line = None
            await line.close()
            if not isinstance(error, Exception):
                raise
            raise self._unreachable(error, line.noted) from error
        return line

    def _unreachable(self, error: Exception, noted: Noted) -> ServerUnreachable:
        if isinstance(error, TimeoutError):
            return ServerUnreachable(self._server, f"it does not answer within {self._patience:g} s")
        cause = cause_of(error)
        if not isinstance(cause, MCPError):
            return ServerUnreachable(self._server, reason_of(cause))
        return refusal_of(self._server, cause, noted) or ServerUnreachable(self._server, words_of(cause, noted))


def _least_wait(error: Lost | ServerUnreachable) -> float:
    """Seconds to wait before it is asked again.

    Raises:
        RequestRefused: it is no use.
    """
    if not isinstance(error, RequestRefused):
        return 0.0
    if error.status != TOO_MANY:
        raise error
    return error.retry_after or 0.0
