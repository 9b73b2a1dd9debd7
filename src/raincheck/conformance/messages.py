"""What goes over the wire: messages as they came, requests that wait for an answer, and what was answered.

What a transport owes a connection, and a connection a transport.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

VERSION = "2025-11-25"
Message = dict[str, Any]


@dataclass(frozen=True)
class Came:
    """A message of the server."""

    message: Message
    how: str
    """What brought it: a media type, `GET stream` or `stdio`."""

    of: int | None
    """The request whose stream it came on, if it was one of those."""

    @property
    def stream(self) -> tuple[str, int | None]:
        """Where it came. What comes in two places has no order."""
        return self.how, self.of

    @property
    def params(self) -> Message:
        params = self.message.get("params")
        return params if is_object(params) else {}


@dataclass
class History:
    """All that came over one connection after the other."""

    came: list[Came] = field(default_factory=list[Came])
    rubbish: list[str] = field(default_factory=list[str])
    """What came and is no message."""

    last_id: int = 0
    """The id of the last request: none is used twice, so that each message is of one request."""


@dataclass(frozen=True)
class Reply:
    """What the server answered to a request."""

    method: str
    message: Message
    how: str

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
class Pending:
    """A request that has been sent."""

    id: int
    method: str
    since: float
    reply: asyncio.Future[Reply] = field(repr=False)

    @property
    def is_answered(self) -> bool:
        return self.reply.done()


def is_object(value: object) -> TypeGuard[Message]:
    """Whether JSON had an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Whether JSON had an array."""
    return isinstance(value, list)


def parse(text: str) -> Message:
    """A message as it was written: integers stay integers. Raises `ValueError` for anything that is no JSON object."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    message = json.loads(text, parse_constant=refuse)
    if not is_object(message):
        raise ValueError(f"a message is a JSON object, and this is {shorten(message)}")
    return message


def shorten(value: object, limit: int = 300) -> str:
    """A value as JSON, for a message: its beginning if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else f"{text[:limit]}…"


class Transport(Protocol):
    """What carries messages. What comes is given to the `Inbox` that it was opened with."""

    async def open(self, inbox: "Inbox") -> None: ...

    def settle(self, version: str) -> None:
        """The version of everything that follows."""
        ...

    async def listen(self) -> None:
        """The handshake is over: from now on, the server may send what it likes."""
        ...

    async def send(self, message: Message) -> None: ...

    async def drop(self, request_id: int) -> None:
        """Stop listening for the answer to a request, without a word to the server. For HTTP only."""
        ...

    def listens(self, request_id: int) -> bool:
        """Whether the server still holds the stream open that a request opened."""
        ...

    async def close(self) -> None: ...


class Inbox(Protocol):
    """Where a transport puts what came."""

    def receive(self, message: Message, how: str, of: int | None = None) -> None:
        """A message came, on the stream that a request opened if `of` names one."""
        ...

    def garbage(self, text: str) -> None:
        """Something came that is not a JSON object."""
        ...

    def fail(self, request_id: int, why: str) -> None:
        """A request that will not be answered."""
        ...

    def gone(self, why: str) -> None:
        """Nothing will come any more."""
        ...
