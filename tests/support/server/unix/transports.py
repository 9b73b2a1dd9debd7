"""Transports over a Unix socket, for raw messages and for arbitrary lines."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskStatus

from raincheck import Tasks
from tests.support.server.transports import Message, StreamTransport

HELLO: Message = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "old", "version": "1"},
}


@contextmanager
def short_folder() -> Generator[Path]:
    """Yield a folder whose path is short enough for a socket on every system."""
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        yield Path(folder).resolve()


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder, without a store's journal files."""
    return {file.name for file in folder.iterdir() if not file.name.endswith(("-wal", "-shm"))}


class Peer:
    """A connection that sends and receives lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send_bytes(self, line: bytes) -> None:
        """Send bytes. Lines end with a newline."""
        self.writer.write(line)
        await self.writer.drain()

    async def send(self, message: Message) -> None:
        await self.send_bytes(json.dumps(message).encode() + b"\n")

    async def receive_message(self) -> Message:
        """Return the next message. There must be one."""
        line = await self.reader.readuntil(b"\n")
        return json.loads(line)

    async def ask(self, request_id: int, method: str, **params: Any) -> Message:
        """Send a request of 2025-11-25, and return its answer, which must be the next message."""
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        answer = await self.receive_message()
        assert answer["id"] == request_id, answer
        return answer

    async def greet(self) -> Message:
        """Do the handshake of 2025-11-25, and return the initialize result."""
        welcome = await self.ask(0, "initialize", **HELLO)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return welcome["result"]

    async def is_served(self) -> bool:
        """Return whether the connection is still served."""
        return "result" in await self.ask(99, "ping")

    async def rest(self) -> bytes:
        """Read everything until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def peer_at(path: Path) -> AsyncGenerator[Peer]:
    """Open a connection on which nothing has been sent."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2**25)
    try:
        yield Peer(reader, writer)
    finally:
        await _close(writer)


class UnixTransport(StreamTransport):
    """A connection whose messages are read continuously."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.peer = peer

    async def send(self, message: Message) -> None:
        await self.peer.send(message)


@asynccontextmanager
async def over_unix(path: Path) -> AsyncGenerator[UnixTransport]:
    """Connect to the server at a path."""
    async with peer_at(path) as peer:
        transport = UnixTransport(peer)

        async def listen() -> None:
            async for line in peer.reader:
                transport.receive(json.loads(line))

        listening = asyncio.create_task(listen())
        try:
            yield transport
        finally:
            listening.cancel()
            await asyncio.wait([listening])


class ListenStatus(TaskStatus[None]):
    """Records that a server listens."""

    def __init__(self) -> None:
        self.is_up = asyncio.Event()

    def started(self, value: None = None) -> None:
        assert value is None
        self.is_up.set()


@asynccontextmanager
async def listening(tasks: Tasks, path: Path) -> AsyncGenerator[None]:
    """Serve at a path, in this process."""
    async with anyio.create_task_group() as group:
        await group.start(tasks.serve_unix, path)
        yield
        group.cancel_scope.cancel()


async def until_up(path: Path, process: asyncio.subprocess.Process | None = None) -> None:
    """Poll until a server of another process listens."""
    async with asyncio.timeout(30):
        while True:
            assert process is None or process.returncode is None, "the server did not start"
            try:
                async with peer_at(path):
                    return
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def program(*arguments: object, **options: Any) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a Python program, and kill it in the end if it has not ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, arguments), env={**os.environ, **options.pop("env", {})}, **options
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
