"""HTTP requests with hostile headers and bodies, of both generations."""

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.adversary.fuzz.messages import V2025, V2026, Knowledge, may_wait, some_message, with_new_id
from tests.adversary.fuzz.values import corrupt, encode, fields_of
from tests.adversary.served.http import request_bytes

NAMES = (
    b"mcp-method", b"mcp-name", b"mcp-protocol-version", b"mcp-session-id", b"authorization", b"content-type",
    b"accept", b"last-event-id", b"origin", b"host", b"x-forwarded-for", b"content-encoding", b"expect", b"cookie",
    b"traceparent", b"mcp-param-value", b"connection", b"upgrade", b"transfer-encoding", b"content-length",
)  # fmt: skip

CONTENTS = (
    b"", b" ", b"x", b"\xff\xfe", "é漢".encode(), b"a" * 8_000, b"a" * 70_000, b"*/*", b"text/html",
    b"application/json", b"text/event-stream", b"application/json; charset=utf-16", b"2025-11-25", b"2026-07-28",
    b"2099-01-01", b"-1", b"0", b"null", b"Bearer", b"Bearer ", b"Basic Og==", b"Bearer \xff",
    b"=?base64?dGFza3MvZ2V0?=", b"tools/call", b"tasks/get", b"gzip", b"100-continue", b"chunked", b"websocket",
    b"a\x00b", b"a\x0bb", b"\xe2\x80\xae", b"a, b", b"http://evil.example",
)  # fmt: skip

METHODS = (b"GET", b"DELETE", b"PUT", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"NONSENSE")

PATHS = (b"/mcp/", b"/", b"/mcp?x=1", b"//mcp", b"/mcp/../mcp", b"/%6dcp", b"/nothing", b"*", b"http://127.0.0.1/mcp")


@dataclass(frozen=True)
class HttpRequest:
    """One request, and what must be known of it to judge its response."""

    data: bytes
    body: bytes
    is_post: bool
    may_wait: bool


def fuzzed_request(random: Random, known: Knowledge, sessions: list[tuple[bytes, bytes]]) -> HttpRequest:
    """Return a request of a random generation, mostly of a caller with credentials.

    Sessions are pairs of an id and the authorization that it was made with.
    """
    version = random.choice((V2025, V2026))
    message = with_new_id(some_message(random, version, known), random)
    body = encode(random, message)
    waits = may_wait(message)
    if random.random() < 0.08:
        body = corrupt(random, body)
    headers = _headers(random, version, message, sessions)
    method, path = b"POST", b"/mcp"
    is_mutated = random.random() < 0.2
    if is_mutated:
        headers = _mutated(random, headers)
    if random.random() < 0.03:
        method = random.choice(METHODS)
    if random.random() < 0.02:
        path = random.choice(PATHS)
    # A response to other framing than that of the body can't be compared to the body.
    own_framing = any(name in (b"content-length", b"transfer-encoding", b"expect") for name, _ in headers)
    may_stay = waits or own_framing or method != b"POST"
    data = request_bytes(method, path, headers, body)
    return HttpRequest(data, body, method == b"POST" and not own_framing, may_stay)


def _headers(
    random: Random, version: str, message: Any, sessions: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    authorization = b"Bearer fuzzer-%d" % random.randrange(8)
    headers = [
        (b"host", b"127.0.0.1:80"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-protocol-version", version.encode()),
    ]
    if version == V2026:
        headers += _routing(message)
    elif sessions and random.random() < 0.9:
        session, authorization = random.choice(sessions)
        headers.append((b"mcp-session-id", session))
    return headers + ([(b"authorization", authorization)] if random.random() < 0.8 else [])


def _routing(message: Any) -> list[tuple[bytes, bytes]]:
    """Return the headers that repeat fields of the message."""
    fields = fields_of(fields_of(message).get("params"))
    named = fields.get("taskId", fields.get("name", fields.get("uri")))
    pairs = ((b"mcp-method", fields_of(message).get("method")), (b"mcp-name", named))
    return [(name, _encoded(value)) for name, value in pairs if isinstance(value, str)]


def _encoded(value: str) -> bytes:
    return bytes(byte for byte in value.encode(errors="replace") if byte not in b"\r\n\0")[:2_000]


def _mutated(random: Random, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    changed = list(headers)
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(changed)) if changed else 0
        new = (random.choice(NAMES), random.choice(CONTENTS))
        match random.randrange(4):
            case 0 if changed:
                del changed[at]
            case 1 if changed:
                changed[at] = (changed[at][0], random.choice(CONTENTS))
            case 2 if changed:
                changed.append(random.choice((changed[at], (changed[at][0].upper(), new[1]))))
            case _:
                changed.append(new)
    return changed
