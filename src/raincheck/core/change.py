"""What a rule decided and a store is to keep: a new task, or a change of one. Either is kept whole or not at all.

One move along the lifecycle table: the new record and the history entry that goes with it.
"""

from dataclasses import dataclass
from datetime import datetime

from raincheck.core.lifecycle import TERMINAL, TRANSITIONS, Event, Phase
from raincheck.core.limits import NO_QUOTA, Quota
from raincheck.core.payload import Payload
from raincheck.core.records import Artifact, Attempt, HistoryEntry, InputRequest, Step, Task
from raincheck.core.validation import clip
from raincheck.errors import IdempotencyConflict, IllegalTransition, LeaseLost


@dataclass(frozen=True, slots=True)
class Creation:
    """A new task and what comes with it."""

    task: Task
    entry: HistoryEntry
    arguments: Payload
    caller: Payload | None
    """Who called, and what the worker needs to know of the call (identity, trace)."""
    request_digest: str | None
    """Tells this request from another under the same idempotency key; None where there is no key."""

    def asks_for(self, holder: Task, holders_digest: str | None, now: datetime) -> bool:
        """Whether the task that has the idempotency key is what is asked for; false if it has expired.

        Raises:
            IdempotencyConflict: the key was used for something else.
        """
        if holder.is_expired(now):
            return False
        if holders_digest != self.request_digest:
            raise IdempotencyConflict(holder.id, self.task.idempotency_key or "")
        return True


@dataclass(frozen=True, slots=True)
class Change:
    """A decided change of one task.

    It holds only while the stored task is the one it was decided on: `before.version` is still the stored
    version and, where `lease_seen` is set, the stored lease still ends at that moment (extending a lease is not
    a new version, and a holder who extends must not be cut off by somebody who read the lease before).
    """

    before: Task
    after: Task
    entry: HistoryEntry | None = None
    lease_seen: datetime | None = None
    steps: tuple[Step, ...] = ()
    """New checkpoints."""
    inputs: tuple[InputRequest, ...] = ()
    """New questions, and old ones with their answers."""
    artifacts: tuple[Artifact, ...] = ()
    variables: Payload | None = None
    outcome: Payload | None = None
    spawned: tuple[Creation, ...] = ()
    """Tasks that begin to exist with this change: children, or what comes after it."""
    quota: Quota = NO_QUOTA
    """What the owner may have, counted for each spawned task when the change is kept."""

    @property
    def leaves_state(self) -> bool:
        """Whether a process leaves a state by it. Its checkpoints there are forgotten: nobody asks for them again.

        Else a process that comes back to its states would get slower with each round, and have too many one day.
        Questions that are still open are left, for whoever asked them to take back.
        """
        return self.before.state != self.after.state


_WAITING = frozenset({Phase.PARKED, Phase.PAUSED})


def target(task: Task, event: Event) -> Phase:
    """The phase that the event leads to.

    Raises:
        IllegalTransition: the table has no such pair.
    """
    phase = TRANSITIONS[task.phase].get(event)
    if phase is None:
        raise IllegalTransition(task.id, task.phase, event)
    return phase


def attempt_of(task: Task, fence: int) -> Attempt:
    """The attempt with this number, if it holds the task.

    Raises:
        LeaseLost: it does not, or not any more.
    """
    if task.attempt is None or task.attempt.number != fence:
        raise LeaseLost(task.id, fence)
    return task.attempt


def move(
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
    """The change that `event` makes, with `fields` set on the new record.

    A task's own time never runs backwards, even if the clock does. What belongs to an attempt or to a wait ends with
    it, and so does what the working task said of itself.
    """
    phase = target(task, event)
    at = max(now, task.updated_at)
    if phase is not Phase.RUNNING:
        fields |= {"attempt": None, "pausing": False}
    if phase not in _WAITING:
        fields["due_at"] = None
    if phase in TERMINAL:
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
        after.entries, at, event, task.phase, phase, after.fence, clip(actor) or "", clip(note), detail
    )
    return Change(task, after, entry, outcome=outcome)
