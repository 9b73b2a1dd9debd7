"""Payloads: what callers and tools hand us, kept as bytes that are JSON or encrypted JSON, and nothing else.

A payload tells by its first byte what it is. JSON text never begins with the byte 1, so that byte marks a sealed
(encrypted) payload. Stores keep payloads as they are and never look inside.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NewType, TypeAlias

from raincheck.errors import NotJson, PayloadSealed, TooLarge

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

Payload = NewType("Payload", bytes)
"""JSON in UTF-8, or the sealed form of it."""

SEAL = b"\x01"

_to_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode(value: Json, *, what: str = "value") -> Payload:
    """The payload for a JSON value; `what` names it in the error.

    Raises:
        NotJson: it holds something that JSON can't carry (NaN and infinities included).
    """
    try:
        return Payload(_to_text(value).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"{what} can't be written as JSON: {error}") from error


def decode(payload: Payload) -> Json:
    """The JSON value of a plain payload.

    Raises:
        PayloadSealed: it is encrypted.
    """
    if payload.startswith(SEAL):
        raise PayloadSealed("this payload is encrypted: open the store with the key that sealed it")
    value: Json = json.loads(payload)
    return value


def check_size(payload: Payload | None, limit: int, *, what: str) -> None:
    """Refuse a payload beyond its bound.

    Raises:
        TooLarge: it has more bytes than `limit`.
    """
    if payload is not None and len(payload) > limit:
        raise TooLarge(what, len(payload), limit)
