"""The lifecycle of a task, as one table.

Theory of operation
===================
A task is always in exactly one *phase*. An *event* takes it from one phase to another, and `TRANSITIONS` lists every
pair that is allowed. Nothing else decides: the SQL guards, the diagram in the docs, the invariant checker and the tests
are derived from this table or compared with it, so a rule that changes here changes everywhere or a test fails.

Three rules keep the table small:

1. **A queued task may be claimed now.** A task that has to wait first (for a retry's backoff, a sleep, an answer, a
   child) is *parked*, and goes through the queue when its wait is over. So "runnable" is one phase, not a phase and a
   comparison of times.
2. **Only a running task has an attempt.** Starting one raises the task's fence, and every write of the attempt carries
   that number; once the task leaves `running`, the number is permanently stale and its writes are refused.
3. **Terminal phases are the ones with an empty row.** There is no second list of them, and no way out: running
   something again is a new task.

Phases are internal. The wire has five values, called *status*, and `status_of` is the whole translation. The wire's
`input_required` is not a phase, because a task with an open input request may be running (another branch of the body
continues), parked, queued or paused.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Phase(StrEnum):
    """The phase of a task in its lifecycle."""

    QUEUED = "queued"
    """Waits for a worker; may be claimed now."""
    RUNNING = "running"
    """An attempt runs it, under a lease."""
    PARKED = "parked"
    """Waits for time, an answer or a child, and holds no worker."""
    PAUSED = "paused"
    """Paused by its owner or an operator, until resumed."""
    COMPLETED = "completed"
    """Ended with a result (which may report a tool error)."""
    FAILED = "failed"
    """Ended with an error instead of a result."""
    CANCELLED = "cancelled"
    """Ended by a request to stop."""


class Event(StrEnum):
    """An event in the lifecycle of a task."""

    CREATE = "create"
    """A caller requested the task."""
    CLAIM = "claim"
    """A worker starts an attempt."""
    NOTE = "note"
    """The attempt reports: progress, a finished step, an input request, variables, an artifact, a child."""
    ANSWER = "answer"
    """An open input request was answered."""
    SIGNAL = "signal"
    """An event the task may wait for: a child ended, or opened an input request."""
    TRANSITION = "transition"
    """The instance moved from one state of its workflow to another."""
    DUE = "due"
    """The due time of a parked task has come."""
    PARK = "park"
    """The attempt has nothing to do until an answer, a child or a due time."""
    RELEASE = "release"
    """The worker shuts down cleanly and releases the attempt."""
    RETRY = "retry"
    """The attempt failed, and the task may be retried later."""
    INTERRUPT = "interrupt"
    """The attempt's lease expired: its worker is dead or disconnected."""
    PAUSE = "pause"
    """The owner or an operator pauses the task."""
    YIELD = "yield"
    """The attempt of a task that is to be paused reached a checkpoint."""
    RESUME = "resume"
    """The owner or an operator resumes a paused task."""
    COMPLETE = "complete"
    """The attempt ended with a result."""
    FAIL = "fail"
    """The attempt failed, or was interrupted, for the last time."""
    CANCEL = "cancel"
    """A party with the right to the task requested that it stop."""
    EXPIRE = "expire"
    """The task reached its deadline without ending."""


class Status(StrEnum):
    """The five status values of the wire, the same in both protocol generations."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ANY_LIVE = {Event.CANCEL: Phase.CANCELLED, Event.EXPIRE: Phase.FAILED}

TRANSITIONS: Mapping[Phase, Mapping[Event, Phase]] = MappingProxyType(
    {
        Phase.QUEUED: MappingProxyType(
            _ANY_LIVE
            | {
                Event.CLAIM: Phase.RUNNING,
                Event.ANSWER: Phase.QUEUED,
                Event.SIGNAL: Phase.QUEUED,
                Event.TRANSITION: Phase.QUEUED,
                Event.PAUSE: Phase.PAUSED,
            }
        ),
        Phase.RUNNING: MappingProxyType(
            _ANY_LIVE
            | {
                Event.NOTE: Phase.RUNNING,
                Event.ANSWER: Phase.RUNNING,
                Event.SIGNAL: Phase.RUNNING,
                Event.TRANSITION: Phase.RUNNING,
                Event.PAUSE: Phase.RUNNING,
                Event.RESUME: Phase.RUNNING,
                Event.PARK: Phase.PARKED,
                Event.RETRY: Phase.PARKED,
                Event.RELEASE: Phase.QUEUED,
                Event.INTERRUPT: Phase.QUEUED,
                Event.YIELD: Phase.PAUSED,
                Event.COMPLETE: Phase.COMPLETED,
                Event.FAIL: Phase.FAILED,
            }
        ),
        Phase.PARKED: MappingProxyType(
            _ANY_LIVE
            | {
                Event.DUE: Phase.QUEUED,
                Event.ANSWER: Phase.QUEUED,
                Event.SIGNAL: Phase.QUEUED,
                Event.TRANSITION: Phase.QUEUED,
                Event.PAUSE: Phase.PAUSED,
            }
        ),
        Phase.PAUSED: MappingProxyType(
            _ANY_LIVE
            | {
                Event.ANSWER: Phase.PAUSED,
                Event.SIGNAL: Phase.PAUSED,
                Event.TRANSITION: Phase.PAUSED,
                Event.RESUME: Phase.PARKED,
            }
        ),
        Phase.COMPLETED: MappingProxyType({}),
        Phase.FAILED: MappingProxyType({}),
        Phase.CANCELLED: MappingProxyType({}),
    }
)

INITIAL_PHASES = frozenset({Phase.QUEUED, Phase.PARKED})
"""The phases that `Event.CREATE` may lead to: parked, if the task is due later."""

TERMINAL_PHASES = frozenset(phase for phase, row in TRANSITIONS.items() if not row)
LIVE_PHASES = frozenset(TRANSITIONS) - TERMINAL_PHASES


def status_of(phase: Phase, *, open_inputs: int) -> Status:
    """Return the wire status of a task in this phase with this many open input requests."""
    if phase in TERMINAL_PHASES:
        # A terminal phase has the name of its status.
        return Status(phase.value)
    return Status.INPUT_REQUIRED if open_inputs else Status.WORKING
