"""A Unix socket connection is served within limits, and does not affect other connections."""

import asyncio
import errno
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import JSONRPCNotification

from raincheck.server.unix import connection, server
from raincheck.server.unix.connection import MAX_LINE_BYTES, MAX_UNREAD, LineBuffer, LineTooLong, encode_message
from tests.support.server.example import ExampleServer
from tests.support.server.unix.transports import HELLO, Peer, listening, peer_at, short_folder

pytestmark = pytest.mark.anyio

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.fixture
def path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "shop.sock"


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged warnings and errors."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def padded(size: int) -> bytes:
    """A request that is as long as this, with its newline."""
    start, end = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{"pad":"', b'"}}}\n'
    return start + b"x" * (size + 1 - len(start) - len(end)) + end


async def test_a_line_as_long_as_is_allowed_is_served_and_a_longer_one_ends_its_connection(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(ExampleServer().tasks, path), peer_at(path) as peer, peer_at(path) as another:
        await peer.greet()
        await another.greet()
        await peer.send_bytes(padded(MAX_LINE_BYTES))
        assert await peer.receive_message() == {"jsonrpc": "2.0", "id": 7, "result": {}}
        peer.writer.write(padded(MAX_LINE_BYTES + 1))
        refused = await peer.receive_message()
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        assert str(MAX_LINE_BYTES) in refused["error"]["message"]
        assert await peer.rest() == b""
        assert f"that sent a line of more than {MAX_LINE_BYTES} bytes" in caplog.text
        assert await another.is_served()


def test_the_bound_of_a_line_is_that_of_a_request_over_http() -> None:
    assert MAX_LINE_BYTES == 4 * 2**20


async def test_a_line_that_never_ends_is_read_only_up_to_the_limit(path: Path) -> None:
    """Memory use is bounded. The bytes that the system accepted show how much was read."""
    async with listening(ExampleServer().tasks, path):
        sent = await asyncio.to_thread(send_for_ever, path)
    assert MAX_LINE_BYTES < sent < MAX_LINE_BYTES + 2**20


async def test_a_peer_that_sends_too_long_a_line_and_does_not_read_is_disconnected(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    example_server = ExampleServer()

    @example_server.mcp.tool()
    async def talk() -> str:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        return "x" * 2**22

    hello = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}).encode()
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"talk"}}'
    async with listening(example_server.tasks, path):
        sent = await asyncio.to_thread(send_for_ever, path, hello + b"\n" + call + b"\n")
    assert sent < 2**23
    (trouble,) = troubles(caplog)
    assert trouble.startswith("closed a connection that sent a line of more than")


def send_for_ever(path: Path, first: bytes = b"") -> int:
    """How much could be sent until the server closed the connection."""
    sent = 0
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        try:
            caller.sendall(first)
            while sent < 2**28:
                sent += caller.send(b"x" * 2**16)
        except (BrokenPipeError, ConnectionResetError):
            pass
    return sent


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_lines_do_not_depend_on_how_they_are_chunked(size: int) -> None:
    text = b"one\n\ntwo\nthr\x00ee\xff\n" * 3 + b"half"
    lines = LineBuffer()
    got = [line for at in range(0, len(text), size) for line in lines.feed(text[at : at + size])]
    assert got == [b"one", b"two", b"thr\x00ee\xff"] * 3


def test_a_line_is_too_long_whether_it_ends_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_LINE_BYTES", 4)
    assert LineBuffer().feed(b"1234\n12") == [b"1234"]
    for piece in (b"12345", b"12345\n", b"1\n12345", b"1\n12345\n1\n"):
        with pytest.raises(LineTooLong):
            LineBuffer().feed(piece)
    lines = LineBuffer()
    lines.feed(b"123")
    lines.feed(b"4")
    with pytest.raises(LineTooLong):
        lines.feed(b"5\n")


NOT_JSON = -32700
NOT_JSON_RPC = -32600


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"GET / HTTP/1.1", NOT_JSON),
        (b"\x00\x01\x02\x7f", NOT_JSON),
        (b"\xff\xfe\xfd", NOT_JSON),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', NOT_JSON),
        (b'{"jsonrpc":"2.0","id":1,"method":"a\x00b"}', NOT_JSON),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', NOT_JSON),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', NOT_JSON),
        (PING + PING, NOT_JSON),
        (b"[" * 100_000, NOT_JSON),
        (b'{"a":' * 100_000, NOT_JSON),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"ping"}', NOT_JSON),
        (b"null", NOT_JSON_RPC),
        (b"7", NOT_JSON_RPC),
        (b'"ping"', NOT_JSON_RPC),
        (b"[]", NOT_JSON_RPC),
        (b"{}", NOT_JSON_RPC),
        (b"[" + PING + b"]", NOT_JSON_RPC),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', NOT_JSON_RPC),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', NOT_JSON_RPC),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', NOT_JSON_RPC),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_line_that_is_no_message_gets_an_error_and_the_connection_continues(
    path: Path, line: bytes, code: int
) -> None:
    async with listening(ExampleServer().tasks, path), peer_at(path) as peer, peer_at(path) as another:
        await another.greet()
        # Before the handshake, and after it.
        for _ in "12":
            await peer.send_bytes(line + b"\n")
            refused = await peer.receive_message()
            assert (refused["id"], refused["error"]["code"]) == (None, code)
            await peer.greet()
        assert await peer.is_served()
        assert await another.is_served()


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"\t\r"])
async def test_empty_lines_are_ignored(path: Path, line: bytes) -> None:
    async with listening(ExampleServer().tasks, path), peer_at(path) as peer:
        await peer.send_bytes((line + b"\n") * 20)
        await peer.greet()
        await peer.send_bytes((line + b"\n") * 20)
        assert await peer.is_served()


@pytest.mark.parametrize("half", [PING, PING[:20], b"\x00", b" "])
async def test_half_a_line_at_the_end_is_no_message(path: Path, half: bytes) -> None:
    async with listening(ExampleServer().tasks, path), peer_at(path) as another:
        async with peer_at(path) as peer:
            await peer.greet()
            await peer.send_bytes(half)
            peer.writer.write_eof()
            assert await peer.rest() == b""
        await another.greet()
        assert await another.is_served()


async def test_connections_beyond_the_limit_get_an_error_and_are_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert server.MAX_CONNECTIONS == 100
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with listening(ExampleServer().tasks, path), peer_at(path) as one:
        await one.greet()
        async with peer_at(path) as another:
            await another.greet()
            async with peer_at(path) as third:
                assert (await third.receive_message())["error"]["message"] == "the server has too many connections"
                assert await third.rest() == b""
            assert "there are already 2" in caplog.text
            assert await another.is_served()
            another.writer.write_eof()
            await another.rest()
        async with peer_at(path) as third:
            await third.greet()
            assert await one.is_served()


async def test_a_hundred_callers_are_served_at_once(path: Path) -> None:
    async def one() -> None:
        async with peer_at(path) as peer:
            await peer.greet()
            await all_in.wait()
            assert await peer.is_served()
            await all_in.wait()

    all_in = asyncio.Barrier(server.MAX_CONNECTIONS)
    async with listening(ExampleServer().tasks, path), asyncio.TaskGroup() as group:
        for _ in range(server.MAX_CONNECTIONS):
            group.create_task(one())


async def test_nothing_more_is_read_from_a_peer_that_does_not_read(path: Path) -> None:
    """Messages to it do not pile up. Other peers are served meanwhile, and this one as soon as it reads."""
    example_server = ExampleServer()
    calls = 0

    @example_server.mcp.tool()
    async def talk() -> str:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        nonlocal calls
        calls += 1
        return "x" * 2**16

    line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"talk"}}\n'
    async with listening(example_server.tasks, path), peer_at(path) as mute, peer_at(path) as another:
        await mute.greet()
        await another.greet()
        pause(mute)
        wanted = 20 * MAX_UNREAD
        mute.writer.write(b"".join(line % n for n in range(wanted)))
        while calls <= MAX_UNREAD:
            assert await another.is_served()
        for _ in range(200):
            assert await another.is_served()
        # What is on its way beyond that is in the system's buffers, or was read in one piece with others.
        assert MAX_UNREAD < calls < MAX_UNREAD + 50
        mute.reader._transport.resume_reading()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        received = {(await mute.receive_message())["id"] for _ in range(wanted)}
        assert received == set(range(wanted))
        assert await mute.is_served()


def pause(peer: Peer) -> None:
    """Read nothing more, though it may be here."""
    transport: Any = peer.writer.transport
    transport.pause_reading()


async def test_a_peer_that_sends_constantly_does_not_starve_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is always more to be had at once, and still everybody has a turn after each piece."""
    turns: list[int] = []
    pieces = iter([b"\n"] * 100)

    async def receive(*_: object) -> bytes:
        turns.append(turn)
        return next(pieces, b"")

    async with listening(ExampleServer().tasks, path):
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_recv", receive)
        async with peer_at(path):
            turn = 0
            while len(turns) < 100:
                turn += 1
                await asyncio.sleep(0)
    assert len(set(turns)) >= 100


async def test_an_answer_that_can_not_be_sent_is_an_error_of_its_call_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As with the name of a file that is not UTF-8."""
    example_server = ExampleServer()

    @example_server.mcp.tool()
    async def name_file() -> str:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        return b"caf\xe9".decode(errors="surrogateescape")

    async with listening(example_server.tasks, path), peer_at(path) as peer:
        await peer.greet()
        answer = await peer.ask(1, "tools/call", name="name_file")
        assert answer["error"]["code"] == -32603
        assert "could not be sent" in caplog.text
        assert await peer.is_served()


def test_a_notification_that_can_not_be_sent_is_left_out() -> None:
    assert (
        encode_message(JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": "\udce9"}))
        == b""
    )


async def test_a_failing_connection_does_not_affect_others(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def break_down(*_: object) -> None:
        raise RuntimeError("nobody foresaw this")

    async with listening(ExampleServer().tasks, path), peer_at(path) as peer:
        await peer.greet()
        with monkeypatch.context() as patch:
            patch.setattr(connection, "serve_dual_era_loop", break_down)
            async with peer_at(path) as broken:
                assert await broken.rest() == b""
        assert f"a connection at {path} failed" in caplog.text
        assert await peer.is_served()


async def test_a_server_without_resources_for_a_connection_retries_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = socket.socket.accept, iter([errno.EMFILE, errno.ECONNABORTED, errno.EAGAIN])

    def accept(listening: socket.socket) -> Any:
        for failure in failures:
            raise OSError(failure, "too many")
        return real(listening)

    monkeypatch.setattr(socket.socket, "accept", accept)
    monkeypatch.setattr(server, "RETRY_DELAY", 0.01)
    async with listening(ExampleServer().tasks, path), peer_at(path) as peer:
        await peer.greet()
        assert caplog.text.count("could not accept a connection") == 1


async def test_a_peer_that_disconnects_before_it_is_accepted_is_ignored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: socket.socket) -> int:
        raise OSError(errno.ENOTCONN, "gone")

    async with listening(ExampleServer().tasks, path):
        with monkeypatch.context() as patch:
            patch.setattr(server, "peer_user", gone)
            async with peer_at(path) as peer:
                assert await peer.rest() == b""
        async with peer_at(path) as peer:
            await peer.greet()


async def test_a_peer_that_disconnects_without_reading_is_not_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(ExampleServer().tasks, path), peer_at(path) as another:
        await another.greet()
        for _ in range(20):
            async with peer_at(path) as peer:
                await peer.greet()
                pause(peer)
                await peer.send_bytes((PING + b"\n") * 500)
            await asyncio.to_thread(hang_up, path)
        assert await another.is_served()
    assert troubles(caplog) == []


def hang_up(path: Path) -> None:
    """Ask, and leave when the answer is here."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        caller.sendall(b"?\n")
        assert caller.recv(1, socket.MSG_PEEK) == b"{"


async def test_a_peer_that_stops_reading_but_sends_on_is_disconnected(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(ExampleServer().tasks, path), peer_at(path) as peer:
        await peer.greet()
        raw: socket.socket = peer.writer.get_extra_info("socket")
        raw.shutdown(socket.SHUT_RD)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012 - at one of them
            while True:
                await peer.send_bytes(PING + b"\n")
                await asyncio.sleep(0)
    assert troubles(caplog) == []


async def test_a_result_larger_than_any_request_is_sent_whole(path: Path) -> None:
    example_server = ExampleServer()

    @example_server.mcp.tool()
    async def talk() -> str:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        return "x" * (MAX_LINE_BYTES + 1)

    async with listening(example_server.tasks, path), peer_at(path) as peer:
        await peer.greet()
        answer = await peer.ask(1, "tools/call", name="talk")
        (block,) = answer["result"]["content"]
        assert len(block["text"]) == MAX_LINE_BYTES + 1
