"""Tests for `raincheck serve --http` with more idle connections than file descriptors."""

import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.cli.terminal import PATIENCE, PROGRAM, environment, run

pytestmark = pytest.mark.usefixtures("workshop")

LIMIT, IDLE = 256, 300


@contextmanager
def idle_connections(address: tuple[str, int]) -> Generator[None]:
    """Half of them have sent nothing, and half of them half a request."""
    with ExitStack() as stack:
        for number in range(IDLE):
            connection = stack.enter_context(socket.create_connection(address, PATIENCE))
            if number % 2:
                connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: te")
        yield


def answers(address: tuple[str, int]) -> bool:
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    try:
        connection.request("GET", "/nothing")
        return connection.getresponse().status == 404
    finally:
        connection.close()


def test_the_server_keeps_serving_with_idle_connections_and_stops_on_a_signal() -> None:
    words = [*PROGRAM, "serve", "server.py", "--http", "127.0.0.1:0", "--json", "--store", "crowd.db"]
    with subprocess.Popen(
        ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *words],  # noqa: S607
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            url: str = json.loads(process.stdout.readline())["at"]
            address = ("127.0.0.1", int(url.removesuffix("/mcp").rpartition(":")[2]))
            with idle_connections(address):
                assert answers(address)
                assert run("call", url, "add", "a=1").stdout == "2.5\n"
            assert answers(address)
            with idle_connections(address):
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
            assert "Traceback" not in err
        finally:
            process.kill()
