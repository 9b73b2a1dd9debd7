"""Ways of 2025-11-25 to a server: messages go out one by one, and whatever comes is told with the stream it came on."""

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

from tests.support.server.transports import HttpWire, Message, StreamWire, in_memory, over_http, over_stdio

Receive = Callable[[Message, object], None]
"""Takes a message and the id of the request whose stream it came on; None for the connection's own."""

SESSION = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"


class G1Wire(Protocol):
    """A connection."""

    receive: Receive

    async def send(self, message: Message) -> None: ...

    async def reach(self, request_id: object) -> None:
        """Return when the server has got a request that was sent, as far as one can tell."""


class G1StreamWire:
    """A stream for everything, such as memory or the standard streams of a process."""

    def __init__(self, wire: StreamWire) -> None:
        self.wire = wire
        self.receive: Receive = _unexpected
        setattr(wire, "receive", self._pass_on)  # noqa: B010 - in the place of a method

    async def send(self, message: Message) -> None:
        await self.wire.send(message)

    async def reach(self, request_id: object) -> None:
        """What is sent on one stream comes in its order."""

    def _pass_on(self, message: Message) -> None:
        self.receive(message, None)


class G1HttpWire:
    """Streamable HTTP as of 2025: a session, a stream for each request, and one that is nobody's answer."""

    def __init__(self, url: str, client: httpx2.AsyncClient, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.client = client
        self.receive: Receive = _unexpected
        self.headers = {"accept": "application/json, text/event-stream", **(headers or {})}
        self.types: dict[object, str] = {}
        """What kind of body each request was answered with."""
        self.last_events: dict[object, str] = {}
        """The id of the last event of each stream, where the server keeps what it sends."""
        self._jobs: dict[object, asyncio.Task[None]] = {}
        self._begun: dict[object, asyncio.Event] = {}
        self._answered: set[object] = set()
        """The requests that have their answer. What becomes of their connections later is no answer."""

    async def send(self, message: Message) -> None:
        if "method" in message and "id" in message:
            self._start(message["id"], "POST", body=message)
            if message["method"] == "initialize":
                self.headers[VERSION_HEADER] = message["params"]["protocolVersion"]
            return
        response = await self.client.post(self.url, json=message, headers=self.headers)
        assert response.status_code == 202, response.text

    async def reach(self, request_id: object) -> None:
        # An answer in JSON begins when it is there.
        if any(kind == "text/event-stream" for stream, kind in self.types.items() if stream is not None):
            await self._begun[request_id].wait()

    async def listen(self) -> None:
        """Open the stream that is nobody's answer."""
        self._start(None, "GET")
        await self._begun[None].wait()

    async def drop(self, request_id: object) -> None:
        """Close the stream of a request, without a word to the server."""
        job = self._jobs.pop(request_id)
        job.cancel()
        await asyncio.wait([job])

    def resume(self, request_id: object) -> None:
        """Ask for what was sent on a stream since its last event came."""
        self._start(request_id, "GET", headers={"last-event-id": self.last_events[request_id]})

    async def end(self) -> None:
        """End the session, as a caller does that is done."""
        response = await self.client.delete(self.url, headers=self.headers)
        assert response.status_code == 200, response.text

    async def leave(self) -> None:
        """Close everything, without a word."""
        for request_id in list(self._jobs):
            await self.drop(request_id)

    def _start(self, stream: object, method: str, **options: Any) -> None:
        self._begun[stream] = asyncio.Event()
        self._jobs[stream] = asyncio.create_task(self._exchange(stream, method, **options))

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
                self._begun[stream].set()
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
    """An answer. What the transport refuses has no id, and a status of its own."""
    message: Message = json.loads(body)
    if message.get("id") is None:
        assert status >= 400, message
        message["error"]["data"] = {"status": status}
        message["id"] = stream
    return message


def _unexpected(message: Message, stream: object) -> None:
    raise AssertionError(f"nobody expects {message} on {stream}")


class Events(EventStore):
    """Keeps what was sent, for callers that come back."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.kept.append((stream_id, message))
        return str(len(self.kept) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream_id = self.kept[last][0]
        for number, (stream, message) in enumerate(self.kept):
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
"""The modes of Streamable HTTP. `http-events` keeps what it sends."""


@asynccontextmanager
async def g1_memory(server: MCPServer[Any] | Server[Any]) -> AsyncGenerator[G1StreamWire]:
    async with in_memory(server) as wire:
        yield G1StreamWire(wire)


@asynccontextmanager
async def g1_serving(server: MCPServer[Any], way: str = "http") -> AsyncGenerator[HttpWire]:
    """A server over HTTP, for as many connections as one likes."""
    events = Events() if way == "http-events" else None
    async with over_http(server.streamable_http_app(event_store=events, **HTTP_OPTIONS[way])) as wire:
        yield wire


@asynccontextmanager
async def g1_http(http: HttpWire, **headers: str) -> AsyncGenerator[G1HttpWire]:
    """One connection to it."""
    wire = G1HttpWire(http.url, http.client, headers)
    try:
        yield wire
    finally:
        await wire.leave()


@asynccontextmanager
async def g1_stdio(script: Path, *arguments: str, **environment: str) -> AsyncGenerator[G1StreamWire]:
    async with over_stdio(script, *arguments, **environment) as wire:
        yield G1StreamWire(wire)
