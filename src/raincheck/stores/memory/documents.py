"""What the memory store holds. What a write does is done apart first, so it counts whole or not at all."""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.document import TaskDocument, keep
from raincheck.core.limits import Quota
from raincheck.core.records import Task, TaskId
from raincheck.errors import AlreadyRecorded


class Documents:
    """Every task, and apart from that the live ones, so that what looks for work need not look at what has ended."""

    def __init__(self) -> None:
        self._all: dict[TaskId, TaskDocument] = {}
        self._live: dict[TaskId, TaskDocument] = {}

    @property
    def by_id(self) -> Mapping[TaskId, TaskDocument]:
        return self._all

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
        if holder is not None and holder.is_asked_for_by(creation, now):
            return holder.task
        gone = set[TaskId]() if holder is None else {holder.task.id}
        self._check_quota(new, quota, now, gone)
        if new.id in self._all and new.id not in gone:
            raise AlreadyRecorded(new.id)
        self.forget(gone)
        self.put(TaskDocument.of(creation))
        return new

    def commit(self, changes: Sequence[Change]) -> None:
        """All of the changes, or none and an error."""
        changed: dict[TaskId, TaskDocument] = {}
        for change in changes:
            keep(ChainMap(changed, self._all), change)
        for document in changed.values():
            self.put(document)

    def _holder_of_key(self, new: Task) -> TaskDocument | None:
        if new.idempotency_key is None:
            return None
        same = (new.namespace, new.owner, new.idempotency_key)
        for document in self._all.values():
            task = document.task
            if (task.namespace, task.owner, task.idempotency_key) == same:
                return document
        return None

    def _check_quota(self, new: Task, quota: Quota, now: datetime, gone: set[TaskId]) -> None:
        if quota != Quota():
            whose = (new.namespace, new.owner)
            theirs = [task for task in self.tasks() if (task.namespace, task.owner) == whose and task.id not in gone]
            quota.check(theirs, now)
