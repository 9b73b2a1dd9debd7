"""One move along the lifecycle table: the new record and the history entry that goes with it."""

from datetime import datetime

from raincheck.core.change import Change
from raincheck.core.lifecycle import TERMINAL, TRANSITIONS, Event, Phase
from raincheck.core.payload import Payload
from raincheck.core.records import Attempt, HistoryEntry, Task
from raincheck.core.text import clip
from raincheck.errors import IllegalTransition, LeaseLost

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
