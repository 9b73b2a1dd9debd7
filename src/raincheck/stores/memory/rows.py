"""What the memory store holds, and its writes: each checks everything first and then writes, so it is whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.limits import Quota
from raincheck.core.payload import Payload
from raincheck.core.records import Artifact, HistoryEntry, InputRequest, Step, Task, TaskId
from raincheck.errors import AlreadyRecorded, IdempotencyConflict, QuotaExceeded, StaleChange


@dataclass(slots=True)
class Row:
    """A task with everything that belongs to it."""

    task: Task
    arguments: Payload
    caller: Payload | None
    request_digest: str | None
    entries: list[HistoryEntry]
    outcome: Payload | None = None
    variables: Payload | None = None
    steps: dict[tuple[str, int], Step] = field(default_factory=dict[tuple[str, int], Step])
    inputs: dict[str, InputRequest] = field(default_factory=dict[str, InputRequest])
    artifacts: dict[str, Artifact] = field(default_factory=dict[str, Artifact])


class Rows:
    """Every task, and apart from that the live ones, so that what looks for work need not look at what has ended."""

    def __init__(self) -> None:
        self._all: dict[TaskId, Row] = {}
        self._live: dict[TaskId, Row] = {}

    def get(self, task_id: TaskId) -> Row | None:
        return self._all.get(task_id)

    def tasks(self) -> Iterator[Task]:
        return (row.task for row in self._all.values())

    def live_tasks(self) -> list[Task]:
        return [row.task for row in self._live.values()]

    def create(self, creation: Creation, quota: Quota, now: datetime) -> Task:
        """The new task or, where its idempotency key is taken by the same request, the task that has it."""
        new = creation.task
        holder = self._holder_of_key(new)
        if holder is not None and not holder.task.is_expired(now):
            if holder.request_digest != creation.request_digest:
                raise IdempotencyConflict(holder.task.id, new.idempotency_key or "")
            return holder.task
        self._check_quota(new, quota, now)
        self._check_new(new.id)
        if holder is not None:
            self.forget(holder.task.id)
        self._insert(creation)
        return new

    def commit(self, changes: Sequence[Change]) -> None:
        """All of the changes, or none and an error."""
        for change in changes:
            self._check_change(change)
        for change in changes:
            self._keep(change)

    def forget(self, task_id: TaskId) -> None:
        del self._all[task_id]
        self._live.pop(task_id, None)

    def _insert(self, creation: Creation) -> None:
        row = Row(creation.task, creation.arguments, creation.caller, creation.request_digest, [creation.entry])
        self._all[creation.task.id] = self._live[creation.task.id] = row

    def _check_new(self, task_id: TaskId) -> None:
        if task_id in self._all:
            raise AlreadyRecorded(task_id, "been created")

    def _holder_of_key(self, new: Task) -> Row | None:
        if new.idempotency_key is None:
            return None
        same = (new.namespace, new.owner, new.idempotency_key)
        for row in self._all.values():
            if (row.task.namespace, row.task.owner, row.task.idempotency_key) == same:
                return row
        return None

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        whose = (new.namespace, new.owner)
        if quota.live is not None:
            live = sum((task.namespace, task.owner) == whose for task in self.live_tasks())
            if live >= quota.live:
                raise QuotaExceeded("live tasks", quota.live, None)
        if quota.created is not None:
            since = now - quota.window
            recent = sorted(
                task.created_at
                for task in self.tasks()
                if (task.namespace, task.owner) == whose and task.created_at > since
            )
            if len(recent) >= quota.created:
                raise QuotaExceeded("new tasks", quota.created, recent[-quota.created] - since)

    def _check_change(self, change: Change) -> None:
        task_id = change.before.id
        row = self._all.get(task_id)
        if row is None or row.task.version != change.before.version:
            raise StaleChange(task_id)
        attempt = row.task.attempt
        if change.lease_seen is not None and (attempt is None or attempt.lease.expires_at != change.lease_seen):
            raise StaleChange(task_id)
        for step in change.steps:
            if (step.name, step.occurrence) in row.steps:
                raise AlreadyRecorded(task_id, f"step {step.name!r} ({step.occurrence})")
        for question in change.inputs:
            if question.is_open and question.key in row.inputs:
                raise AlreadyRecorded(task_id, f"question {question.key!r}")
        for creation in change.spawned:
            self._check_new(creation.task.id)

    def _keep(self, change: Change) -> None:
        row = self._all[change.before.id]
        row.task = _with_stored_lease(row.task, change.after)
        row.outcome = change.outcome
        if change.entry is not None:
            row.entries.append(change.entry)
        if change.variables is not None:
            row.variables = change.variables
        row.steps |= {(step.name, step.occurrence): step for step in change.steps}
        row.inputs |= {question.key: question for question in change.inputs}
        row.artifacts |= {artifact.name: artifact for artifact in change.artifacts}
        for creation in change.spawned:
            self._insert(creation)
        if row.task.is_terminal:
            del self._live[row.task.id]


def _with_stored_lease(stored: Task, after: Task) -> Task:
    """The lease may have been extended since the change was decided; a change that keeps the attempt keeps that."""
    if stored.attempt is None or after.attempt is None:
        return after
    return replace(after, attempt=stored.attempt)
