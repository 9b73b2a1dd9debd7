"""A server that is away for a while during a call: it is said, and so is that it is back."""

import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCResponse

from raincheck.cli.remote.connect import ConnectionMonitor, Incoming
from tests.support.cli.terminal import PATIENCE, PROGRAM, at_terminal, environment, serving

pytestmark = pytest.mark.usefixtures("workshop")

LOST, BACK = "connection lost, trying again", "connected again"


@pytest.fixture
def endpoint() -> str:
    """A place where a server can be served, and again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_at_a_terminal_it_is_said_on_the_line_of_the_call(endpoint: str) -> None:
    with ExitStack() as server:
        url = server.enter_context(serving("--http", endpoint))
        with at_terminal("call", url, "hold") as screen:
            screen.expect("hold: holding")
            server.close()
            screen.expect(f"hold: {LOST}")
            with serving("--http", endpoint):
                screen.expect(f"hold: holding ({BACK})")
                Path("go").touch()
                screen.expect("let go")
                assert screen.end() == 0


def test_elsewhere_it_is_said_in_a_line_for_each(endpoint: str) -> None:
    with ExitStack() as server:
        url = server.enter_context(serving("--http", endpoint))
        process = subprocess.Popen(
            [*PROGRAM, "call", url, "hold"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        with process:
            assert process.stderr is not None
            told = iter(process.stderr.readline, "")
            assert any("holding" in line for line in told)
            server.close()
            assert next(told) == f"raincheck: hold: {LOST}\n"
            with serving("--http", endpoint):
                assert next(told) == f"raincheck: hold: {BACK}\n"
                Path("go").touch()
                assert process.wait(PATIENCE) == 0
            assert LOST not in "".join(told)


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def on_disconnect(self) -> None:
        self.words.append("lost")

    def on_reconnect(self) -> None:
        self.words.append("back")


ANSWER = SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
BY_PROXY = SessionMessage(JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=-32603, message="HTTP 502")))


@pytest.mark.anyio
async def test_what_a_transport_says_in_place_of_its_server_is_no_answer() -> None:
    told, coming = Told(), list[Incoming]()
    contact = ConnectionMonitor(lambda: saying(coming), told)
    seen: list[list[str]] = []
    for said in (BY_PROXY, ANSWER, OSError(), BY_PROXY, ANSWER, ANSWER):
        coming[:] = [said]
        async with contact.connect() as (read, _):
            assert await read.receive() == said
        seen.append(told.words.copy())
        told.words.clear()
    assert seen == [[], [], ["lost"], [], ["back"], ["lost", "back"]]


@asynccontextmanager
async def saying(messages: list[Incoming]) -> AsyncGenerator[TransportStreams]:
    """A connection over which this is heard."""
    told, read = anyio.create_memory_object_stream[Incoming](len(messages))
    write, taken = anyio.create_memory_object_stream[SessionMessage](1)
    with told, read, write, taken:
        for message in messages:
            told.send_nowait(message)
        yield read, write
