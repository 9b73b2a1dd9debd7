"""A running HTTP server, the application behind it, and clients that send raw bytes."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from raincheck.server.http.server import HttpServer

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
HALF_HEAD = b"POST / HTTP/1.1\r\nHost: te"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n12345"
EARLY = b"POST /early HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\n"
EARLY_CHUNKED = b"POST /early HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = HALF_BODY + b"67890"
LARGE = b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n"
LARGE_STREAM = b"GET /large/stream HTTP/1.1\r\nHost: test\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n"


class App:
    """Answers when the body has arrived; at /early, at once.

    At /stream it sends a first piece, and the rest when it is released; at /large, a large body.
    """

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.disconnects = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] != "/early":
                await Request(scope, receive).body()
        except ClientDisconnect:
            self.disconnects += 1
            return
        if scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(20_000_000) + b"end"})
            return
        if scope["path"] == "/large/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(20_000_000), "more_body": True})
            await send({"type": "http.response.body", "body": b"end"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"so", "more_body": True})
            await self.release.wait()
            await send({"type": "http.response.body", "body": b"me"})
        else:
            await send({"type": "http.response.body", "body": b"done"})


class Peer:
    """A client's connection. Its socket exists before it connects."""

    def __init__(self, address: tuple[str, int], family: int = socket.AF_INET) -> None:
        self._address = address
        self._socket = socket.socket(family)
        self._socket.setblocking(False)

    async def connect(self) -> "Peer":
        await asyncio.get_running_loop().sock_connect(self._socket, self._address)
        return self

    async def send(self, data: bytes) -> "Peer":
        await asyncio.get_running_loop().sock_sendall(self._socket, data)
        return self

    async def read_until(self, end: bytes) -> bytes:
        """Read what the server sends, up to and including these bytes."""
        received = bytearray()
        while not received.endswith(end):
            data = await asyncio.get_running_loop().sock_recv(self._socket, 1_000_000)
            assert data, f"closed after {received[-1_000:]!r}"
            received += data
        return bytes(received)

    async def read_piece(self) -> int:
        """Read a small piece of what the server sends, and return its size."""
        return len(await asyncio.get_running_loop().sock_recv(self._socket, 500_000))

    async def wait_closed(self) -> None:
        # It is reset if the server has not read everything.
        with suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(self._socket, 1_000) == b""

    def close(self) -> None:
        self._socket.close()


class Site:
    """A server and its clients."""

    def __init__(self, family: int) -> None:
        self.app = App()
        self.server = HttpServer(self.app)
        self.listening = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
        self._family = family
        self._peers: list[Peer] = []

    def peer(self) -> Peer:
        self._peers.append(Peer(self.listening.getsockname()[:2], self._family))
        return self._peers[-1]

    async def connected(self, data: bytes = b"") -> Peer:
        """Return a client that is connected and has sent this data, after the server has accepted it."""
        count = len(self.server.server_state.connections)
        peer = await (await self.peer().connect()).send(data)
        await self.until_connections(count + 1)
        return peer

    async def until_connections(self, count: int) -> None:
        await until(lambda: len(self.server.server_state.connections) == count)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


@asynccontextmanager
async def running(family: int = socket.AF_INET) -> AsyncGenerator[Site]:
    site = Site(family)
    serving = asyncio.ensure_future(site.server.serve(sockets=[site.listening]))
    try:
        yield site
    finally:
        site.app.release.set()
        site.close()
        site.server.should_exit = True
        await serving


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - uvicorn and logging have no event for it
        await asyncio.sleep(0.01)
