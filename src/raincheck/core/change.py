"""Decided changes for a store to commit: a new task, or a change of one. Each is stored whole or not at all.

`apply_event` makes one move along the lifecycle table: the new record and its history entry. `create` decides on a new
task, and checks the ones that a task starts.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from raincheck.core.lifecycle import TERMINAL_PHASES, TRANSITIONS, Event, Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import DEFAULT_RETENTION, DEFAULT_RETRY, NO_QUOTA, Limits, Quota, Retention, RetryPolicy
from raincheck.core.records import (
    Artifact,
    Attempt,
    HistoryEntry,
    InputRequest,
    InstanceState,
    Step,
    Task,
    TaskId,
    Tool,
)
from raincheck.core.values import Json, Payload, check_aware, check_name, check_size, clip
from raincheck.errors import IdempotencyConflict, IllegalTransition, InvalidValue, LeaseLost, NotJson


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


PRIORITIES = range(-100, 101)


@dataclass(frozen=True, slots=True)
class NewTask:
    """A request for a new task."""

    id: TaskId
    namespace: str
    owner: Owner
    tool: Tool
    arguments: Payload
    caller: Payload | None = None
    parent_id: TaskId | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    """From `digest_request`; required with an idempotency key."""
    priority: int = 0
    due_at: datetime | None = None
    deadline_at: datetime | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    retention: Retention = DEFAULT_RETENTION
    actor: str = "caller"
    state: str | None = None
    """The initial state of an instance."""
    subject: str | None = None


def digest_request(tool: str, arguments: Json) -> str:
    """Return a digest that identifies a request, independent of the order of its keys.

    Raises:
        NotJson: the arguments are not JSON.
    """
    try:
        text = json.dumps([tool, arguments], sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"the arguments of {tool!r} can't be written as JSON: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


def create(new: NewTask, now: datetime, limits: Limits) -> Creation:
    """Create the task that `new` describes.

    Raises:
        InvalidValue: a value in it can't be stored, or exceeds its limit.
    """
    _check_new_task(new, now, limits)
    waits = new.due_at is not None and new.due_at > now
    phase = Phase.PARKED if waits else Phase.QUEUED
    task = Task(
        id=new.id,
        namespace=new.namespace,
        owner=new.owner,
        tool=new.tool,
        created_at=now,
        updated_at=now,
        phase=phase,
        parent_id=new.parent_id,
        idempotency_key=new.idempotency_key,
        priority=new.priority,
        due_at=new.due_at if waits else None,
        deadline_at=new.deadline_at,
        retry=new.retry,
        retention=new.retention,
        status_message=clip(new.state),
        state=None if new.state is None else InstanceState(new.state, now),
        subject=new.subject,
    )
    actor = clip(new.actor) or ""
    entry = HistoryEntry(seq=1, at=now, event=Event.CREATE, before=None, after=phase, attempt=0, actor=actor)
    return Creation(task, entry, new.arguments, new.caller, new.request_digest)


def _check_new_task(new: NewTask, now: datetime, limits: Limits) -> None:
    for moment in (now, new.due_at, new.deadline_at):
        check_aware(moment)
    for name, what in (
        (new.id, "a task's id"),
        (new.namespace, "a namespace"),
        (new.tool.name, "a tool's name"),
        (new.tool.version, "a tool's version"),
        (new.state, "a state's name"),
        (new.subject, "the subject of an instance"),
        (new.parent_id, "a parent's id"),
        (new.idempotency_key, "an idempotency key"),
        (new.request_digest, "the digest of a request"),
    ):
        if name is not None:
            check_name(name, what=what)
    if new.idempotency_key is not None and not new.owner.may_list:
        # Possession of an anonymous task's id is the right to it, and a guessed key would return the id.
        raise InvalidValue("an anonymous caller can't use an idempotency key: leave it out")
    if (new.idempotency_key is None) != (new.request_digest is None):
        raise InvalidValue("an idempotency key requires the digest of its request, and the reverse: use digest_request")
    if new.priority not in PRIORITIES:
        raise InvalidValue(f"priority must be from {PRIORITIES[0]} to {PRIORITIES[-1]}, not {new.priority}")
    if new.deadline_at is not None and new.deadline_at <= max(now, new.due_at or now):
        raise InvalidValue(
            f"task {new.id!r} would pass its deadline {new.deadline_at} before it starts: set a later one"
        )
    check_size(new.arguments, limits.arguments, what="arguments")
    check_size(new.caller, limits.caller, what="the caller's identity")


def check_spawned(spawned: Sequence[Creation], task: Task, parents: tuple[TaskId | None, ...]) -> None:
    """Check the tasks that a task spawns.

    Raises:
        InvalidValue: one has another owner, namespace or parent, or a key under which it might exist already.
    """
    for new in (creation.task for creation in spawned):
        if (new.namespace, new.owner) != (task.namespace, task.owner):
            raise InvalidValue(f"task {new.id!r} can't be spawned by {task.id!r}: give it the same namespace and owner")
        if new.parent_id not in parents:
            allowed = (
                "its parent must be that task or none" if task.id in parents else "that task ends, so set no parent"
            )
            raise InvalidValue(f"task {new.id!r} can't be spawned by {task.id!r}: {allowed}")
        if new.idempotency_key is not None:
            raise InvalidValue(f"task {new.id!r} is spawned, so it can't have an idempotency key: remove it")


def describe_spawned(spawned: Sequence[Creation]) -> list[str]:
    """Describe spawned tasks for the history."""
    return [f"spawned {creation.task.id}" for creation in spawned]
