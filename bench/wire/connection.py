"""A connection to a server. It reads of an answer what it must, so that most of what is measured is the server's."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

TIMEOUT = 60.0
"""Seconds that an answer may take, before all is given up."""

Message: TypeAlias = Mapping[str, Any]

_LINE = b"\r\n"
_LENGTH = b"\r\ncontent-length: "
_SESSION = b"\r\nmcp-session-id: "


class Connection:
    """One request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.session: str | None = None
        """The session that the last answer named."""

    async def ask(self, request: bytes) -> Message:
        """The result."""
        async with asyncio.timeout(TIMEOUT):
            answer = await self._answer(request)
        if "result" not in answer:
            raise RuntimeError(f"the server refused {request!r}: {answer}")
        result: Message = answer["result"]
        return result

    async def tell(self, notification: bytes) -> None:
        self._writer.write(notification)
        head = await self._head()
        await self._reader.readexactly(int(_value(head, _LENGTH) or 0))

    async def _answer(self, request: bytes) -> Message:
        self._writer.write(request)
        head = await self._head()
        if (length := _value(head, _LENGTH)) is not None:
            answer: Message = json.loads(await self._reader.readexactly(int(length)))
            return answer
        # What a server says on the way to its answer is read and left aside.
        answers = [message async for message in self._messages() if "id" in message]
        return answers[-1]

    async def _head(self) -> bytes:
        head = (await self._reader.readuntil(2 * _LINE)).lower()
        session = _value(head, _SESSION)
        self.session = None if session is None else session.decode()
        return head

    async def _messages(self) -> AsyncGenerator[Message]:
        """Of server-sent events, in chunks. All servers here write one event in one chunk."""
        while length := int(await self._reader.readuntil(_LINE), 16):
            chunk = await self._reader.readexactly(length + len(_LINE))
            for line in chunk.splitlines():
                # An event without data only says from where to go on.
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))
        await self._reader.readexactly(len(_LINE))


def _value(head: bytes, name: bytes) -> bytes | None:
    begin = head.find(name)
    if begin < 0:
        return None
    begin += len(name)
    return head[begin : head.index(b"\r", begin)]


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
