"""What may be stored: payloads, names, messages and times, made safe for any store or refused.

A payload is data from callers and tools, as bytes that are JSON or encrypted JSON, and nothing else. Its first byte
identifies its form. JSON text never starts with the byte 1, so that byte marks a sealed (encrypted) payload. Stores
save payloads unchanged and never parse them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NewType, NoReturn, TypeAlias

from raincheck.errors import InvalidValue, NotJson, PayloadSealed, TooLarge

NAME_LIMIT = 512
MESSAGE_LIMIT = 2_000


def check_name(name: str, *, what: str) -> None:
    """Check that a name can be stored unchanged.

    Raises:
        InvalidValue: it is empty or has characters that can't be stored.
        TooLarge: it is too long.
    """
    if not name:
        raise InvalidValue(f"{what} must not be empty")
    if len(name) > NAME_LIMIT:
        raise TooLarge(what, len(name), NAME_LIMIT, "characters")
    if "\0" in name or not _is_encodable(name):
        raise InvalidValue(f"{what} {name!r} has a NUL or a lone surrogate: remove it")


def check_aware(moment: datetime | None) -> None:
    """Check that a time can be compared with other times.

    Raises:
        InvalidValue: it has no time zone.
    """
    if moment is not None and moment.tzinfo is None:
        raise InvalidValue(f"{moment} has no time zone: use aware times, such as SystemClock().now()")


def clip(message: str | None) -> str | None:
    """Shorten and repair a message for people, rather than refuse it."""
    if message is None:
        return None
    if len(message) <= MESSAGE_LIMIT and message.isascii() and "\0" not in message:
        return message
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 1] + "…"
    message = message.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return message if _is_encodable(message) else message.encode(errors="replace").decode()


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value."""

Payload = NewType("Payload", bytes)
"""JSON in UTF-8, or its sealed form."""

SEAL = b"\x01"

DEPTH_LIMIT = 200
"""The maximum nesting of lists and objects."""

# Everything but brackets: strings, which may contain brackets, and all other text. Possessive, so that it uses no
# memory for a long text.
_NOT_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\[\]{}"]++')


def _refuse(value: object) -> NoReturn:
    """Raise for a value that is not JSON, with advice on how to convert it where there is a way."""
    kind = type(value).__name__
    if hasattr(value, "model_dump"):
        raise TypeError(f'a {kind} is a model, not JSON: pass its model_dump(mode="json")')
    if hasattr(value, "__dataclass_fields__"):
        raise TypeError(f"a {kind} is a dataclass, not JSON: pass dataclasses.asdict of it")
    raise TypeError(f"Object of type {kind} is not JSON serializable")


_to_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_refuse).encode


def encode(value: Json, *, what: str = "value") -> Payload:
    """Encode a JSON value; `what` names it in the error.

    Raises:
        NotJson: it contains something that JSON can't represent (NaN and infinities included).
    """
    try:
        text = _to_text(value)
        if text.count("[") + text.count("{") > DEPTH_LIMIT:
            _check_depth(text)
        return Payload(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"{what} can't be written as JSON: {error}") from error


def _check_depth(text: str) -> None:
    """Refuse a value that can be written here but might be nested too deeply to be read elsewhere."""
    depth = 0
    for bracket in _NOT_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > DEPTH_LIMIT:
            raise RecursionError(f"it is nested deeper than {DEPTH_LIMIT} levels")


def decode(payload: Payload) -> Json:
    """Decode the JSON value of a plain payload.

    Raises:
        PayloadSealed: it is encrypted.
        NotJson: it was not made by `encode`.
    """
    if payload.startswith(SEAL):
        raise PayloadSealed("this payload is encrypted: open the store with the key that sealed it")
    try:
        # From text: from bytes, the parser would first detect which of five encodings they use.
        value: Json = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise NotJson(f"this payload is not JSON: {error}") from error
    return value


def check_size(payload: Payload | None, limit: int, *, what: str) -> None:
    """Check that a value is a payload within its size limit.

    Raises:
        InvalidValue: it was not encoded.
        TooLarge: it has more bytes than `limit`.
    """
    if payload is None:
        return
    if not isinstance(payload, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        raise InvalidValue(f"{what} must be a payload, not {type(payload).__name__}: encode it first")
    if len(payload) > limit:
        raise TooLarge(what, len(payload), limit)
