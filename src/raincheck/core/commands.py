"""Commands on a task. Each is decided by `decide`, which alone knows the rules.

Commands that only the running attempt may issue carry its number as `fence`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from raincheck.core.change import Creation
from raincheck.core.policies import NO_QUOTA, Quota
from raincheck.core.records import Artifact, InputRequest, Progress, Step
from raincheck.core.values import Payload


@dataclass(frozen=True, slots=True)
class Claim:
    """Start an attempt."""

    holder: str
    lease_for: timedelta


@dataclass(frozen=True, slots=True)
class Note:
    """Report from the running attempt. Fields that are not given remain unchanged."""

    fence: int
    progress: Progress | None = None
    status_message: str | None = None
    steps: tuple[Step, ...] = ()
    input_requests: tuple[InputRequest, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    variables: Payload | None = None
    spawned: tuple[Creation, ...] = ()
    """Children, and tasks that continue independently of this one (without a parent)."""
    quota: Quota = NO_QUOTA
    """The owner's quota, counted for each spawned task."""


@dataclass(frozen=True, slots=True)
class Park:
    """Release the worker until an answer, a child's end, or `until`.

    `seen_signals` is the task's signal count that the attempt knows of. If there have been more, the task does not park
    but returns to the queue, so that an answer that arrives in between is never missed.
    """

    fence: int
    seen_signals: int
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Release the attempt because the worker shuts down. A task that must not be run twice fails instead."""

    fence: int


@dataclass(frozen=True, slots=True)
class Yield:
    """Stop the attempt because the task is to be paused."""

    fence: int


@dataclass(frozen=True, slots=True)
class Complete:
    """End with a result."""

    fence: int
    result: Payload
    is_error: bool = False
    status_message: str | None = None
    spawned: tuple[Creation, ...] = ()
    """Tasks created with this task's completion. They are not children: their parent would have ended."""
    quota: Quota = NO_QUOTA
    """The owner's quota, counted for each spawned task."""
    state_number: int | None = None
    """The number of the state in which an instance reached this result. The command is valid only in that state."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Report that the attempt failed. The task's policy decides whether it is retried.

    `chance` is a random number from 0 to 1 for the jitter of the wait; `message` is shown to callers; `error` is the
    outcome if the task ends with it; `detail` is shown to the operator in the history (a traceback), and defaults to
    the error.
    """

    fence: int
    error: Payload
    message: str
    retryable: bool = True
    chance: float = 0.0
    detail: Payload | None = None
    state_number: int | None = None
    """The number of the state in which an instance failed. The command is valid only in that state."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The attempt's lease expired."""

    actor: str = "sweeper"


@dataclass(frozen=True, slots=True)
class Expire:
    """The task's deadline passed."""

    actor: str = "sweeper"


@dataclass(frozen=True, slots=True)
class Due:
    """The due time of a parked task has come."""

    actor: str = "sweeper"


@dataclass(frozen=True, slots=True)
class Signal:
    """A child ended, or opened an input request."""

    actor: str
    note: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers to open input requests, by key. `inputs` are the task's input requests as they were read."""

    inputs: tuple[InputRequest, ...]
    answers: Mapping[str, Payload]
    actor: str


@dataclass(frozen=True, slots=True)
class TakeTransition:
    """Move an instance from one state to another. `fence` is set if the running attempt does it.

    The transition was decided in the state `from_state`, the instance's `state_number`-th, and is valid only there.
    """

    action: str
    from_state: str
    state_number: int
    to_state: str
    actor: str
    reason: str | None = None
    variables: Payload | None = None
    """The instance's variables after the transition."""
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the task for good."""

    actor: str
    reason: str | None = None
    into: TakeTransition | None = None
    """The transition to make, if the task is an instance whose definition has one for cancellation."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause the task until it is resumed."""

    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume a paused task."""

    actor: str


AttemptCommand = Note | Park | Release | Yield | Complete | Fail
Command = AttemptCommand | Claim | Interrupt | Expire | Due | Signal | Answer | TakeTransition | Cancel | Pause | Resume
"""A request to change a task."""
