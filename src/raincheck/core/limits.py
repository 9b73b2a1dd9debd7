"""The bounds that keep one task, and one owner, from taking more than a share."""

from dataclasses import dataclass
from datetime import timedelta

KIB = 1_024
MIB = 1_024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one task: sizes in bytes of JSON, and counts."""

    arguments: int = 1 * MIB
    outcome: int = 8 * MIB
    caller: int = 64 * KIB
    step: int = 1 * MIB
    question: int = 64 * KIB
    answer: int = 256 * KIB
    variables: int = 64 * KIB
    artifact: int = 8 * MIB
    open_inputs: int = 100
    notes: int = 10_000
    """History entries after which an attempt's notes are no longer written to the history. The rest always is."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Bounds on one owner in one namespace, counted in the transaction that creates the task."""

    live: int | None = None
    created: int | None = None
    window: timedelta = timedelta(minutes=1)
