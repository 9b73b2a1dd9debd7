"""What is known about a task, as frozen records. All times are aware and in UTC.

`Task` is what rules look at and lists show; it is small on purpose. What may be large (arguments, outcome,
variables, steps, questions, artifacts) is read only where it is needed: `View` answers a poll, `Journal` begins
an attempt.

What belongs to a task besides its record: steps, questions, artifacts; and the two ways of reading it all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, NewType

from raincheck.core.lifecycle import TERMINAL, Event, Phase, Status, status_of
from raincheck.core.owner import Owner
from raincheck.core.payload import Payload
from raincheck.core.policies import DEFAULT_RETENTION, DEFAULT_RETRY, Retention, RetryPolicy
from raincheck.errors import InvalidValue

TaskId = NewType("TaskId", str)


def shorten_id(task_id: str) -> str:
    """Enough of an id to find its task by, and not enough to use it: the time, and a few characters that are random."""
    return f"{task_id[:20]}..."


@dataclass(frozen=True, slots=True, order=True)
class Tool:
    """A tool in one version: what a worker must have to run a task."""

    name: str
    version: str = "1"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run an attempt until a moment."""

    holder: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at running a task. Its number is the fence that its writes carry."""

    number: int
    started_at: datetime
    lease: Lease


@dataclass(frozen=True, slots=True)
class State:
    """Where a process is in its workflow. `number` counts its transitions, so no two stays have the same."""

    name: str
    since: datetime
    number: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work is. It never goes backwards and is never NaN or infinite."""

    done: float
    total: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "done", _amount("done", self.done))
        if self.total is not None:
            object.__setattr__(self, "total", _amount("total", self.total))


def _amount(name: str, value: float) -> float:
    try:
        amount = float(value)
    except OverflowError:
        amount = math.inf
    if not (math.isfinite(amount) and amount >= 0):
        raise InvalidValue(f"progress {name} must be a finite number of at least 0, not {amount}")
    return amount


@dataclass(frozen=True, slots=True)
class Task:
    """A task: an MCP call that got a handle.

    `version` rises with every change and is what a change is checked against; `fence` is the number of the
    latest attempt.
    """

    id: TaskId
    namespace: str
    owner: Owner
    tool: Tool
    created_at: datetime
    updated_at: datetime
    phase: Phase
    parent_id: TaskId | None = None
    idempotency_key: str | None = None
    priority: int = 0
    due_at: datetime | None = None
    """When a parked task goes back to the queue by itself; None while it waits for something else or does not
    wait."""
    deadline_at: datetime | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    retention: Retention = DEFAULT_RETENTION
    version: int = 1
    fence: int = 0
    failures: int = 0
    """How many attempts have gone wrong since a step was last finished."""
    attempt: Attempt | None = None
    pausing: bool = False
    """Somebody wants the running task paused; its attempt stops at its next checkpoint."""
    signals: int = 0
    """How many answers and ended children there have been. A park that has not seen them all does not park."""
    open_inputs: int = 0
    entries: int = 1
    """How many entries the history has."""
    progress: Progress | None = None
    status_message: str | None = None
    is_error: bool = False
    """The result of a completed task reports a tool error."""
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    state: State | None = None
    """Where the task is in its workflow, if it is a process."""
    subject: str | None = None
    """What a process is about, in its workflow's words: an order's number, a branch."""

    @property
    def is_terminal(self) -> bool:
        return self.phase in TERMINAL

    @property
    def shown_id(self) -> str:
        """The id for logs. Whoever has the whole id of an anonymous task has the right to it."""
        return self.id if self.owner.may_list else shorten_id(self.id)

    @property
    def status(self) -> Status:
        return status_of(self.phase, open_inputs=self.open_inputs)

    @property
    def ttl(self) -> timedelta | None:
        """What a caller may rely on, counted from creation; None where nothing bounds it."""
        if self.expires_at is not None:
            return self.expires_at - self.created_at
        return self.retention.promised_ttl(self.created_at, self.deadline_at)

    @property
    def overdue_at(self) -> datetime | None:
        """When its lease or its deadline passes, so that somebody should take it back or end it."""
        if self.is_terminal:
            return None
        ends = (self.deadline_at, None if self.attempt is None else self.attempt.lease.expires_at)
        return min((end for end in ends if end is not None), default=None)

    def is_overdue(self, now: datetime) -> bool:
        return self.overdue_at is not None and self.overdue_at <= now

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def evolve(self, **fields: object) -> "Task":
        """The same task with some fields set: `dataclasses.replace`, at a quarter of its cost."""
        values = list(_task_values(self))
        for name, value in fields.items():
            values[_TASK_INDEX[name]] = value
        return Task(*values)


_TASK_FIELDS = tuple(Task.__dataclass_fields__)
_TASK_INDEX = {name: index for index, name in enumerate(_TASK_FIELDS)}
_task_values: Callable[[Task], tuple[Any, ...]] = attrgetter(*_TASK_FIELDS)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of a task: what happened, when, by whom. `seq` counts from 1 without gaps."""

    seq: int
    at: datetime
    event: Event
    before: Phase | None
    after: Phase
    attempt: int
    """The number of the latest attempt at that moment; 0 before the first."""
    actor: str
    note: str | None = None
    """A few words: a reason that was given, the name of a step, the key of a question."""
    detail: Payload | None = None
    """For the operator: the error of an attempt that went wrong."""


@dataclass(frozen=True, slots=True)
class Step:
    """A finished checkpoint, found again by its name and how often that name was used before it."""

    name: str
    occurrence: int
    fingerprint: str
    """Tells the arguments it was run with from others."""
    result: Payload
    attempt: int
    finished_at: datetime


class InputKind(StrEnum):
    """What is asked of the caller."""

    ELICITATION = "elicitation"
    SAMPLING = "sampling"
    ROOTS = "roots"


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A question to the caller. Its key is unique for the task's life."""

    key: str
    kind: InputKind
    request: Payload
    asked_at: datetime
    attempt: int
    answer: Payload | None = None
    answered_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.answered_at is None


@dataclass(frozen=True, slots=True)
class Artifact:
    """An intermediate result, readable while the task works. Keeping one under the same name replaces it."""

    name: str
    content: Payload
    kept_at: datetime


@dataclass(frozen=True, slots=True)
class View:
    """What answers a poll, read at one moment: the task, its outcome if it has ended, its open questions if not."""

    task: Task
    outcome: Payload | None
    """The result of a completed task, the error of a failed one."""
    inputs: tuple[InputRequest, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """What an attempt begins with, read at one moment."""

    task: Task
    arguments: Payload
    caller: Payload | None
    variables: Payload | None
    steps: tuple[Step, ...]
    inputs: tuple[InputRequest, ...]
    artifacts: tuple[str, ...]
    """Their names. The content is read one by one."""

    def answer_to(self, key: str) -> Payload | None:
        """The answer to a question, if it has one."""
        return next((one.answer for one in self.inputs if one.key == key), None)
