"""Connections to a server, which parse as little as possible, so that the server dominates the measurement."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Protocol, TypeAlias

TIMEOUT = 60.0
"""Seconds after which a request fails."""

IDLE = 2.0
"""Seconds after which an unused connection is replaced, before the server closes it."""

Message: TypeAlias = Mapping[str, Any]

_LINE = b"\r\n"
_LENGTH = b"\r\ncontent-length: "
_SESSION = b"\r\nmcp-session-id: "


class Channel(Protocol):
    """A channel for the requests of a caller."""

    async def ask(self, request: bytes) -> Message:
        """Send a request and return its result."""
        ...


class Connection:
    """An HTTP connection that carries one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._used = 0.0
        self.session: str | None = None
        """The session id in the last answer."""

    async def open(self) -> None:
        self._used = monotonic()
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        self._writer.close()

    async def ask(self, request: bytes) -> Message:
        """Send a request and return its result."""
        async with asyncio.timeout(TIMEOUT):
            return result_of(request, await self._answer(request))

    async def notify(self, notification: bytes) -> None:
        await self._send(notification)
        head = await self._head()
        await self._reader.readexactly(int(_value(head, _LENGTH) or 0))

    async def stream(self, request: bytes) -> AsyncGenerator[Message]:
        """Send a request, and yield the messages of its stream. The caller closes the connection to end it."""
        await self._send(request)
        head = await self._head()
        if _value(head, _LENGTH) is not None:
            raise RuntimeError(f"the server refused {request!r}")
        async for message in self._messages():
            yield message

    async def _send(self, message: bytes) -> None:
        now = monotonic()
        if now > self._used + IDLE:
            self.close()
            await self.open()
        self._used = now
        self._writer.write(message)

    async def _answer(self, request: bytes) -> Message:
        await self._send(request)
        head = await self._head()
        if (length := _value(head, _LENGTH)) is not None:
            answer: Message = json.loads(await self._reader.readexactly(int(length)))
            return answer
        # Notifications before the answer are read and ignored.
        answers = [message async for message in self._messages() if "id" in message]
        return answers[-1]

    async def _head(self) -> bytes:
        head = await self._reader.readuntil(2 * _LINE)
        session = _value(head, _SESSION)
        self.session = None if session is None else session.decode()
        return head

    async def _messages(self) -> AsyncGenerator[Message]:
        """Yield the messages of server-sent events. All servers here write one event in one chunk."""
        while length := int(await self._reader.readuntil(_LINE), 16):
            chunk = await self._reader.readexactly(length + len(_LINE))
            for line in chunk.splitlines():
                # An event without data only sets the id to resume from.
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))
        await self._reader.readexactly(len(_LINE))


class LineConnection:
    """A connection that carries one message per line, as stdio and the Unix socket do. Calls can be concurrent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._reader_task = asyncio.create_task(self._read())

    async def ask(self, request: bytes) -> Message:
        """Send a request and return its result."""
        answer = asyncio.get_running_loop().create_future()
        self._pending[json.loads(request)["id"]] = answer
        self._writer.write(request)
        async with asyncio.timeout(TIMEOUT):
            return result_of(request, await answer)

    def close(self) -> None:
        self._reader_task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        while line := await self._reader.readline():
            message: Message = json.loads(line)
            # Notifications have no id.
            if "id" in message:
                self._pending.pop(message["id"]).set_result(message)
        for answer in self._pending.values():
            answer.set_exception(ConnectionError("the server closed the connection"))


def result_of(request: bytes, answer: Message) -> Message:
    """Return the result of an answer, or raise its error."""
    if "result" not in answer:
        raise RuntimeError(f"the server refused {request!r}: {answer}")
    result: Message = answer["result"]
    return result


def _value(head: bytes, name: bytes) -> bytes | None:
    start = head.lower().find(name)
    if start < 0:
        return None
    start += len(name)
    return head[start : head.index(b"\r", start)]


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[Connection]:
    connection = Connection(port)
    await connection.open()
    try:
        yield connection
    finally:
        connection.close()
