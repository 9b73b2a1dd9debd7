"""Payloads: what callers and tools hand us, kept as bytes that are JSON or encrypted JSON, and nothing else.

A payload tells by its first byte what it is. JSON text never begins with the byte 1, so that byte marks a sealed
(encrypted) payload. Stores keep payloads as they are and never look inside.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NewType, NoReturn, TypeAlias

from raincheck.errors import InvalidValue, NotJson, PayloadSealed, TooLarge

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

Payload = NewType("Payload", bytes)
"""JSON in UTF-8, or the sealed form of it."""

SEAL = b"\x01"

DEPTH_LIMIT = 200
"""How many lists and objects may stand in each other."""

# Everything but brackets: strings, which may have brackets in them, and all else. Possessive, so that it takes no
# memory for a long text.
_NOT_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\[\]{}"]++')


def _refuse(value: object) -> NoReturn:
    """Say of what is no JSON what to do about it, if it can be made JSON."""
    kind = type(value).__name__
    if hasattr(value, "model_dump"):
        raise TypeError(f'a {kind} is a model, not JSON: give its model_dump(mode="json")')
    if hasattr(value, "__dataclass_fields__"):
        raise TypeError(f"a {kind} is a dataclass, not JSON: give dataclasses.asdict of it")
    raise TypeError(f"Object of type {kind} is not JSON serializable")


_to_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_refuse).encode


def encode(value: Json, *, what: str = "value") -> Payload:
    """The payload for a JSON value; `what` names it in the error.

    Raises:
        NotJson: it holds something that JSON can't carry (NaN and infinities included).
    """
    try:
        text = _to_text(value)
        _check_depth(text)
        return Payload(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"{what} can't be written as JSON: {error}") from error


def _check_depth(text: str) -> None:
    """Refuse what can be written here and might then be too deep to be read elsewhere."""
    if text.count("[") + text.count("{") <= DEPTH_LIMIT:
        return
    depth = 0
    for bracket in _NOT_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > DEPTH_LIMIT:
            raise RecursionError(f"it is nested deeper than {DEPTH_LIMIT} levels")


def decode(payload: Payload) -> Json:
    """The JSON value of a plain payload.

    Raises:
        PayloadSealed: it is encrypted.
        NotJson: it was not made by `encode`.
    """
    if payload.startswith(SEAL):
        raise PayloadSealed("this payload is encrypted: open the store with the key that sealed it")
    try:
        # As text: of bytes, it would find out first in which of five ways they are written.
        value: Json = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise NotJson(f"this payload is not JSON: {error}") from error
    return value


def check_size(payload: Payload | None, limit: int, *, what: str) -> None:
    """Refuse what is no payload, or one beyond its bound.

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
