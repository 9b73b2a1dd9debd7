"""What must hold for every answer, whatever was sent. Each check returns sentences about what is wrong."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from tests.adversary.fuzz.values import fields_of, paths
from tests.adversary.served.http import HttpResponse, events

INTERNALS = (b"Traceback (most recent call last)", b"site-packages", b'File "/', b"raincheck/src", b"sqlite3.")
"""Texts that only the inside of the server knows."""

EXPECTED_CRASHES = ("crash",)
"""Tools that raise on purpose."""

EXPECTED_RECORDS = (
    "handler for 'prompts/get' raised",
    "Unknown prompt",  # which the SDK answers well
    "opentelemetry/",  # the SDK takes any value for a trace context
    "flow_functions:fail",
)
"""Errors that the SDK logs by itself, and those of functions that raise on purpose."""

NO_ID_CODES = (-32700, -32600, -32020, -32022)
"""Errors of messages whose id may not have been read: no JSON, no message, headers of another message."""

PLAIN_STATUSES = (307, 400, 403, 404, 405, 406, 409, 411, 413, 415, 421, 431)
"""HTTP statuses that the transport documents, whose body need not be JSON-RPC. The first is for a path with a slash."""

MAX_SHOWN = 700

MAX_DEPTH = 100

MAX_LOST = 32_768
"""Bytes of a request that a server receives as a whole before it answers."""

_UNEXPECTED = re.compile(rb"tool '([^']*)' failed unexpectedly")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def parse(data: bytes) -> Any:
    """Parse strict JSON.

    Raises:
        ValueError: it is not JSON, or not UTF-8.
    """
    return json.loads(data.decode("utf-8"), parse_constant=_refuse)


def shorten(data: bytes) -> str:
    """Return the beginning of what was sent, as a literal, and how long it was."""
    return repr(data) if len(data) <= MAX_SHOWN else f"{data[:MAX_SHOWN]!r}... ({len(data)} bytes)"


def leaks(data: bytes, secrets: Mapping[str, bytes]) -> list[str]:
    """Find secrets by what they are, and internals of the server."""
    found = [f"leaks {what}" for what, secret in secrets.items() if secret in data]
    found += [f"shows internals: {text.decode()!r}" for text in INTERNALS if text in data]
    tools = {tool.decode(errors="replace") for tool in _UNEXPECTED.findall(data)} - set(EXPECTED_CRASHES)
    return found + [f"tool {tool!r} failed unexpectedly" for tool in sorted(tools)]


def is_answer(message: Any) -> bool:
    return isinstance(message, dict) and "method" not in message


def message_faults(message: Any) -> list[str]:
    """Check one JSON-RPC message that the server sent."""
    if not isinstance(message, dict):
        return [f"is no JSON-RPC object but {type(message).__name__}"]
    fields = fields_of(message)
    faults = [] if fields.get("jsonrpc") == "2.0" else ["has no jsonrpc 2.0"]
    if "method" in fields:
        return faults if isinstance(fields["method"], str) else [*faults, "has a method that is no text"]
    if ("result" in fields) == ("error" in fields):
        return [*faults, "has not exactly one of result and error"]
    if "id" not in fields:
        faults.append("answers without an id")
    if "error" in fields:
        faults += _error_faults(fields["error"])
    elif not isinstance(fields["result"], dict):
        faults.append("has a result that is no object")
    return faults


def _error_faults(error: Any) -> list[str]:
    if not isinstance(error, dict):
        return ["has an error that is no object"]
    code, text = fields_of(error).get("code"), fields_of(error).get("message")
    faults = [] if isinstance(code, int) and not isinstance(code, bool) else [f"has an error code {code!r}"]
    return faults if isinstance(text, str) else [*faults, "has an error without a message"]


def owed_id(body: bytes) -> str | int | None:
    """Return the id of a request that must be answered under it, or None: the body is something else.

    Lone surrogates and deep nesting are JSON to some parsers only, so a server may refuse the message as a whole.
    """
    try:
        message = json.loads(body.decode())
        json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    fields = fields_of(message)
    if not fields or max(map(len, paths(fields))) > MAX_DEPTH:
        return None
    id_, is_request = fields.get("id"), fields.get("jsonrpc") == "2.0" and isinstance(fields.get("method"), str)
    has_id = isinstance(id_, str | int) and not isinstance(id_, bool)
    has_params = "params" not in fields or isinstance(fields["params"], dict)
    return id_ if is_request and has_id and has_params else None


def response_faults(body: bytes, response: HttpResponse, size: int, is_post: bool, may_wait: bool) -> list[str]:
    """Check the response to a request of this size, whose body was this."""
    if response.problem:
        return [f"is not HTTP: {response.problem}"]
    # A large request may be answered before the server has read it. The answer is lost if the connection then breaks.
    is_lost = response.is_reset and size > MAX_LOST
    if not response.status:
        return [] if may_wait or is_lost else ["was never answered"]
    if response.status >= 500:
        return [f"was answered with HTTP {response.status}: {response.body[:300]!r}"]
    if not response.is_complete:
        return [] if may_wait or is_lost else ["was answered in part"]
    if response.content_type == "text/event-stream":
        return _stream_faults(events(response.body), owed_id(body), may_wait=may_wait or not is_post)
    return _body_faults(body, response) if is_post or response.body else []


def _stream_faults(sent: Iterable[bytes], owed: str | int | None, *, may_wait: bool) -> list[str]:
    messages, faults = parse_all(sent)
    answers = [message for message in messages if is_answer(message)]
    if len(answers) > 1:
        faults.append(f"was answered {len(answers)} times")
    if not answers and not may_wait:
        faults.append("ended its stream without an answer")
    return faults + [fault for answer in answers for fault in _id_faults(answer, owed)]


def parse_all(sent: Iterable[bytes]) -> tuple[list[Any], list[str]]:
    """Parse messages, and check each."""
    messages: list[Any] = []
    faults: list[str] = []
    for data in sent:
        try:
            message = parse(data)
        except ValueError as error:
            faults.append(f"was answered with what is no JSON: {error}: {data[:100]!r}")
            continue
        messages.append(message)
        faults += message_faults(message)
    return messages, faults


def _body_faults(body: bytes, response: HttpResponse) -> list[str]:
    owed = owed_id(body)
    if response.status == 202 and not response.body:
        return [] if owed is None else ["was accepted as a notification, and not answered"]
    if response.content_type != "application/json":
        if response.status in PLAIN_STATUSES:
            return []
        return [f"was answered with HTTP {response.status} and {response.content_type!r}: {response.body[:100]!r}"]
    messages, faults = parse_all([response.body])
    for message in messages:
        faults += [] if is_answer(message) else ["was answered with a message that is no answer"]
        faults += _id_faults(message, owed)
    return faults


def _id_faults(answer: Any, owed: str | int | None) -> list[str]:
    id_ = fields_of(answer).get("id")
    if owed is None or (id_ == owed and type(id_) is type(owed)):
        return []
    code = fields_of(fields_of(answer).get("error")).get("code")
    return [] if id_ is None and code in NO_ID_CODES else [f"was answered under the id {id_!r}, not {owed!r}"]


def connection_faults(sent: Sequence[bytes], answers: Iterable[Any], excused: Iterable[str | int]) -> list[str]:
    """Check the answers on a connection that carries many lines, of which some may stay unanswered."""
    lines: dict[str | int, bytes] = {id_: line for line in sent if (id_ := owed_id(line)) is not None}
    allowed = Counter(id_ for line in sent for id_ in _possible_ids(line))
    given = Counter[str | int]()
    for answer in answers:
        id_ = fields_of(answer).get("id")
        if isinstance(id_, str | int):
            given[id_] += 1
    faults = [
        f"a request was sent {allowed[id_]} times, and answered {count} times: {shorten(lines.get(id_, b''))}"
        for id_, count in given.items()
        if count > allowed[id_]
    ]
    may_wait = set(excused)
    missing = [id_ for id_ in lines if not given[id_] and id_ not in may_wait]
    return faults + [f"a request was never answered: {shorten(lines[id_])}" for id_ in missing]


def _possible_ids(line: bytes) -> list[str | int]:
    """Return the id under which a line may be answered: some readers replace what is not UTF-8."""
    try:
        message = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return []
    id_ = fields_of(message).get("id")
    return [id_] if isinstance(id_, str | int) else []


def log_faults(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Find records of errors, except for those of tools that raise on purpose."""
    faults: Counter[str] = Counter()
    for record in records:
        text = json.dumps(record)
        is_error = record.get("level") in ("ERROR", "CRITICAL") or "Traceback" in text
        is_expected = record.get("tool") in EXPECTED_CRASHES or any(part in text for part in EXPECTED_RECORDS)
        # A repetition does not show its error again.
        if is_error and not is_expected and "repeated" not in record:
            message, exception = str(record.get("message", "")), str(record.get("exception", ""))
            faults[f"the log has an error: {message[:300]} {exception[-1200:]}"] += 1
    return [f"{fault} ({count} times)" for fault, count in faults.items()]
