"""What a task asks, as the request that its caller gets. Both generations ask in the same words.

Words that both generations have in common: moments, durations, and what is stored, as JSON.

Where a process is in its workflow, and why it can't be cancelled: what both generations say beside their words.

Neither has a word for states. The name is in the status message, for people, and in `_meta`, for programs.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict, assert_never

from raincheck.core.payload import Json, decode
from raincheck.core.records import InputKind, InputRequest, Task, View
from raincheck.errors import CancelRefused

STATE = "raincheck/state"
"""In the `_meta` of whatever tells of a process: the name of its state."""

REFUSED = "raincheck/cancel-refused"
"""In the `_meta` of an acknowledged cancel that came to nothing: `reason` for programs, `message` for people."""


def state_meta(task: Task) -> dict[str, Json]:
    """The state of a process, for `_meta`; nothing for other tasks."""
    return {} if task.state is None else {STATE: task.state.name}


def refusal(error: CancelRefused) -> Mapping[str, Json]:
    """Why a process goes on."""
    return {"reason": error.reason, "message": str(error)}


LARGEST_INTEGER = 2**53 - 1
"""Beyond it, a number is not the same for every reader of JSON."""


def moment(when: datetime) -> str:
    if when.tzinfo is not UTC:
        when = when.astimezone(UTC)
    return when.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def milliseconds(duration: timedelta) -> int:
    """Rounded up: what is told is never less than what is kept."""
    return positive(-(-duration // timedelta(milliseconds=1)))


def positive(number: int) -> int:
    return min(max(1, int(number)), LARGEST_INTEGER)


def outcome_of(view: View) -> Json:
    return None if view.outcome is None else decode(view.outcome)


def as_object(value: Json) -> Mapping[str, Json]:
    """The value, or nothing if it is no object."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Json) -> Sequence[Json]:
    """The value, or nothing if it is no array."""
    return [] if isinstance(value, str) or not isinstance(value, Sequence) else value


MAX_TOKENS = 1_000
"""What a model may answer where the tool does not say, because the protocol wants it said."""


class Request(TypedDict):
    """A request to a caller."""

    method: Literal["elicitation/create", "sampling/createMessage", "roots/list"]
    params: Mapping[str, Json]


def request_of(question: InputRequest) -> Request:
    """The request that asks it."""
    # A field without a value is left out: to a strict reader, null is something else than nothing.
    told = {name: value for name, value in as_object(decode(question.request)).items() if value is not None}
    match question.kind:
        case InputKind.ELICITATION:
            return {"method": "elicitation/create", "params": _elicitation(told)}
        case InputKind.SAMPLING:
            return {"method": "sampling/createMessage", "params": {"maxTokens": MAX_TOKENS, **told}}
        case InputKind.ROOTS:
            return {"method": "roots/list", "params": told}
        case _:
            assert_never(question.kind)


def _elicitation(told: Mapping[str, Json]) -> Mapping[str, Json]:
    params: dict[str, Json] = {"mode": "form", "message": "", **told}
    if params["mode"] == "form":
        # Both are required, also of a form that asks for nothing but a yes.
        params["requestedSchema"] = {"type": "object", "properties": {}, **as_object(told.get("requestedSchema"))}
    return params
