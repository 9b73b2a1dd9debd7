"""Streamable HTTP transport: each message is a POST, and a GET stream receives unsolicited messages."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx2
from httpx2 import EventSource, ServerSentEvent

from raincheck.conformance.connection import CommunicationError, Message, RpcConnection, Transport, parse, shorten

RECONNECT_DELAY = 1.0
"""Seconds before a stream that ended is reopened, if the server sends no `retry`."""

NOT_FOUND = 404
EVENTS = "text/event-stream"
LOCAL_HOSTS = {"127.0.0.1", "::1", "localhost"}


class HttpTransport(Transport):
    """One HTTP session. Every request carries the session id that the server assigned."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        # A proxy from the environment can't reach local addresses.
        trust = urlsplit(url).hostname not in LOCAL_HOSTS
        self._client = httpx2.AsyncClient(headers=dict(headers), timeout=None, trust_env=trust, follow_redirects=True)
        self._session: dict[str, str] = {}
        self._inbox: RpcConnection | None = None
        self._running: dict[int | str, asyncio.Task[None]] = {}

    async def open(self, inbox: RpcConnection) -> None:
        self._inbox = inbox

    def set_protocol_version(self, version: str) -> None:
        self._session["MCP-Protocol-Version"] = version

    async def listen(self) -> None:
        opened = asyncio.Event()
        self._running["GET"] = asyncio.create_task(self._listen(opened))
        # Some servers do not send response headers before their first message.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(opened.wait(), RECONNECT_DELAY)

    async def send(self, message: Message) -> None:
        if "method" in message and "id" in message:
            exchange = self._running[message["id"]] = asyncio.create_task(self._exchange(message))
            exchange.add_done_callback(lambda _: self._running.pop(message["id"], None))
        else:
            await self._send_one_way(message)

    async def abort_request(self, request_id: int) -> None:
        if (exchange := self._running.get(request_id)) is not None:
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)

    def is_stream_open(self, request_id: int) -> bool:
        return request_id in self._running

    async def close(self) -> None:
        running = list(self._running.values())
        for background_task in running:
            background_task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if "MCP-Session-Id" in self._session:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(RECONNECT_DELAY):
                    await self._client.delete(self._url, headers=self._session)
        await self._client.aclose()

    @property
    def _sink(self) -> RpcConnection:
        assert self._inbox is not None
        return self._inbox

    def _post(self, message: Message) -> "contextlib.AbstractAsyncContextManager[httpx2.Response]":
        headers = {"Accept": f"application/json, {EVENTS}", "Content-Type": "application/json", **self._session}
        return self._client.stream("POST", self._url, content=json.dumps(message), headers=headers)

    async def _send_one_way(self, message: Message) -> None:
        """Send a message that has no response."""
        name = message.get("method", "the answer to a request of the server")
        try:
            async with self._post(message) as response:
                if response.is_error:
                    raise CommunicationError(f"the server rejected {name}: {await _describe(response)}")
        except httpx2.HTTPError as error:
            raise CommunicationError(f"{name} could not be sent: {error or type(error).__name__}") from error

    async def _exchange(self, message: Message) -> None:
        """Send a request, and receive messages until its response arrives."""
        request_id: int = message["id"]
        try:
            async with self._post(message) as response:
                if message["method"] == "initialize" and "mcp-session-id" in response.headers:
                    self._session["MCP-Session-Id"] = response.headers["mcp-session-id"]
                elif response.status_code == NOT_FOUND and self._session:
                    self._sink.connection_lost(f"the server has ended the session: {await _describe(response)}")
                    return
                if not response.headers.get("content-type", "").startswith(EVENTS):
                    await self._receive_body(response, request_id)
                    return
                answered, last = await self._receive_events(response, EVENTS, stream_request_id=request_id)
            while not answered and last.id:  # the server may close the connection before the stream ends
                await asyncio.sleep(RECONNECT_DELAY if last.retry is None else last.retry / 1_000)
                answered, last = await self._resume(last, request_id)
            self._sink.fail_request(request_id, "its stream ended without a response")
        except Exception as error:  # noqa: BLE001 - whatever the error is, the check that waits for the response gets it
            self._sink.fail_request(request_id, f"the server could not be reached: {error or type(error).__name__}")

    async def _receive_body(self, response: httpx2.Response, request_id: int) -> None:
        text = (await response.aread()).decode("utf-8", "replace")
        try:
            message = parse(text)
        except ValueError:
            self._sink.fail_request(request_id, await _describe(response))
            return
        if message.get("id") is None and "error" in message:
            # An error without an id, in the HTTP response to this request.
            message = {**message, "id": request_id}
        self._sink.receive(message, response.headers.get("content-type", "").partition(";")[0].strip(), request_id)
        self._sink.fail_request(request_id, f"the server sent {shorten(text)} instead")

    async def _receive_events(
        self,
        response: httpx2.Response,
        source: str,
        last: ServerSentEvent | None = None,
        stream_request_id: int | None = None,
    ) -> tuple[bool, ServerSentEvent]:
        """Receive the messages of a stream. Returns whether one was a response, and the event to resume after."""
        last = last or ServerSentEvent()
        answered = False
        # Events are always UTF-8, whatever the header says.
        response.encoding = "utf-8"
        async for event in EventSource(response, max_event_size=None):
            last = ServerSentEvent(id=event.id or last.id, retry=last.retry if event.retry is None else event.retry)
            if not event.data:
                continue
            try:
                message = parse(event.data)
            except ValueError:
                self._sink.receive_malformed(event.data)
            else:
                self._sink.receive(message, source, stream_request_id)
                answered = answered or "method" not in message
        return answered, last

    async def _resume(self, last: ServerSentEvent, stream_request_id: int) -> tuple[bool, ServerSentEvent]:
        async with self._client.stream("GET", self._url, headers=self._resume_headers(last)) as response:
            if response.is_error:
                return False, ServerSentEvent()
            return await self._receive_events(response, EVENTS, last, stream_request_id)

    async def _listen(self, opened: asyncio.Event) -> None:
        """Receive unsolicited messages for as long as the connection is open."""
        last = ServerSentEvent()
        try:
            while True:
                async with self._client.stream("GET", self._url, headers=self._resume_headers(last)) as response:
                    opened.set()
                    if response.is_error or not response.headers.get("content-type", "").startswith(EVENTS):
                        return  # the server offers no GET stream, which is allowed
                    _, last = await self._receive_events(response, "GET stream", last)
                await asyncio.sleep(RECONNECT_DELAY if last.retry is None else last.retry / 1_000)
        except httpx2.HTTPError:
            pass  # the next request shows whether the server is gone
        finally:
            opened.set()

    def _resume_headers(self, last: ServerSentEvent) -> dict[str, str]:
        return {"Accept": EVENTS, **({"Last-Event-ID": last.id} if last.id else {}), **self._session}


async def _describe(response: httpx2.Response) -> str:
    body = (await response.aread()).decode("utf-8", "replace").strip()
    return f"HTTP {response.status_code}, {shorten(body) or 'empty body'}"
