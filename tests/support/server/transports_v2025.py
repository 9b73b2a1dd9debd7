"""Transports of 2025-11-25: messages are sent one by one, and received with the stream that they arrived on."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage

from tests.support.server.transports import HttpTransport, Message, StreamTransport, in_memory, over_http, over_stdio

Receive = Callable[[Message, object], None]
"""Receives a message and the id of the request whose stream it arrived on; None for the connection's own."""

SESSION = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"


class V2025Transport(Protocol):
    """A connection."""

    receive: Receive

    async def send(self, message: Message) -> None: ...

    async def reach(self, request_id: object) -> None:
        """Return when the server has received a sent request, as far as a client can know."""


class V2025StreamTransport:
    """A stream for everything, such as memory or the standard streams of a process."""

    def __init__(self, transport: StreamTransport) -> None:
        self.transport = transport
        self.receive: Receive = _unexpected
        setattr(transport, "receive", self._pass_on)  # noqa: B010 - in the place of a method

    async def send(self, message: Message) -> None:
        await self.transport.send(message)

    async def reach(self, request_id: object) -> None:
        """Nothing to wait for: messages on one stream arrive in order."""

    def _pass_on(self, message: Message) -> None:
        self.receive(message, None)


class V2025HttpTransport:
    """Streamable HTTP of 2025-11-25: a session, a stream for each request, and the connection's own stream."""

    def __init__(self, url: str, client: httpx2.AsyncClient, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.client = client
        self.receive: Receive = _unexpected
        self.headers = {"accept": "application/json, text/event-stream", **(headers or {})}
        self.types: dict[object, str] = {}
        """The content type of the response to each request."""
        self.last_events: dict[object, str] = {}
        """The id of the last event of each stream, where the server stores events."""
        self._exchanges: dict[object, asyncio.Task[None]] = {}
        self._response_started: dict[object, asyncio.Event] = {}
        self._answered: set[object] = set()
        """The requests that were answered. A later error of their connections is not an answer."""

    async def send(self, message: Message) -> None:
        if "method" in message and "id" in message:
            self._start(message["id"], "POST", body=message)
            if message["method"] == "initialize":
                self.headers[VERSION_HEADER] = message["params"]["protocolVersion"]
            return
        response = await self.client.post(self.url, json=message, headers=self.headers)
        assert response.status_code == 202, response.text

    async def reach(self, request_id: object) -> None:
        # A response in JSON starts only when the answer is complete.
        if any(kind == "text/event-stream" for stream, kind in self.types.items() if stream is not None):
            await self._response_started[request_id].wait()

    async def listen(self) -> None:
        """Open the connection's own stream."""
        self._start(None, "GET")
        await self._response_started[None].wait()

    async def drop(self, request_id: object) -> None:
        """Close the stream of a request without notifying the server."""
        exchange = self._exchanges.pop(request_id)
        exchange.cancel()
        await asyncio.wait([exchange])

    def resume(self, request_id: object) -> None:
        """Request the events of a stream since the last received one."""
        self._start(request_id, "GET", headers={"last-event-id": self.last_events[request_id]})

    async def end(self) -> None:
        """End the session."""
        response = await self.client.delete(self.url, headers=self.headers)
        assert response.status_code == 200, response.text

    async def leave(self) -> None:
        """Close all streams without notifying the server."""
        for request_id in list(self._exchanges):
            await self.drop(request_id)

    def _start(self, stream: object, method: str, **options: Any) -> None:
        self._response_started[stream] = asyncio.Event()
        self._exchanges[stream] = asyncio.create_task(self._exchange(stream, method, **options))

    async def _exchange(
        self,
        stream: object,
        method: str,
        *,
        headers: dict[str, str] | None = None,
        body: Message | None = None,
    ) -> None:
        try:
            all_headers = {**self.headers, **(headers or {})}
            async with self.client.stream(method, self.url, json=body, headers=all_headers, timeout=None) as response:
                if SESSION in response.headers:
                    self.headers[SESSION] = response.headers[SESSION]
                self.types[stream] = response.headers.get("content-type", "").partition(";")[0]
                self._response_started[stream].set()
                await self._read(stream, response)
        except httpx2.HTTPError as error:
            if stream is not None and stream not in self._answered:
                self._pass_on({"jsonrpc": "2.0", "id": stream, "error": {"code": 0, "message": repr(error)}}, stream)

    async def _read(self, stream: object, response: httpx2.Response) -> None:
        if self.types[stream] == "text/event-stream":
            await self._read_events(stream, response)
        else:
            self._pass_on(_with_id(await response.aread(), stream, response.status_code), stream)

    async def _read_events(self, stream: object, response: httpx2.Response) -> None:
        async for line in response.aiter_lines():
            field, _, value = line.partition(": ")
            if field == "id":
                self.last_events[stream] = value
            elif field == "data" and value:
                self._pass_on(json.loads(value), stream)

    def _pass_on(self, message: Message, stream: object) -> None:
        if "method" not in message:
            self._answered.add(message["id"])
        self.receive(message, stream)


def _with_id(body: bytes, stream: object, status: int) -> Message:
    """Parse an answer. An error of the transport has no id, and a status of its own."""
    message: Message = json.loads(body)
    if message.get("id") is None:
        assert status >= 400, message
        message["error"]["data"] = {"status": status}
        message["id"] = stream
    return message


def _unexpected(message: Message, stream: object) -> None:
    raise AssertionError(f"unexpected message {message} on {stream}")


class StoredEvents(EventStore):
    """Stores sent messages for callers that reconnect."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.messages.append((stream_id, message))
        return str(len(self.messages) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream_id = self.messages[last][0]
        for number, (stream, message) in enumerate(self.messages):
            if number > last and stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


HTTP_OPTIONS: dict[str, dict[str, Any]] = {
    "http": {},
    "http-events": {},
    "http-json": {"json_response": True},
    "http-stateless": {"stateless_http": True},
    "http-stateless-json": {"stateless_http": True, "json_response": True},
}
"""The modes of Streamable HTTP. `http-events` stores what it sends."""


@asynccontextmanager
async def v2025_memory(server: MCPServer[Any] | Server[Any]) -> AsyncGenerator[V2025StreamTransport]:
    async with in_memory(server) as transport:
        yield V2025StreamTransport(transport)


@asynccontextmanager
async def v2025_serving(server: MCPServer[Any], way: str = "http") -> AsyncGenerator[HttpTransport]:
    """Serve over HTTP, for any number of connections."""
    events = StoredEvents() if way == "http-events" else None
    async with over_http(server.streamable_http_app(event_store=events, **HTTP_OPTIONS[way])) as transport:
        yield transport


@asynccontextmanager
async def v2025_http(http: HttpTransport, **headers: str) -> AsyncGenerator[V2025HttpTransport]:
    """Yield one connection to it."""
    transport = V2025HttpTransport(http.url, http.client, headers)
    try:
        yield transport
    finally:
        await transport.leave()


@asynccontextmanager
async def v2025_stdio(script: Path, *arguments: str, **environment: str) -> AsyncGenerator[V2025StreamTransport]:
    async with over_stdio(script, *arguments, **environment) as transport:
        yield V2025StreamTransport(transport)
