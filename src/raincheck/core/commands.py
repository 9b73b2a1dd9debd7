"""What can be asked of a task. Each is decided by `decide`, which alone knows the rules.

Those that only the running attempt may ask carry its number as `fence`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from raincheck.core.change import Creation
from raincheck.core.limits import NO_QUOTA, Quota
from raincheck.core.payload import Payload
from raincheck.core.records import Artifact, InputRequest, Progress, Step


@dataclass(frozen=True, slots=True)
class Claim:
    """Begin an attempt."""

    holder: str
    lease_for: timedelta


@dataclass(frozen=True, slots=True)
class Note:
    """Report from the running attempt. What is not given stays as it is."""

    fence: int
    progress: Progress | None = None
    status_message: str | None = None
    steps: tuple[Step, ...] = ()
    asked: tuple[InputRequest, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    variables: Payload | None = None
    spawned: tuple[Creation, ...] = ()
    """Children, and tasks that go on without this one (without a parent)."""
    quota: Quota = NO_QUOTA
    """What its owner may have, counted for each spawned task."""


@dataclass(frozen=True, slots=True)
class Park:
    """Stop holding a worker until an answer, a child's end, or `until`.

    `seen` is the task's count of signals that the attempt knows of. If there have been more, the task does not
    park but goes back to the queue, so that an answer that comes in between is never slept through.
    """

    fence: int
    seen: int
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Hand the attempt back: the worker shuts down. A task that must not be run twice fails instead."""

    fence: int


@dataclass(frozen=True, slots=True)
class Yield:
    """Stop here, because the task is to be paused."""

    fence: int


@dataclass(frozen=True, slots=True)
class Complete:
    """End with a result."""

    fence: int
    result: Payload
    is_error: bool = False
    status_message: str | None = None
    spawned: tuple[Creation, ...] = ()
    """Tasks that begin with this one's completion. They are no children: their parent would have ended."""
    quota: Quota = NO_QUOTA
    """What its owner may have, counted for each spawned task."""
    stay: int | None = None
    """The number of the state in which a process came to that. It holds only there."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt went wrong. Whether the task tries again is decided by its policy.

    `chance` is a random number from 0 to 1 for the wait's jitter; `message` is what callers may read; `error` is the
    outcome if the task ends with it; `detail` is what the operator reads in the history (a traceback), and is the
    error where it is not given.
    """

    fence: int
    error: Payload
    message: str
    retryable: bool = True
    chance: float = 0.0
    detail: Payload | None = None
    stay: int | None = None
    """The number of the state in which a process came to that. It holds only there."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The attempt's lease ran out."""

    actor: str = "sweeper"


@dataclass(frozen=True, slots=True)
class Expire:
    """The task's deadline passed."""

    actor: str = "sweeper"


@dataclass(frozen=True, slots=True)
class Due:
    """The moment a parked task waited for has come."""

    actor: str = "sweeper"


@dataclass(frozen=True, slots=True)
class Signal:
    """A child ended, or asks something."""

    actor: str
    note: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers to open questions, by key. `inputs` are the task's questions as they were read."""

    inputs: tuple[InputRequest, ...]
    answers: Mapping[str, Payload]
    actor: str


@dataclass(frozen=True, slots=True)
class Transition:
    """Take a process from one state to another. `fence` is given where the running attempt does it.

    It was decided in the state `before`, the process's `number`-th, and holds only there.
    """

    action: str
    before: str
    number: int
    to: str
    actor: str
    reason: str | None = None
    variables: Payload | None = None
    """What the process knows from then on."""
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the task for good."""

    actor: str
    reason: str | None = None
    into: Transition | None = None
    """Where it leads, if the task is a process whose definition says so."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Hold the task back until it is resumed."""

    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a paused task go on."""

    actor: str


AttemptCommand = Note | Park | Release | Yield | Complete | Fail
Command = AttemptCommand | Claim | Interrupt | Expire | Due | Signal | Answer | Transition | Cancel | Pause | Resume
