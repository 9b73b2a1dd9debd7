"""The HTTP server: small responses leave at once, connections are bounded, and idle or half-sent ones time out."""

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from raincheck.server import http_server
from raincheck.server.http_server import HttpServer, max_connections

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
HALF_HEAD = b"POST / HTTP/1.1\r\nHost: te"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n12345"
EARLY = b"POST /early HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\n"
EARLY_CHUNKED = b"POST /early HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = HALF_BODY + b"67890"
LARGE = b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n"
LARGE_STREAM = b"GET /large/stream HTTP/1.1\r\nHost: test\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n"
SHORTAGE, RECOVERY = "closing idle connections", "there is room for new connections again"


class App:
    """Answers when the body has arrived, at /early at once.

    At /stream it sends a first piece, and the rest when it is released; at /large, a lot.
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
        """What the server sends, up to and with these bytes."""
        received = bytearray()
        while not received.endswith(end):
            data = await asyncio.get_running_loop().sock_recv(self._socket, 1_000_000)
            assert data, f"closed after {received[-1_000:]!r}"
            received += data
        return bytes(received)

    async def read_piece(self) -> int:
        """The size of a small piece of what the server sends."""
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
        """A client that is connected and has sent this, once the server has accepted it."""
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


@contextmanager
def no_descriptors_left() -> Generator[None]:
    """Open no more files in this process."""
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - uvicorn and logging have no event for it
        await asyncio.sleep(0.01)


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await until(lambda: text in caplog.text)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT", 0.3)
    monkeypatch.setattr(http_server, "KEEP_ALIVE_TIMEOUT", 0)


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "max_connections", lambda: 3)
    monkeypatch.setattr(http_server, "MIN_IDLE_TIME", 0.0)
    monkeypatch.setattr(http_server, "RECOVERY_TIME", 0.3)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_small_packets_are_sent_at_once_and_dead_peers_are_noticed(family: int) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        if family == socket.AF_INET6:
            pytest.skip("this machine has no IPv6")
    async with running(family) as site:
        peer = await site.connected(GET)
        await peer.read_until(b"done")
        (connection,) = site.server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
            if hasattr(socket, name):
                assert accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value


@pytest.mark.parametrize("half", [b"", HALF_HEAD, HALF_BODY, GET], ids=["none", "head", "body", "second"])
@pytest.mark.usefixtures("impatient")
async def test_a_connection_whose_request_does_not_arrive_is_closed(
    half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "KEEP_ALIVE_TIMEOUT", 600)
    async with running() as site:
        peer = await site.connected(half)
        if half == GET:
            await peer.read_until(b"done")
            await peer.send(HALF_HEAD)
        await peer.wait_closed()
        await site.until_connections(0)
        assert site.app.disconnects == (half == HALF_BODY)


@pytest.mark.parametrize("half", [HALF_HEAD, HALF_BODY], ids=["head", "body"])
@pytest.mark.usefixtures("impatient")
async def test_a_half_sent_request_behind_another_one_has_the_same_timeout(
    half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "KEEP_ALIVE_TIMEOUT", 600)
    async with running() as site:
        peer = await site.connected(STREAM + half)
        await peer.read_until(b"so")
        site.app.release.set()
        await peer.read_until(b"me")
        await peer.wait_closed()


@pytest.mark.parametrize("size", [0, 10, len(NEXT) - 1], ids=["body", "and half a head", "and half a body"])
async def test_a_late_body_does_not_shorten_the_time_of_the_next_request(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT", 1.0)
    async with running() as site:
        peer = await site.connected(EARLY)
        await peer.read_until(b"done")
        monkeypatch.setattr(http_server, "REQUEST_TIMEOUT", 600)
        await peer.send(b"x" + NEXT[:size])
        # The time of the first request, which has arrived.
        await asyncio.sleep(1.2)
        await peer.send(NEXT[size:])
        await peer.read_until(b"done")


async def test_an_invalid_body_after_its_response_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as site:
        peer = await site.connected(EARLY_CHUNKED)
        await peer.read_until(b"done")
        await peer.send(b"invalid\r\n")
        await peer.wait_closed()
        await site.until_connections(0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.usefixtures("impatient")
async def test_a_request_that_arrives_byte_by_byte_does_not_have_more_time() -> None:
    async def send_bytes(peer: Peer) -> None:
        with suppress(ConnectionError):
            while True:
                await peer.send(b"s")
                await asyncio.sleep(0.02)

    async with running() as site:
        peer = await site.connected(HALF_HEAD)
        sending = asyncio.ensure_future(send_bytes(peer))
        await site.until_connections(0)
        await sending


@pytest.mark.usefixtures("impatient")
async def test_an_idle_connection_is_closed_and_one_with_a_request_in_progress_is_not() -> None:
    async with running() as site:
        stream = await site.connected(STREAM)
        await stream.read_until(b"so")
        for data in (b"", GET, HALF_BODY):
            other = await (await site.peer().connect()).send(data)
            if data == GET:
                await other.read_until(b"done")
            await other.wait_closed()
        await site.until_connections(1)
        site.app.release.set()
        assert await stream.read_until(b"me") == b"me"
        await stream.wait_closed()


@pytest.mark.parametrize("requests", [LARGE, LARGE_STREAM], ids=["response complete", "response in progress"])
async def test_a_connection_whose_client_does_not_read_is_closed(
    requests: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "WRITE_TIMEOUT", 0.3)
    async with running() as site:
        await site.connected(requests)
        await site.until_connections(0)


async def test_an_unread_response_that_does_not_fill_the_buffer_has_the_same_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "WRITE_TIMEOUT", 0.3)
    async with running() as site:
        peer = await site.connected()
        (connection,) = site.server.server_state.connections
        connection.transport.set_write_buffer_limits(100_000_000)
        await peer.send(LARGE)
        await site.until_connections(0)


async def test_a_client_that_reads_slowly_receives_its_whole_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "WRITE_TIMEOUT", 1.0)
    monkeypatch.setattr(http_server, "KEEP_ALIVE_TIMEOUT", 0)
    async with running() as site:
        peer = await site.connected(LARGE)
        received = 0
        while size := await peer.read_piece():
            received += size
            await asyncio.sleep(0.05)
        assert received > 20_000_000


async def test_the_kernel_ends_a_connection_whose_client_does_not_read() -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("this platform has no TCP_USER_TIMEOUT")
    async with running() as site:
        await site.connected()
        (connection,) = site.server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == http_server.WRITE_TIMEOUT * 1000


async def test_an_idle_connection_outlives_those_of_common_clients_and_proxies() -> None:
    assert HttpServer(App()).config.timeout_keep_alive > 60


@pytest.mark.usefixtures("crowded")
async def test_at_the_limit_the_connection_that_is_idle_for_longest_makes_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as site:
        stream = await site.connected(STREAM)
        await stream.read_until(b"so")
        first, second = await site.connected(), await site.connected()
        await first.send(GET)
        await first.read_until(b"done")
        third = await (await site.peer().connect()).send(GET)
        await second.wait_closed()
        await third.read_until(b"done")
        await first.send(GET)
        await first.read_until(b"done")
        await until_logged(caplog, RECOVERY)
        assert caplog.text.count(SHORTAGE) == 1
        site.app.release.set()
        await stream.read_until(b"me")


@pytest.mark.usefixtures("crowded")
async def test_at_the_limit_requests_in_progress_go_on_and_new_connections_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as site:
        streams = [await site.connected(STREAM) for _ in range(3)]
        waiting = await (await site.peer().connect()).send(GET)
        await until_logged(caplog, SHORTAGE)
        for stream in streams:
            await stream.read_until(b"so")
        assert len(site.server.server_state.connections) == 3
        site.app.release.set()
        for stream in streams:
            await stream.read_until(b"me")
        await waiting.read_until(b"done")
        await until_logged(caplog, RECOVERY)
        assert caplog.text.count(SHORTAGE) == 1


@pytest.mark.usefixtures("crowded")
async def test_at_the_limit_a_connection_whose_client_has_not_read_everything_is_left_alone() -> None:
    async with running() as site:
        unread = await site.connected(LARGE)
        await until(lambda: site.server.server_state.total_requests == 1)
        idle, _ = await site.connected(), await site.connected(STREAM)
        third = await (await site.peer().connect()).send(GET)
        await third.read_until(b"done")
        await idle.wait_closed()
        await unread.read_until(b"end\r\n0\r\n\r\n")
        await unread.send(GET)
        await unread.read_until(b"done")


@pytest.mark.usefixtures("crowded")
async def test_without_file_descriptors_connections_wait_and_are_served_when_there_are_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as site:
        established = await site.connected(GET)
        await established.read_until(b"done")
        waiting = site.peer()
        with no_descriptors_left():
            await (await waiting.connect()).send(GET)
            await until_logged(caplog, SHORTAGE)
        await waiting.read_until(b"done")
        await until_logged(caplog, RECOVERY)
        assert caplog.text.count(SHORTAGE) == 1


@pytest.mark.usefixtures("crowded")
async def test_a_network_error_of_one_connection_closes_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, http_server.__name__)
    errors = [OSError(code, os.strerror(code)) for code in (errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH)]
    accept = socket.socket.accept

    def fail_first(self: socket.socket) -> tuple[socket.socket, object]:
        if errors:
            raise errors.pop()
        return accept(self)

    async with running() as site:
        idle = await site.connected()
        monkeypatch.setattr(socket.socket, "accept", fail_first)
        other = await (await site.peer().connect()).send(GET)
        await other.read_until(b"done")
        await idle.send(GET)
        await idle.read_until(b"done")
    assert caplog.text.count("could not be accepted") == 3
    assert SHORTAGE not in caplog.text


async def test_it_stops_while_there_are_no_file_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as site:
        await site.connected(HALF_HEAD)
        waiting = site.peer()
        with no_descriptors_left():
            await waiting.connect()
            await until_logged(caplog, SHORTAGE)
            site.server.should_exit = True
            await site.until_connections(0)
            await until(lambda: site.listening.fileno() == -1)


@pytest.mark.parametrize(("limit", "connections"), [(256, 128), (1_024, 768), (16_384, 10_000)])
async def test_the_limit_of_connections_leaves_file_descriptors_in_reserve(limit: int, connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < limit:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        assert max_connections() == connections
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
