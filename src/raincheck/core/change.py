"""Decided changes for a store to commit: a new task, or a change of one. Each is stored whole or not at all.

`apply_event` makes one move along the lifecycle table: the new record and its history entry.
"""

from dataclasses import dataclass
from datetime import datetime

from raincheck.core.lifecycle import TERMINAL_PHASES, TRANSITIONS, Event, Phase
from raincheck.core.limits import NO_QUOTA, Quota
from raincheck.core.payload import Payload
from raincheck.core.records import Artifact, Attempt, HistoryEntry, InputRequest, Step, Task
from raincheck.core.validation import clip
from raincheck.errors import IdempotencyConflict, IllegalTransition, LeaseLost


@dataclass(frozen=True, slots=True)
class Creation:
    """A new task and the data that belongs to it."""

    task: Task
    entry: HistoryEntry
    arguments: Payload
    caller: Payload | None
    """The caller, and what the worker needs to know about the call (identity, trace)."""
    request_digest: str | None
    """Distinguishes requests under the same idempotency key; None if there is no key."""

    def matches(self, holder: Task, holder_digest: str | None, now: datetime) -> bool:
        """Return whether the task that has the idempotency key matches this request; false if it has expired.

        Raises:
            IdempotencyConflict: the key was used for a different request.
        """
        if holder.is_expired(now):
            return False
        if holder_digest != self.request_digest:
            raise IdempotencyConflict(holder.id, self.task.idempotency_key or "")
        return True


@dataclass(frozen=True, slots=True)
class Change:
    """A decided change of one task.

    It is valid only while the stored task is the one it was decided on: `before.version` is still the stored version
    and, where `lease_seen` is set, the stored lease still ends at that time (extending a lease is not a new version,
    and a holder that extends must not be interrupted on the basis of the old lease).
    """

    before: Task
    after: Task
    entry: HistoryEntry | None = None
    lease_seen: datetime | None = None
    steps: tuple[Step, ...] = ()
    """New checkpoints."""
    inputs: tuple[InputRequest, ...] = ()
    """New input requests, and old ones with their answers."""
    artifacts: tuple[Artifact, ...] = ()
    variables: Payload | None = None
    outcome: Payload | None = None
    spawned: tuple[Creation, ...] = ()
    """Tasks created by this change: children or successors."""
    quota: Quota = NO_QUOTA
    """The owner's quota, counted for each spawned task when the change is committed."""

    @property
    def leaves_state(self) -> bool:
        """Whether an instance leaves a state by this change. Its checkpoints there are then deleted, as unused.

        Otherwise an instance that returns to its states would get slower with each round, and reach the step limit one
        day. Open input requests are left, for their requester to withdraw.
        """
        return self.before.state != self.after.state


_WAITING = frozenset({Phase.PARKED, Phase.PAUSED})


def next_phase(task: Task, event: Event) -> Phase:
    """Return the phase that the event leads to.

    Raises:
        IllegalTransition: the table has no such pair.
    """
    phase = TRANSITIONS[task.phase].get(event)
    if phase is None:
        raise IllegalTransition(task.id, task.phase, event)
    return phase


def require_attempt(task: Task, fence: int) -> Attempt:
    """Return the attempt with this number, if it holds the task.

    Raises:
        LeaseLost: it does not hold the task, or no longer does.
    """
    if task.attempt is None or task.attempt.number != fence:
        raise LeaseLost(task.id, fence)
    return task.attempt


def apply_event(
    task: Task,
    event: Event,
    now: datetime,
    *,
    actor: str,
    note: str | None = None,
    detail: Payload | None = None,
    recorded: bool = True,
    outcome: Payload | None = None,
    **fields: object,
) -> Change:
    """Return the change that `event` makes, with `fields` set on the new record.

    A task's own time never runs backwards, even if the clock does. The data of an attempt or a wait ends with it, and
    so does the status message that the task set while working.
    """
    phase = next_phase(task, event)
    at = max(now, task.updated_at)
    if phase is not Phase.RUNNING:
        fields |= {"attempt": None, "pausing": False}
    if phase not in _WAITING:
        fields["due_at"] = None
    if phase in TERMINAL_PHASES:
        fields.setdefault("status_message", None)
        fields |= {
            "finished_at": at,
            "expires_at": task.retention.expires_at(task.created_at, at),
            "open_inputs": 0,
        }
    after = task.evolve(
        phase=phase,
        updated_at=at,
        version=task.version + 1,
        entries=task.entries + 1 if recorded else task.entries,
        **fields,
    )
    if not recorded:
        return Change(task, after)
    entry = HistoryEntry(
        after.entries, at, event, task.phase, phase, after.attempt_number, clip(actor) or "", clip(note), detail
    )
    return Change(task, after, entry, outcome=outcome)
