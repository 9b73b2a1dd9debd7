"""Convert the fields that both generations share: timestamps, durations, stored JSON, input requests, workflow states.

A task's question becomes the request that its caller receives, which is the same in both generations. Neither
generation has a field for workflow states or for the reason of a refused cancel. A state's name is therefore sent in
the status message, for people, and in `_meta`, for programs.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict, assert_never

from raincheck.core.records import InputKind, InputRequest, Task, View
from raincheck.core.values import Json, decode
from raincheck.errors import CancelRefused

RELATED_TASK = "io.modelcontextprotocol/related-task"
"""The `_meta` key that names the task a message belongs to. A result inside its own task must not have it."""

INPUT_META_KEY = "raincheck/input-key"
"""The `_meta` key under which a 2025-11-25 input request carries its key. A repeated request has the same key."""

IDEMPOTENCY_META_KEY = "raincheck/idempotency-key"
"""The `_meta` key for the idempotency key of a call. The server runs calls with the same key only once."""

SUPPORTS_KEYS_META_KEY = "raincheck/takes-keys"
"""The `_meta` key that asks, in `tools/list`, which tools accept this caller's keys, and that marks such a tool."""

STATE_META_KEY = "raincheck/state"
"""The `_meta` key of every message about a workflow instance. Its value is the name of the instance's state."""

CANCEL_REFUSED_META_KEY = "raincheck/cancel-refused"
"""The `_meta` key of an acknowledged cancel without effect: `reason` for programs, `message` for people."""


def state_meta(task: Task) -> dict[str, Json]:
    """Return the `_meta` entry with the state of a workflow instance; empty for other tasks."""
    return {} if task.state is None else {STATE_META_KEY: task.state.name}


def describe_refusal(error: CancelRefused) -> Mapping[str, Json]:
    """Return the `_meta` value that explains why an instance can't be cancelled."""
    return {"reason": error.reason, "message": str(error)}


LARGEST_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""


def format_timestamp(when: datetime) -> str:
    if when.tzinfo is not UTC:
        when = when.astimezone(UTC)
    return when.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def to_milliseconds(duration: timedelta) -> int:
    """Round up to milliseconds, so that a reported duration is never shorter than the stored one."""
    return clamp_positive(-(-duration // timedelta(milliseconds=1)))


def clamp_positive(number: int) -> int:
    return min(max(1, int(number)), LARGEST_INTEGER)


def outcome_of(view: View) -> Json:
    return None if view.outcome is None else decode(view.outcome)


def as_object(value: Json) -> Mapping[str, Json]:
    """Return the value, or an empty object if it is not an object."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Json) -> Sequence[Json]:
    """Return the value, or an empty list if it is not an array."""
    return [] if isinstance(value, str) or not isinstance(value, Sequence) else value


MAX_TOKENS = 1_000
"""The token limit of a sampling request if the tool sets none. The protocol requires a limit."""


class CallerRequest(TypedDict):
    """A request that a server sends to its caller."""

    method: Literal["elicitation/create", "sampling/createMessage", "roots/list"]
    params: Mapping[str, Json]


def request_of(question: InputRequest) -> CallerRequest:
    """Return the protocol request of a question."""
    # Omit fields without a value: a strict reader distinguishes null from an absent field.
    params = {name: value for name, value in as_object(decode(question.request)).items() if value is not None}
    match question.kind:
        case InputKind.ELICITATION:
            return {"method": "elicitation/create", "params": _elicitation(params)}
        case InputKind.SAMPLING:
            return {"method": "sampling/createMessage", "params": {"maxTokens": MAX_TOKENS, **params}}
        case InputKind.ROOTS:
            return {"method": "roots/list", "params": params}
        case _:
            assert_never(question.kind)


def _elicitation(request: Mapping[str, Json]) -> Mapping[str, Json]:
    params: dict[str, Json] = {"mode": "form", "message": "", **request}
    if params["mode"] == "form":
        # A form needs both properties, even if it has no fields and only asks for consent.
        params["requestedSchema"] = {"type": "object", "properties": {}, **as_object(request.get("requestedSchema"))}
    return params
