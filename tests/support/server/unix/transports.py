"""Ways to a server over its Unix socket: raw messages as on other wires, and lines that may be anything."""

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
from tests.support.server.transports import Message, StreamWire

HELLO: Message = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "old", "version": "1"},
}


@contextmanager
def short_folder() -> Generator[Path]:
    """A folder whose path leaves room for the name of a socket, on every system."""
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        yield Path(folder).resolve()


def names_in(folder: Path) -> set[str]:
    """What there is in a folder, without what a store keeps beside its file."""
    return {file.name for file in folder.iterdir() if not file.name.endswith(("-wal", "-shm"))}


class Peer:
    """One connection, and lines on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, line: bytes) -> None:
        """Send bytes. Lines end with a newline."""
        self.writer.write(line)
        await self.writer.drain()

    async def send(self, message: Message) -> None:
        await self.say(json.dumps(message).encode() + b"\n")

    async def hear(self) -> Message:
        """The next message. There must be one."""
        line = await self.reader.readuntil(b"\n")
        return json.loads(line)

    async def ask(self, request_id: int, method: str, **params: Any) -> Message:
        """A request of 2025, and its answer, which must come next."""
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        answer = await self.hear()
        assert answer["id"] == request_id, answer
        return answer

    async def greet(self) -> Message:
        """The handshake of 2025: what the server says of itself."""
        welcome = await self.ask(0, "initialize", **HELLO)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return welcome["result"]

    async def is_served(self) -> bool:
        """Whether the connection still does its work."""
        return "result" in await self.ask(99, "ping")

    async def rest(self) -> bytes:
        """What still comes, until the server closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def peer_at(path: Path) -> AsyncGenerator[Peer]:
    """A connection that nothing is said on yet."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2**25)
    try:
        yield Peer(reader, writer)
    finally:
        await _close(writer)


class UnixWire(StreamWire):
    """A connection that answers are read from all the time."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.peer = peer

    async def send(self, message: Message) -> None:
        await self.peer.send(message)


@asynccontextmanager
async def over_unix(path: Path) -> AsyncGenerator[UnixWire]:
    """A connection to a server that listens there."""
    async with peer_at(path) as peer:
        wire = UnixWire(peer)

        async def listen() -> None:
            async for line in peer.reader:
                wire.receive(json.loads(line))

        listening = asyncio.create_task(listen())
        try:
            yield wire
        finally:
            listening.cancel()
            await asyncio.wait([listening])


class Up(TaskStatus[None]):
    """Whether a server listens."""

    def __init__(self) -> None:
        self.is_up = asyncio.Event()

    def started(self, value: None = None) -> None:
        assert value is None
        self.is_up.set()


@asynccontextmanager
async def listening(tasks: Tasks, path: Path) -> AsyncGenerator[None]:
    """A server in this process that listens there."""
    async with anyio.create_task_group() as group:
        await group.start(tasks.serve_unix, path)
        yield
        group.cancel_scope.cancel()


async def until_up(path: Path, process: asyncio.subprocess.Process | None = None) -> None:
    """Until a server of another process listens, which there is nothing to wait on for but time."""
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
    """A Python program of its own, which is killed in the end if it has not ended."""
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
