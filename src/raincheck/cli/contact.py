"""Noticing that a server is away, and that it is back. The client connects again by itself, and says nothing of it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol, Self

from mcp.client import Transport
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError

Incoming = SessionMessage | Exception


class Told(Protocol):
    """Who is told."""

    def lost(self) -> None:
        """The server does not answer, and is tried again."""
        ...

    def back(self) -> None:
        """It answers again."""
        ...


class Contact:
    """Makes connections. Each one after the first answer means that the one before is lost."""

    def __init__(self, connect: Callable[[], Transport], told: Told) -> None:
        self._connect = connect
        self._told = told
        self._was_there = False
        self._is_lost = False

    def connect(self) -> Transport:
        if self._was_there and not self._is_lost:
            self._is_lost = True
            self._told.lost()
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        async with self._connect() as (read, write):
            yield _Heard(read, self._hear), write

    def _hear(self, message: Incoming) -> None:
        # Of a server that is away, transports tell in its place: by an exception, or by an answer with an error.
        if isinstance(message, Exception) or isinstance(message.message, JSONRPCError):
            return
        self._was_there = True
        if self._is_lost:
            self._is_lost = False
            self._told.back()


class _Heard:
    """A stream of messages, with somebody who listens in."""

    def __init__(self, read: ReadStream[Incoming], hear: Callable[[Incoming], None]) -> None:
        self._read = read
        self._hear = hear

    @property
    def last_context(self) -> object:
        """What the SDK looks for beside the protocol."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> Incoming:
        message = await self._read.receive()
        self._hear(message)
        return message

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        message = await anext(self._read)
        self._hear(message)
        return message

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._read.__aexit__(exc_type, exc_val, exc_tb)
