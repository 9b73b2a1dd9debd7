"""A server behind a URL, over Streamable HTTP: every message is a POST, and a GET hears what comes unasked.

Server-sent events, read byte by byte as they come: an event may be cut anywhere.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from raincheck.conformance.messages import Inbox, Message, parse, shorten
from raincheck.conformance.outcome import Trouble

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass
class Event:
    """One event: its data, and what a client needs to take the stream up again."""

    data: str = ""
    id: str | None = None
    retry: int | None = None


class EventParser:
    """Takes pieces of a stream, and gives the events that they complete."""

    # Not `str.splitlines`: it also splits where JSON may have a plain character, such as U+2028.

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._event = Event()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end in this piece."""
        self._rest += piece
        # A carriage return at the very end may be half of a line's end.
        whole = self._rest[:-1] if self._rest.endswith(b"\r") else self._rest
        start = 0
        for end in _LINE_END.finditer(whole):
            event = self._take_line(whole[start : end.start()].decode("utf-8", "replace"))
            start = end.end()
            if event is not None:
                yield event
        self._rest = self._rest[start:]

    def _take_line(self, line: str) -> Event | None:
        if not line:
            event, self._event = self._event, Event()
            event.data, self._data = "\n".join(self._data), []
            return event if event != Event() else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id":
            self._event.id = value
        elif name == "retry" and value.isdecimal():
            self._event.retry = int(value)
        return None


RETRY = 1.0
"""Seconds before a stream that ended is opened again, if the server does not say."""

NOT_FOUND = 404
EVENTS = "text/event-stream"
OURS = {"127.0.0.1", "::1", "localhost"}


class HttpTransport:
    """One session: what the server said its id is goes with every request."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        # A proxy for the rest of the world is no way to this machine.
        trust = urlsplit(url).hostname not in OURS
        self._client = httpx2.AsyncClient(headers=dict(headers), timeout=None, trust_env=trust, follow_redirects=True)
        self._session: dict[str, str] = {}
        self._inbox: Inbox | None = None
        self._jobs: dict[int | str, asyncio.Task[None]] = {}

    async def open(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def settle(self, version: str) -> None:
        self._session["MCP-Protocol-Version"] = version

    async def listen(self) -> None:
        opened = asyncio.Event()
        self._jobs["GET"] = asyncio.create_task(self._listen(opened))
        # Some servers begin to answer when they have something to say.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(opened.wait(), RETRY)

    async def send(self, message: Message) -> None:
        if "method" in message and "id" in message:
            job = self._jobs[message["id"]] = asyncio.create_task(self._exchange(message))
            job.add_done_callback(lambda _: self._jobs.pop(message["id"], None))
        else:
            await self._tell(message)

    async def drop(self, request_id: int) -> None:
        if (job := self._jobs.get(request_id)) is not None:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)

    def listens(self, request_id: int) -> bool:
        return request_id in self._jobs

    async def close(self) -> None:
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        if "MCP-Session-Id" in self._session:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(RETRY):
                    await self._client.delete(self._url, headers=self._session)
        await self._client.aclose()

    @property
    def _to(self) -> Inbox:
        assert self._inbox is not None
        return self._inbox

    def _post(self, message: Message) -> "contextlib.AbstractAsyncContextManager[httpx2.Response]":
        headers = {"Accept": f"application/json, {EVENTS}", "Content-Type": "application/json", **self._session}
        return self._client.stream("POST", self._url, content=json.dumps(message), headers=headers)

    async def _tell(self, message: Message) -> None:
        """Send what has no answer."""
        what = message.get("method", "the answer to a request of the server")
        try:
            async with self._post(message) as response:
                if response.is_error:
                    raise Trouble(f"{what} was refused: {await _describe(response)}")
        except httpx2.HTTPError as error:
            raise Trouble(f"{what} could not be sent: {error or type(error).__name__}") from error

    async def _exchange(self, message: Message) -> None:
        """Send a request, and take what comes until its answer is there."""
        request_id: int = message["id"]
        try:
            async with self._post(message) as response:
                if message["method"] == "initialize" and "mcp-session-id" in response.headers:
                    self._session["MCP-Session-Id"] = response.headers["mcp-session-id"]
                elif response.status_code == NOT_FOUND and self._session:
                    self._to.gone(f"the server has ended the session: {await _describe(response)}")
                    return
                if not response.headers.get("content-type", "").startswith(EVENTS):
                    await self._take_body(response, request_id)
                    return
                answered, last = await self._take_events(response, EVENTS, of=request_id)
            while not answered and last.id:  # the server may close the connection of a stream that goes on
                await asyncio.sleep(RETRY if last.retry is None else last.retry / 1_000)
                answered, last = await self._resume(last, request_id)
            self._to.fail(request_id, "its stream ended without an answer")
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an answer
            self._to.fail(request_id, f"the server could not be reached: {error or type(error).__name__}")

    async def _take_body(self, response: httpx2.Response, request_id: int) -> None:
        text = (await response.aread()).decode("utf-8", "replace")
        try:
            message = parse(text)
        except ValueError:
            self._to.fail(request_id, await _describe(response))
            return
        if message.get("id") is None and "error" in message:
            # An error that names no request, in the answer to this one.
            message = {**message, "id": request_id}
        self._to.receive(message, response.headers.get("content-type", "").partition(";")[0].strip(), request_id)
        self._to.fail(request_id, f"what came in its place was {shorten(text)}")

    async def _take_events(
        self, response: httpx2.Response, how: str, last: Event | None = None, of: int | None = None
    ) -> tuple[bool, Event]:
        """Take the messages of a stream: whether an answer was among them, and what it can be taken up after."""
        last = last or Event()
        answered = False
        async for event in _events(response):
            last = Event(id=event.id or last.id, retry=last.retry if event.retry is None else event.retry)
            if not event.data:
                continue
            try:
                message = parse(event.data)
            except ValueError:
                self._to.garbage(event.data)
            else:
                self._to.receive(message, how, of)
                answered = answered or "method" not in message
        return answered, last

    async def _resume(self, last: Event, of: int) -> tuple[bool, Event]:
        async with self._client.stream("GET", self._url, headers=self._listening(last)) as response:
            if response.is_error:
                return False, Event()
            return await self._take_events(response, EVENTS, last, of)

    async def _listen(self, opened: asyncio.Event) -> None:
        """Hear what comes unasked, for as long as the connection is open."""
        last = Event()
        try:
            while True:
                async with self._client.stream("GET", self._url, headers=self._listening(last)) as response:
                    opened.set()
                    if response.is_error or not response.headers.get("content-type", "").startswith(EVENTS):
                        return  # the server has no such stream, which it may
                    _, last = await self._take_events(response, "GET stream", last)
                await asyncio.sleep(RETRY if last.retry is None else last.retry / 1_000)
        except httpx2.HTTPError:
            pass  # requests will show whether the server is gone
        finally:
            opened.set()

    def _listening(self, last: Event) -> dict[str, str]:
        return {"Accept": EVENTS, **({"Last-Event-ID": last.id} if last.id else {}), **self._session}


async def _events(response: httpx2.Response) -> AsyncGenerator[Event]:
    parser = EventParser()
    async for piece in response.aiter_bytes():
        for event in parser.feed(piece):
            yield event


async def _describe(response: httpx2.Response) -> str:
    body = (await response.aread()).decode("utf-8", "replace").strip()
    return f"HTTP {response.status_code}, {shorten(body) or 'nothing in it'}"
