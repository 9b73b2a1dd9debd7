"""The connection to a server, made again when it breaks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from raincheck.client.errors import RequestRefused, ServerUnreachable
from raincheck.client.line import Line, cause_of, reason_of
from raincheck.client.losses import TOO_MANY, Loss, is_away, loss_of, refusal_of, words_of
from raincheck.client.statuses import Noted, noting
from raincheck.client.timing import at_most
from raincheck.clock import Clock
from raincheck.core.retry import pause_after
from raincheck.errors import ConfigurationError

logger = logging.getLogger(__name__)

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
