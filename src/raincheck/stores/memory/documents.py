"""What the memory store holds. Each write checks everything first and then writes, so it is whole."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.document import TaskDocument
from raincheck.core.limits import Quota
from raincheck.core.records import Task, TaskId
from raincheck.errors import AlreadyRecorded, IdempotencyConflict, StaleChange


class Documents:
    """Every task, and apart from that the live ones, so that what looks for work need not look at what has ended."""

    def __init__(self) -> None:
        self._all: dict[TaskId, TaskDocument] = {}
        self._live: dict[TaskId, TaskDocument] = {}

    def get(self, task_id: TaskId) -> TaskDocument | None:
        return self._all.get(task_id)

    def tasks(self) -> Iterator[Task]:
        return (document.task for document in self._all.values())

    def live_tasks(self) -> list[Task]:
        return [document.task for document in self._live.values()]

    def put(self, document: TaskDocument) -> None:
        task = document.task
        self._all[task.id] = document
        if task.is_terminal:
            self._live.pop(task.id, None)
        else:
            self._live[task.id] = document

    def forget(self, task_ids: Iterable[TaskId]) -> None:
        for task_id in task_ids:
            del self._all[task_id]
            self._live.pop(task_id, None)

    def create(self, creation: Creation, quota: Quota, now: datetime) -> Task:
        """The new task or, where its idempotency key is taken by the same request, the task that has it."""
        new = creation.task
        holder = self._holder_of_key(new)
        if holder is not None and not holder.task.is_expired(now):
            if holder.request_digest != creation.request_digest:
                raise IdempotencyConflict(holder.task.id, new.idempotency_key or "")
            return holder.task
        self._check_quota(new, quota, now)
        self._check_new(creation)
        if holder is not None:
            self.forget([holder.task.id])
        self.put(TaskDocument.of(creation))
        return new

    def commit(self, changes: Sequence[Change]) -> None:
        """All of the changes, or none and an error."""
        spawned = [creation for change in changes for creation in change.spawned]
        changed = [self._changed(change) for change in changes]
        for creation in spawned:
            self._check_new(creation)
        for document in (*changed, *map(TaskDocument.of, spawned)):
            self.put(document)

    def _changed(self, change: Change) -> TaskDocument:
        document = self._all.get(change.before.id)
        if document is None:
            raise StaleChange(change.before.id)
        return document.changed_by(change)

    def _check_new(self, creation: Creation) -> None:
        if creation.task.id in self._all:
            raise AlreadyRecorded(creation.task.id, "been created")

    def _holder_of_key(self, new: Task) -> TaskDocument | None:
        if new.idempotency_key is None:
            return None
        same = (new.namespace, new.owner, new.idempotency_key)
        for document in self._all.values():
            task = document.task
            if (task.namespace, task.owner, task.idempotency_key) == same:
                return document
        return None

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        whose = (new.namespace, new.owner)
        if quota.live is not None:
            quota.check_live(sum((task.namespace, task.owner) == whose for task in self.live_tasks()))
        if quota.created is not None:
            created = sorted(task.created_at for task in self.tasks() if (task.namespace, task.owner) == whose)
            quota.check_created(created[-quota.created] if len(created) >= quota.created else None, now)
