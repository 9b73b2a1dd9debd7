"""Encode a position in a list as a signed cursor, so that no caller can forge one or use another owner's."""

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
"""The store's secret for signatures. Any process on the store reads what another process wrote."""

MAX_CURSOR_LENGTH = 1_000
TAG_SIZE = 16


def write_cursor(position: PageCursor, owner: Owner, namespace: str, key: bytes) -> str:
    """Return a cursor for this position, which only this owner can use."""
    place = json.dumps([position.created_at.isoformat(), position.task_id]).encode()
    return base64.urlsafe_b64encode(_sign(place, owner, namespace, key) + place).decode().rstrip("=")


def read_cursor(cursor: object, owner: Owner, namespace: str, key: bytes) -> PageCursor:
    """Return the position in a list that a caller's cursor names.

    Raises:
        InvalidValue: the cursor was not given to this owner.
    """
    if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR_LENGTH:
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        tag, place = raw[:TAG_SIZE], raw[TAG_SIZE:]
        # A position with a valid signature was written here, so it can be read.
        if place and hmac.compare_digest(tag, _sign(place, owner, namespace, key)):
            created_at, task_id = json.loads(place)
            return PageCursor(datetime.fromisoformat(created_at), TaskId(task_id))
    raise InvalidValue("params.cursor is none that you were given: use the nextCursor of the page before, as it is")


def _sign(place: bytes, owner: Owner, namespace: str, key: bytes) -> bytes:
    whose = json.dumps([namespace, owner.key]).encode()
    return hmac.new(key, whose + b"\0" + place, hashlib.sha256).digest()[:TAG_SIZE]
