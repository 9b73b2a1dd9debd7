"""The HTTP server: connections are bounded, and file descriptors stay in reserve."""

import errno
import logging
import os
import resource
import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from raincheck.server.http import server
from raincheck.server.http.server import HttpServer, max_connections
from tests.support.server.http_site import GET, HALF_HEAD, LARGE, STREAM, App, running, until

pytestmark = pytest.mark.anyio

SHORTAGE, RECOVERY = "closing idle connections", "new connections are accepted again without delay"


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


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await until(lambda: text in caplog.text)


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "max_connections", lambda: 3)
    monkeypatch.setattr(server, "MIN_IDLE_TIME", 0.0)
    monkeypatch.setattr(server, "RECOVERY_TIME", 0.3)


async def test_an_idle_connection_outlives_those_of_common_clients_and_proxies() -> None:
    assert HttpServer(App()).config.timeout_keep_alive > 60


@pytest.mark.usefixtures("crowded")
async def test_at_the_limit_the_connection_that_is_idle_for_longest_is_closed(
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
async def test_at_the_limit_requests_in_progress_continue_and_new_connections_wait(
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
    caplog.set_level(logging.DEBUG, server.__name__)
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
    assert caplog.text.count("could not accept a connection") == 3
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


async def test_requests_that_the_stop_cancels_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running() as site:
        site.server.config.timeout_graceful_shutdown = 0
        stream = await site.connected(STREAM)
        await stream.read_until(b"so")
        site.server.should_exit = True
        await stream.wait_closed()
        await until_logged(caplog, "requests cancelled because the server stops: 1")
    assert [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO] == []
