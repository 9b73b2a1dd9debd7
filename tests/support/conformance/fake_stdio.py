"""Serves the fake server on stdio: `python fake_stdio.py [NAME OF A FAULT]`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

# A script can import only from its own folder.
sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import Message


class StdioSession:
    """The session of the only client of a process."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.owner = "local"
        self.capabilities: Message = {}
        self._writer = writer

    async def send(self, message: Message, of: object = None) -> None:
        del of
        self.write(json.dumps(message))
        await self._writer.drain()

    def write(self, line: str) -> None:
        self._writer.write(line.encode() + b"\n")


async def serve(server: FakeServer) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    session = StdioSession(asyncio.StreamWriter(transport, protocol, None, loop))
    async for line in reader:
        await server.handle(session, json.loads(line))
    await server.close()


def make(name: str) -> FakeServer:
    if not name:
        return FakeServer()
    from tests.support.conformance.faults.all import FAULTS

    server: Any = FAULTS[name].server
    return server()


if __name__ == "__main__":
    asyncio.run(serve(make(sys.argv[1] if len(sys.argv) > 1 else "")))
