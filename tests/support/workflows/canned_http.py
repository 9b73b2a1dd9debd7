"""An HTTP server whose answers a test writes down beforehand."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Canned:
    """Answers by path, as they go over the wire, and what was asked."""

    port: int = 0
    answers: dict[str, bytes] = field(default_factory=dict[str, bytes])
    asked: list[str] = field(default_factory=list[str])
    stays: bool = False
    """Whether it keeps connections open when it has said all, until it is told to close them."""
    stays_until: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, path: str, body: bytes, *, status: str = "200 OK", **headers: str) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.answers[path] = head.encode() + body


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncGenerator[Canned]:
    canned = Canned()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            # Whoever connected asked nothing.
            writer.close()
            return
        length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
        body = (await reader.readexactly(length)).decode()
        canned.asked.append(head + body)
        with suppress(ConnectionError):
            writer.write(canned.answers[head.split()[1]])
            await writer.drain()
        if canned.stays:
            await canned.stays_until.wait()
        writer.close()

    server = await asyncio.start_server(answer, host, 0)
    canned.port = server.sockets[0].getsockname()[1]
    async with server:
        yield canned
