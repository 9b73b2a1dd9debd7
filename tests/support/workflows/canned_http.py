"""An HTTP server with canned responses, for tests."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class CannedHttpServer:
    """Responses by path, as the bytes that are sent, and the requests that were received."""

    port: int = 0
    responses: dict[str, bytes] = field(default_factory=dict[str, bytes])
    requests: list[str] = field(default_factory=list[str])
    keeps_open: bool = False
    """Whether it keeps connections open after a response, until `close_event` is set."""
    close_event: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, path: str, body: bytes, *, status: str = "200 OK", **headers: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.responses[path] = head.encode() + body


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncGenerator[CannedHttpServer]:
    canned = CannedHttpServer()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            # The client closed the connection without a request.
            writer.close()
            return
        length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
        body = (await reader.readexactly(length)).decode()
        canned.requests.append(head + body)
        with suppress(ConnectionError):
            writer.write(canned.responses[head.split()[1]])
            await writer.drain()
        if canned.keeps_open:
            await canned.close_event.wait()
        writer.close()

    server = await asyncio.start_server(respond, host, 0)
    canned.port = server.sockets[0].getsockname()[1]
    async with server:
        yield canned
