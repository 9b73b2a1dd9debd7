"""One connection of the SDK's client, in a job of its own: when it breaks, the SDK takes down whoever entered it."""

import asyncio
import logging
from typing import cast

from mcp.client import Client

from raincheck.client.statuses import Noted, noting
from raincheck.client.timing import at_most
from raincheck.clock import Clock

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
