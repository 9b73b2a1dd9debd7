"""Messages as they were sent over the wire, and the protocols between a connection and its transport.

Received messages are stored unchanged. A request is pending until its response arrives.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

PROTOCOL_VERSION = "2025-11-25"
Message = dict[str, Any]


@dataclass(frozen=True)
class ReceivedMessage:
    """A message from the server."""

    message: Message
    source: str
    """The channel that delivered it: a media type, `GET stream` or `stdio`."""

    stream_request_id: int | None
    """The id of the request on whose stream it arrived, if it arrived on one."""

    @property
    def stream(self) -> tuple[str, int | None]:
        """The stream on which it arrived. Messages on different streams have no order."""
        return self.source, self.stream_request_id

    @property
    def params(self) -> Message:
        params = self.message.get("params")
        return params if is_object(params) else {}


@dataclass
class History:
    """All messages received over successive connections."""

    received: list[ReceivedMessage] = field(default_factory=list[ReceivedMessage])
    malformed: list[str] = field(default_factory=list[str])
    """Received text that is not a message."""

    last_id: int = 0
    """The id of the last request. No id is used twice, so that each message belongs to one request."""


@dataclass(frozen=True)
class RpcResponse:
    """The response of the server to a request."""

    method: str
    message: Message
    source: str

    @property
    def error(self) -> Message | None:
        error = self.message.get("error")
        return error if is_object(error) else None

    @property
    def result(self) -> Message | None:
        result = self.message.get("result")
        return result if is_object(result) else None

    @property
    def code(self) -> object:
        return None if self.error is None else self.error.get("code")

    def __str__(self) -> str:
        if self.error is not None:
            return f"the error {self.error.get('code')} {self.error.get('message')!r}"
        return f"the result {shorten(self.message.get('result'))}"


@dataclass(eq=False)
class PendingRequest:
    """A request that was sent."""

    id: int
    method: str
    sent_at: float
    reply: asyncio.Future[RpcResponse] = field(repr=False)

    @property
    def is_answered(self) -> bool:
        return self.reply.done()


def is_object(value: object) -> TypeGuard[Message]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def parse(text: str) -> Message:
    """Parse a message; integers stay integers. Raises `ValueError` for anything that is not a JSON object."""

    def reject(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    message = json.loads(text, parse_constant=reject)
    if not is_object(message):
        raise ValueError(f"a message must be a JSON object, not {shorten(message)}")
    return message


def shorten(value: object, limit: int = 300) -> str:
    """Format a value as JSON for a message, cut to `limit` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else f"{text[:limit]}…"


class Transport(Protocol):
    """Carries messages to and from the server. Received messages go to the `MessageSink` it was opened with."""

    async def open(self, inbox: "MessageSink") -> None: ...

    def set_protocol_version(self, version: str) -> None:
        """Set the protocol version of all later messages."""
        ...

    async def listen(self) -> None:
        """Start to listen: the handshake is over, so the server may now send any message."""
        ...

    async def send(self, message: Message) -> None: ...

    async def abort_request(self, request_id: int) -> None:
        """Stop listening for the response to a request, without notifying the server. HTTP only."""
        ...

    def is_stream_open(self, request_id: int) -> bool:
        """Return whether the stream that a request opened is still open on the server."""
        ...

    async def close(self) -> None: ...


class MessageSink(Protocol):
    """Receives messages and failures from a transport."""

    def receive(self, message: Message, source: str, stream_request_id: int | None = None) -> None:
        """Accept a message, which arrived on the stream of a request if `stream_request_id` names one."""
        ...

    def receive_malformed(self, text: str) -> None:
        """Accept text that is not a JSON object."""
        ...

    def fail_request(self, request_id: int, reason: str) -> None:
        """Fail a request that will not be answered."""
        ...

    def connection_lost(self, reason: str) -> None:
        """Note that no more messages will arrive."""
        ...
