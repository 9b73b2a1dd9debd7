"""Messages between a body's process and the engine: JSON objects, each after its length in four bytes.

The process is not trusted: what it sends is JSON of a bounded size or it is a `BadFrame`.
"""

import asyncio
import json
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn, TypeAlias, cast

from raincheck import errors
from raincheck.core.payload import Json, Payload, encode
from raincheck.errors import NotJson, RaincheckError, TooLarge

FRAME_LIMIT = 64 * 1024 * 1024
"""The most bytes of one message."""

_HEAD = 4
_RECEIVE = 1024 * 1024

Message: TypeAlias = dict[str, Any]
"""A message that came in: what JSON made of it, not looked at yet."""


class BadFrame(Exception):
    """What came over the connection is no message."""


def join(parts: Mapping[str, Payload]) -> Payload:
    """An object whose values are payloads, put in as they are: not written twice, nor counted as deeper than it is."""
    return Payload(b"{%b}" % b",".join(encode(name) + b":" + value for name, value in parts.items()))


def pack(parts: Mapping[str, Payload], *, what: str = "a message") -> bytes:
    """The frame of a message; `what` names it in the error.

    Raises:
        TooLarge: it is beyond the limit.
    """
    body = join(parts)
    if len(body) > FRAME_LIMIT:
        raise TooLarge(what, len(body), FRAME_LIMIT)
    return len(body).to_bytes(_HEAD, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> Message | None:
    """The next message, or None when there will be no more.

    Raises:
        BadFrame: it is none.
    """
    try:
        return _unpack(await reader.readexactly(_size(await reader.readexactly(_HEAD))))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_frame(connection: socket.socket) -> Message | None:
    """The same, for a thread that has nothing else to do."""
    head = _receive(connection, _HEAD)
    body = None if head is None else _receive(connection, _size(head))
    return None if body is None else _unpack(body)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        try:
            some = connection.recv(min(size - len(received), _RECEIVE))
        except OSError:
            return None
        if not some:
            return None
        received += some
    return bytes(received)


def _size(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    if size > FRAME_LIMIT:
        raise BadFrame(f"a message of {size:,} bytes was announced, and {FRAME_LIMIT:,} are allowed")
    return size


def _unpack(body: bytes) -> Message:
    try:
        message: object = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a message is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadFrame(f"a message is a JSON object, not {type(message).__name__}")
    return cast("Message", message)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def describe_error(error: Exception) -> dict[str, Json]:
    """One of our errors as JSON. Any other becomes the plainest of ours."""
    ours = next((kind for kind in type(error).__mro__ if errors.has(kind)), None)
    if ours is None:
        return {"type": RaincheckError.__name__, "message": plain_text(f"{type(error).__qualname__}: {error}")}
    facts = vars(error)
    return {
        "type": ours.__name__,
        "message": plain_text(str(error)),
        "attributes": {name: _as_json(value) for name, value in facts.items() if not name.startswith("_")},
        # JSON has no word for them, and whoever exceeds a quota wants to know when to try again.
        "durations": {name: value.total_seconds() for name, value in facts.items() if isinstance(value, timedelta)},
    }


def rebuild_error(document: object) -> RaincheckError:
    """The error that was described: the same class, the same message.

    Its own constructor is not called, which would want the facts that its message was made of.
    """
    known: Message = cast("Message", document) if isinstance(document, dict) else {}
    kind = getattr(errors, str(known.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, RaincheckError)):
        kind = RaincheckError
    error = kind.__new__(kind)
    Exception.__init__(error, str(known.get("message", "")))
    for name, value in _items(known.get("attributes")):
        # Never something that the class itself has, so that nothing can be put in the place of a method.
        if not name.startswith("_") and not hasattr(kind, name):
            setattr(error, name, value)
    for name, value in _items(known.get("durations")):
        if name in vars(error) and isinstance(value, int | float) and abs(value) < timedelta.max.total_seconds():
            setattr(error, name, timedelta(seconds=value))
    return error


def plain_text(text: str) -> str:
    """A text that UTF-8 can carry. The name of a file, in an error, need not be one."""
    return text.encode(errors="backslashreplace").decode()


def _as_json(value: object) -> Json:
    try:
        encode(cast("Json", value))
    except NotJson:
        return None
    return cast("Json", value)


def _items(mapping: object) -> list[tuple[str, object]]:
    return list(cast("Message", mapping).items()) if isinstance(mapping, dict) else []
