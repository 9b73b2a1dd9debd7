"""HTTP requests of raw bytes, and what comes back."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import h11

Headers = Sequence[tuple[bytes, bytes]]

MAX_RESPONSE = 64 * 2**20


@dataclass
class HttpResponse:
    """A response as far as it arrived."""

    status: int = 0
    """0 if none arrived."""

    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    body: bytes = b""
    is_complete: bool = False
    is_closed: bool = False
    """Whether the server closed the connection."""

    is_reset: bool = False
    """Whether the connection broke, as it does if the server answers before it has read a large request."""

    problem: str = ""
    """What is wrong with it as HTTP."""

    @property
    def content_type(self) -> str:
        return self.headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip()


def request_bytes(method: bytes, path: bytes, headers: Headers, body: bytes) -> bytes:
    """Return a request with these headers as they are, a length unless there is one, and an end of the connection."""
    lines = [b"%s %s HTTP/1.1" % (method, path), *(b"%s: %s" % header for header in headers)]
    if b"content-length" not in {name.lower() for name, _ in headers}:
        lines.append(b"content-length: %d" % len(body))
    lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def exchange(port: int, request: bytes, patience: float) -> HttpResponse:
    """Send a request, and read the response until it is complete, the connection is closed, or time is up."""
    response = HttpResponse()
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                with suppress(ConnectionError):
                    await writer.drain()
                await _read(reader, response, request.partition(b" ")[0])
            finally:
                writer.close()
    except TimeoutError:
        pass
    except OSError:
        response.is_reset = True
    return response


async def _read(reader: asyncio.StreamReader, response: HttpResponse, method: bytes) -> None:
    connection = h11.Connection(h11.CLIENT)
    kind = "HEAD" if method == b"HEAD" else "POST"  # whose response has no body
    connection.send(h11.Request(method=kind, target="/", headers=[("host", "x"), ("connection", "close")]))
    connection.send(h11.EndOfMessage())
    try:
        while not response.is_complete and len(response.body) < MAX_RESPONSE:
            match connection.next_event():
                case h11.NEED_DATA:
                    piece = await reader.read(65_536)
                    response.is_closed = not piece
                    connection.receive_data(piece)
                case h11.Response() as head:
                    response.status, response.headers = head.status_code, dict(head.headers)
                case h11.Data(data=data):
                    response.body += bytes(data)
                case h11.EndOfMessage():
                    response.is_complete = True
                case h11.ConnectionClosed() | h11.PAUSED:
                    return
                case _:
                    pass
    except h11.RemoteProtocolError as error:
        if response.status:
            response.problem = str(error)


def events(body: bytes) -> list[bytes]:
    """Return the data of the complete server-sent events."""
    found: list[bytes] = []
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]:
        lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        if data := b"\n".join(lines):
            found.append(data)
    return found
