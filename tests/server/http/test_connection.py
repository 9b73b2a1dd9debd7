"""Connections of the HTTP server: small responses leave at once, and idle, half-sent or unread ones time out."""

import asyncio
import logging
import socket
from contextlib import suppress

import pytest

from raincheck.server.http import connection, server
from tests.support.server.http_site import (
    EARLY,
    EARLY_CHUNKED,
    GET,
    HALF_BODY,
    HALF_HEAD,
    LARGE,
    LARGE_STREAM,
    NEXT,
    STREAM,
    Peer,
    running,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT", 0.3)
    monkeypatch.setattr(server, "KEEP_ALIVE_TIMEOUT", 0)


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
        (protocol,) = site.server.server_state.connections
        accepted = protocol.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
            if hasattr(socket, name):
                assert accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value


@pytest.mark.parametrize("half", [b"", HALF_HEAD, HALF_BODY, GET], ids=["none", "head", "body", "second"])
@pytest.mark.usefixtures("impatient")
async def test_a_connection_whose_request_does_not_arrive_is_closed(
    half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_TIMEOUT", 600)
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
    monkeypatch.setattr(server, "KEEP_ALIVE_TIMEOUT", 600)
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
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT", 1.0)
    async with running() as site:
        peer = await site.connected(EARLY)
        await peer.read_until(b"done")
        monkeypatch.setattr(connection, "REQUEST_TIMEOUT", 600)
        await peer.send(b"x" + NEXT[:size])
        # The time of the first request, which has arrived.
        await asyncio.sleep(1.2)
        await peer.send(NEXT[size:])
        await peer.read_until(b"done")


async def test_a_connection_that_is_idle_after_a_late_body_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_TIMEOUT", 0.5)
    async with running() as site:
        peer = await site.connected(EARLY)
        await peer.read_until(b"done")
        await peer.send(b"x")
        await peer.wait_closed()


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
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", 0.3)
    async with running() as site:
        await site.connected(requests)
        await site.until_connections(0)


async def test_an_unread_response_that_does_not_fill_the_buffer_has_the_same_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", 0.3)
    async with running() as site:
        peer = await site.connected()
        (protocol,) = site.server.server_state.connections
        protocol.transport.set_write_buffer_limits(100_000_000)
        await peer.send(LARGE)
        await site.until_connections(0)


async def test_a_client_that_reads_slowly_receives_its_whole_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", 1.0)
    monkeypatch.setattr(server, "KEEP_ALIVE_TIMEOUT", 0)
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
        (protocol,) = site.server.server_state.connections
        accepted = protocol.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == connection.WRITE_TIMEOUT * 1000
