"""Tests for disconnects during a call: the command reports them, and the reconnect."""

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

from raincheck.cli.output.progress import ProgressDisplay
from raincheck.cli.remote.monitor import ConnectionMonitor, Incoming
from tests.support.cli.terminal import PATIENCE, PROGRAM, at_terminal, environment, serving

pytestmark = pytest.mark.usefixtures("workshop")

LOST, BACK = "connection lost, reconnecting", "reconnected"


@pytest.fixture
def endpoint() -> str:
    """A place where a server can be served, and again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_disconnect_is_shown_in_the_progress_bar(endpoint: str) -> None:
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


def test_a_disconnect_is_printed_as_lines_without_a_terminal(endpoint: str) -> None:
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
            reported = iter(process.stderr.readline, "")
            assert any("holding" in line for line in reported)
            server.close()
            assert next(reported) == f"raincheck: hold: {LOST}\n"
            with serving("--http", endpoint):
                assert next(reported) == f"raincheck: hold: {BACK}\n"
                Path("go").touch()
                assert process.wait(PATIENCE) == 0
            assert LOST not in "".join(reported)


class RecordingDisplay(ProgressDisplay):
    """Records the disconnects."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def on_disconnect(self) -> None:
        self.words.append("lost")

    def on_reconnect(self) -> None:
        self.words.append("back")


ANSWER = SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
BY_PROXY = SessionMessage(JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=-32603, message="HTTP 502")))


@pytest.mark.anyio
async def test_errors_made_by_the_transport_do_not_count_as_responses() -> None:
    reported, coming = RecordingDisplay(), list[Incoming]()
    contact = ConnectionMonitor(lambda: saying(coming), reported)
    observed: list[list[str]] = []
    for printed in (BY_PROXY, ANSWER, OSError(), BY_PROXY, ANSWER, ANSWER):
        coming[:] = [printed]
        async with contact.connect() as (read, _):
            assert await read.receive() == printed
        observed.append(reported.words.copy())
        reported.words.clear()
    assert observed == [[], [], ["lost"], [], ["back"], ["lost", "back"]]


@asynccontextmanager
async def saying(messages: list[Incoming]) -> AsyncGenerator[TransportStreams]:
    """A connection over which this is heard."""
    reported, read = anyio.create_memory_object_stream[Incoming](len(messages))
    write, taken = anyio.create_memory_object_stream[SessionMessage](1)
    with reported, read, write, taken:
        for message in messages:
            reported.send_nowait(message)
        yield read, write
