"""Records of a task, as frozen dataclasses. All times are timezone-aware and in UTC.

`Task` is what rules read and lists show; it is small on purpose. The parts that may be large (arguments, outcome,
variables, steps, input requests, artifacts) are read only where they are needed: `View` answers a poll, `Journal`
starts an attempt.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, NewType

from raincheck.core.lifecycle import TERMINAL_PHASES, Event, Phase, Status, status_of
from raincheck.core.owner import Owner
from raincheck.core.policies import DEFAULT_RETENTION, DEFAULT_RETRY, Retention, RetryPolicy
from raincheck.core.values import Payload
from raincheck.errors import InvalidValue

TaskId = NewType("TaskId", str)
"""The id of a task."""


def shorten_id(task_id: str) -> str:
    """Shorten a task id so that it identifies the task but grants no access: the time and a few random characters."""
    return f"{task_id[:20]}..."


@dataclass(frozen=True, slots=True, order=True)
class Tool:
    """A tool in one version. A worker must have exactly this version to run the task."""

    name: str
    version: str = "1"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run an attempt until a given time."""

    holder: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at running a task. Its number is the fence that its writes carry."""

    number: int
    started_at: datetime
    lease: Lease


@dataclass(frozen=True, slots=True)
class InstanceState:
    """The state of an instance in its workflow. `number` counts its transitions, so each stay has its own number."""

    name: str
    since: datetime
    number: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a task. It never goes backwards and is never NaN or infinite."""

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

    `version` increases with every change, and a change is checked against it; `attempt_number` is that of the latest
    attempt.
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
    """When a parked task returns to the queue by itself; None if it waits for something else or does not wait."""
    deadline_at: datetime | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    retention: Retention = DEFAULT_RETENTION
    version: int = 1
    attempt_number: int = 0
    failures: int = 0
    """The number of failed attempts since a step was last finished."""
    attempt: Attempt | None = None
    pausing: bool = False
    """A pause of the running task was requested; its attempt stops at its next checkpoint."""
    signals: int = 0
    """The number of answers and ended children so far. A park that has not seen them all does not park."""
    open_inputs: int = 0
    entries: int = 1
    """The number of entries in the history."""
    progress: Progress | None = None
    status_message: str | None = None
    is_error: bool = False
    """The result of a completed task reports a tool error."""
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    state: InstanceState | None = None
    """The workflow state, if the task is an instance."""
    subject: str | None = None
    """The subject of an instance, in its workflow's terms: an order number, a branch."""

    @property
    def is_terminal(self) -> bool:
        return self.phase in TERMINAL_PHASES

    @property
    def log_id(self) -> str:
        """The id for logs, shortened for anonymous tasks, whose full id grants the right to them."""
        return self.id if self.owner.may_list else shorten_id(self.id)

    @property
    def status(self) -> Status:
        return status_of(self.phase, open_inputs=self.open_inputs)

    @property
    def ttl(self) -> timedelta | None:
        """The lifetime that a caller may rely on, counted from creation; None if it is unbounded."""
        if self.expires_at is not None:
            return self.expires_at - self.created_at
        return self.retention.promised_ttl(self.created_at, self.deadline_at)

    @property
    def overdue_at(self) -> datetime | None:
        """When its lease or its deadline passes, after which the sweeper interrupts or ends it."""
        if self.is_terminal:
            return None
        ends = (self.deadline_at, None if self.attempt is None else self.attempt.lease.expires_at)
        return min((end for end in ends if end is not None), default=None)

    def is_overdue(self, now: datetime) -> bool:
        return self.overdue_at is not None and self.overdue_at <= now

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def evolve(self, **fields: object) -> "Task":
        """Return the task with some fields set: `dataclasses.replace` at a quarter of its cost."""
        values = list(_task_values(self))
        for name, value in fields.items():
            values[_TASK_INDEX[name]] = value
        return Task(*values)


_TASK_FIELDS = tuple(Task.__dataclass_fields__)
_TASK_INDEX = {name: index for index, name in enumerate(_TASK_FIELDS)}
_task_values: Callable[[Task], tuple[Any, ...]] = attrgetter(*_TASK_FIELDS)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of a task: the event, its time and its actor. `seq` counts from 1 without gaps."""

    seq: int
    at: datetime
    event: Event
    before: Phase | None
    after: Phase
    attempt: int
    """The number of the latest attempt at that time; 0 before the first."""
    actor: str
    note: str | None = None
    """A short text: a given reason, the name of a step, the key of an input request."""
    detail: Payload | None = None
    """For the operator: the error of a failed attempt."""


@dataclass(frozen=True, slots=True)
class Step:
    """A finished checkpoint, identified by its name and by how often that name was used before."""

    name: str
    occurrence: int
    fingerprint: str
    """Distinguishes the arguments it ran with from other arguments."""
    result: Payload
    attempt: int
    finished_at: datetime


class InputKind(StrEnum):
    """The kind of input that is requested from the caller."""

    ELICITATION = "elicitation"
    SAMPLING = "sampling"
    ROOTS = "roots"


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A request for input from the caller. Its key is unique over the task's lifetime."""

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
    """An intermediate result, readable while the task works. Storing one under the same name replaces it."""

    name: str
    content: Payload
    kept_at: datetime


@dataclass(frozen=True, slots=True)
class View:
    """The answer to a poll, read at one moment: the task, its outcome if ended, its open input requests if not."""

    task: Task
    outcome: Payload | None
    """The result of a completed task, or the error of a failed one."""
    inputs: tuple[InputRequest, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """The data an attempt starts with, read at one moment."""

    task: Task
    arguments: Payload
    caller: Payload | None
    variables: Payload | None
    steps: tuple[Step, ...]
    inputs: tuple[InputRequest, ...]
    artifacts: tuple[str, ...]
    """The names only. Contents are read one by one."""

    def answer_to(self, key: str) -> Payload | None:
        """Return the answer to an input request, or None if it has no answer."""
        return next((question.answer for question in self.inputs if question.key == key), None)
