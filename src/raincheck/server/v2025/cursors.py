"""Encode a position in a list as a signed cursor, which a caller can neither forge nor use for another owner."""

import base64
import binascii
import hashlib
import hmac
import json
from datetime import datetime

from raincheck.core.owner import Owner
from raincheck.core.records import TaskId
from raincheck.errors import InvalidValue
from raincheck.stores.requests import PageCursor

KEY_NAME = "cursors"
"""Name of the store's secret that signs cursors. Every process on the store accepts the cursors of the others."""

MAX_CURSOR_LENGTH = 1_000
TAG_SIZE = 16


def write_cursor(position: PageCursor, owner: Owner, namespace: str, key: bytes) -> str:
    """Return a cursor for this position, which only this owner can use."""
    encoded = json.dumps([position.created_at.isoformat(), position.task_id]).encode()
    return base64.urlsafe_b64encode(_sign(encoded, owner, namespace, key) + encoded).decode().rstrip("=")


def read_cursor(cursor: object, owner: Owner, namespace: str, key: bytes) -> PageCursor:
    """Return the position in a list that a caller's cursor encodes.

    Raises:
        InvalidValue: the cursor was not issued to this owner.
    """
    if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR_LENGTH:
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        tag, encoded = raw[:TAG_SIZE], raw[TAG_SIZE:]
        # A position with a valid signature was written by write_cursor, so it can be parsed.
        if encoded and hmac.compare_digest(tag, _sign(encoded, owner, namespace, key)):
            created_at, task_id = json.loads(encoded)
            return PageCursor(datetime.fromisoformat(created_at), TaskId(task_id))
    raise InvalidValue(
        "params.cursor is not a cursor that was issued to you: pass the nextCursor of the previous page unchanged"
    )


def _sign(encoded: bytes, owner: Owner, namespace: str, key: bytes) -> bytes:
    scope = json.dumps([namespace, owner.key]).encode()
    return hmac.new(key, scope + b"\0" + encoded, hashlib.sha256).digest()[:TAG_SIZE]
