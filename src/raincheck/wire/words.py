"""Words that both generations have in common: moments, durations, and what is stored, as JSON."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from raincheck.core.content import View
from raincheck.core.payload import Json, decode

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
