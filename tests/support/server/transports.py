"""Transports for raw messages: real HTTP, the SDK's streams in memory, the standard streams of a process."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage
from pydantic import TypeAdapter
from starlette.types import ASGIApp

from tests.support.http_server import running_app

Message = dict[str, Any]

_MESSAGE: TypeAdapter[Any] = TypeAdapter(JSONRPCMessage)


class Transport(Protocol):
    """Sends a request, and yields what the server sends for it: notifications, and the answer last."""

    def exchange(self, message: Message, headers: Mapping[str, str]) -> AsyncGenerator[Message]: ...


class HttpTransport:
    """Streamable HTTP."""

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self.url = url
        self.client = client
        self.last_status = 0
        self.last_type = ""

    async def exchange(self, message: Message, headers: Mapping[str, str]) -> AsyncGenerator[Message]:
        common = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        async with self.client.stream("POST", self.url, json=message, headers={**common, **headers}) as response:
            self.last_status, self.last_type = response.status_code, response.headers.get("content-type", "")
            if self.last_type.startswith("text/event-stream"):
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
            else:
                body = await response.aread()
                assert body, f"HTTP {response.status_code} without a body"
                yield json.loads(body)


class StreamTransport:
    """One connection for all requests: answers are matched by their ids, notifications by their subscription."""

    def __init__(self) -> None:
        self._inboxes: dict[object, asyncio.Queue[Message]] = {}

    async def send(self, message: Message) -> None:
        raise NotImplementedError

    def receive(self, message: Message) -> None:
        key = message.get("id")
        if key is None:
            key = message.get("params", {}).get("_meta", {}).get("io.modelcontextprotocol/subscriptionId")
        # A message without a request, such as progress, goes to all inboxes.
        for one in list(self._inboxes) if key is None else [key]:
            if one in self._inboxes:
                self._inboxes[one].put_nowait(message)

    async def exchange(self, message: Message, headers: Mapping[str, str]) -> AsyncGenerator[Message]:  # noqa: ARG002 - streams have none
        inbox = self._inboxes[message["id"]] = asyncio.Queue()
        is_answered = False
        try:
            await self.send(message)
            while not is_answered:
                messages = await inbox.get()
                is_answered = messages.get("id") == message["id"]
                yield messages
        finally:
            del self._inboxes[message["id"]]
            if not is_answered:
                params = {"requestId": message["id"]}
                await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


class MemoryTransport(StreamTransport):
    """The SDK's in-memory streams."""

    def __init__(self, write: Any) -> None:
        super().__init__()
        self._write = write

    async def send(self, message: Message) -> None:
        await self._write.send(SessionMessage(_MESSAGE.validate_python(message)))


class StdioTransport(StreamTransport):
    """The standard streams of a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process

    async def send(self, message: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()


@asynccontextmanager
async def in_memory(server: MCPServer[Any] | Server[Any]) -> AsyncGenerator[MemoryTransport]:
    """Connect to a server in this process."""
    lowlevel: Server[Any] = server if isinstance(server, Server) else getattr(server, "_lowlevel_server")  # noqa: B009 - it has no public name
    async with create_client_server_memory_streams() as ((read, write), (server_read, server_write)):
        serving = asyncio.create_task(
            lowlevel.run(server_read, server_write, lowlevel.create_initialization_options(), raise_exceptions=True)
        )
        wire = MemoryTransport(write)

        async def listen() -> None:
            async for item in read:
                assert isinstance(item, SessionMessage), item
                wire.receive(item.message.model_dump(by_alias=True, mode="json", exclude_none=True))

        listening = asyncio.create_task(listen())
        try:
            yield wire
        finally:
            listening.cancel()
            await asyncio.wait([listening])
            await write.aclose()
            await serving


@asynccontextmanager
async def over_http(app: ASGIApp, path: str = "/mcp") -> AsyncGenerator[HttpTransport]:
    """Serve over real HTTP on a free port, in this event loop, and connect."""
    async with running_app(app, path) as url, httpx2.AsyncClient(timeout=300, trust_env=False) as client:
        yield HttpTransport(url, client)


@asynccontextmanager
async def over_stdio(script: Path, *arguments: str, **environment: str) -> AsyncGenerator[StdioTransport]:
    """Start a program that serves on its standard streams."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    wire = StdioTransport(process)

    async def listen() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            wire.receive(json.loads(line))

    listening = asyncio.create_task(listen())
    try:
        yield wire
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 60)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        finally:
            listening.cancel()
            await asyncio.wait([listening])
