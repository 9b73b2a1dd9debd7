"""The life of a task, as one table.

Theory of operation
===================
A task is always in exactly one *phase*. An *event* takes it from one phase to another, and `TRANSITIONS` lists
every pair that is allowed. Nothing else decides: the SQL guards, the diagram in the docs, the invariant checker
and the tests are derived from this table or compared with it, so a rule that changes here changes everywhere or a
test fails.

Three rules keep the table small:

1. **A queued task may be claimed now.** Whatever has to wait first (a retry's backoff, a sleep, an answer, a child)
   is *parked*, and goes through the queue when its wait is over. So "what can run" is one phase, not a phase and
   a comparison of times.
2. **Only a running task has an attempt.** Beginning one raises the task's fence, and every write of the attempt
   carries that number; once the task leaves `running`, the number is stale for good and its writes are refused.
3. **Terminal phases are the ones with an empty row.** There is no second list of them, and no way out: running
   something again is a new task.

A phase is ours. The wire has five words, called *status*, and `status_of` is the whole translation. The wire's
`input_required` is not a phase, because a task with an open question may be running (another branch of the body goes
on), parked, queued or paused.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Phase(StrEnum):
    """Where a task is in its life."""

    QUEUED = "queued"
    """Waits for a worker; may be claimed now."""
    RUNNING = "running"
    """An attempt runs it, under a lease."""
    PARKED = "parked"
    """Waits for time, an answer or a child, and holds no worker."""
    PAUSED = "paused"
    """Held back by its owner or an operator, until resumed."""
    COMPLETED = "completed"
    """Ended with a result (which may report a tool error)."""
    FAILED = "failed"
    """Ended with an error instead of a result."""
    CANCELLED = "cancelled"
    """Ended because somebody asked for it to stop."""


class Event(StrEnum):
    """What happens to a task."""

    CREATE = "create"
    """A caller asked for the task."""
    CLAIM = "claim"
    """A worker begins an attempt."""
    NOTE = "note"
    """The attempt reports: progress, a finished step, a question, variables, an artifact, a child."""
    ANSWER = "answer"
    """Somebody answered an open question."""
    SIGNAL = "signal"
    """Something the task may wait for has happened: a child ended, or asks something."""
    TRANSITION = "transition"
    """The process that the task is went from one of its workflow's states to another."""
    DUE = "due"
    """The moment a parked task waited for has come."""
    PARK = "park"
    """The attempt has nothing to do until an answer, a child or a moment comes."""
    RELEASE = "release"
    """The worker shuts down in good order and hands the attempt back."""
    RETRY = "retry"
    """The attempt failed, and the task may try again later."""
    INTERRUPT = "interrupt"
    """The attempt's lease ran out: its worker is dead or cut off."""
    PAUSE = "pause"
    """The owner or an operator wants the task held back."""
    YIELD = "yield"
    """The attempt of a task that is to be paused reached a place to stop."""
    RESUME = "resume"
    """The owner or an operator lets a paused task go on."""
    COMPLETE = "complete"
    """The attempt ended with a result."""
    FAIL = "fail"
    """The attempt failed, or was cut off, for the last time."""
    CANCEL = "cancel"
    """Somebody with the right to it asked the task to stop."""
    EXPIRE = "expire"
    """The task reached its deadline without ending."""


class Status(StrEnum):
    """The five words of the wire, the same in both generations."""

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

STARTS = frozenset({Phase.QUEUED, Phase.PARKED})
"""The phases that `Event.CREATE` may lead to: parked, if the task is due later."""

TERMINAL = frozenset(phase for phase, row in TRANSITIONS.items() if not row)
LIVE = frozenset(TRANSITIONS) - TERMINAL

_STATUS_OF_TERMINAL = {
    Phase.COMPLETED: Status.COMPLETED,
    Phase.FAILED: Status.FAILED,
    Phase.CANCELLED: Status.CANCELLED,
}


def status_of(phase: Phase, *, open_inputs: int) -> Status:
    """The wire's word for a task in this phase with so many open questions."""
    ended = _STATUS_OF_TERMINAL.get(phase)
    if ended is not None:
        return ended
    return Status.INPUT_REQUIRED if open_inputs else Status.WORKING
