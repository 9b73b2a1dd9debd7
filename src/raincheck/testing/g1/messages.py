"""What goes over the wire: messages as they came, requests that wait for an answer, and what was answered."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, TypeGuard

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
