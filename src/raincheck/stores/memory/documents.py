"""What the memory store holds: the documents with a few indexes, and a way back from a write that failed."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TypeAlias

from raincheck.core.document import TaskDocument
from raincheck.core.documents import Documents
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId
from raincheck.core.turn import kind_of, line_of, turn_after

_Line: TypeAlias = defaultdict[tuple[Owner, bool], dict[TaskId, int]]
"""The turns of the queued tasks of one namespace and priority, by kind."""


class IndexedDocuments(Documents):
    """Every task, and apart from that the live and the queued ones, so that who looks for work need not look at all."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[TaskId, TaskDocument] = {}
        self._queued: dict[TaskId, TaskDocument] = {}
        self._live_children: defaultdict[TaskId, dict[TaskId, TaskDocument]] = defaultdict(dict)
        self._turns: defaultdict[tuple[str, int], _Line] = defaultdict(lambda: defaultdict(dict))
        self._before: dict[TaskId, TaskDocument | None] = {}

    @contextmanager
    def transaction(self) -> Generator[Mapping[TaskId, TaskDocument | None]]:
        """What is written in it counts whole or not at all. Gives what it has changed so far, as it was before."""
        self._before = {}
        try:
            yield self._before
        except BaseException:
            for task_id, document in self._before.items():
                self._put(task_id, document)
            raise

    def live(self) -> Iterable[Task]:
        return [document.task for document in self._live.values()]

    def queued(self) -> Iterable[TaskDocument]:
        return self._queued.values()

    def live_children(self, parent_id: TaskId) -> Iterable[Task]:
        children = self._live_children.get(parent_id, {})
        return [document.task for document in children.values()]

    def next_turn(self, new: Task) -> int:
        line = self._turns[line_of(new)]
        same_kind = line[kind_of(new)].values()
        return turn_after(chain.from_iterable(turns.values() for turns in line.values()), same_kind)

    def __setitem__(self, task_id: TaskId, document: TaskDocument) -> None:
        self._before.setdefault(task_id, self.data.get(task_id))
        self._put(task_id, document)

    def __delitem__(self, task_id: TaskId) -> None:
        self._before.setdefault(task_id, self.data[task_id])
        self._put(task_id, None)

    def _put(self, task_id: TaskId, document: TaskDocument | None) -> None:
        old = self.data.get(task_id)
        if old is not None:
            self._unindex(old.task)
        if document is None:
            self.data.pop(task_id, None)
        else:
            self.data[task_id] = document
            self._index(document)

    def _index(self, document: TaskDocument) -> None:
        task = document.task
        if task.is_terminal:
            return
        self._live[task.id] = document
        if task.phase is Phase.QUEUED:
            self._queued[task.id] = document
            self._turns[line_of(task)][kind_of(task)][task.id] = document.turn
        if task.parent_id is not None:
            self._live_children[task.parent_id][task.id] = document

    def _unindex(self, task: Task) -> None:
        self._live.pop(task.id, None)
        if self._queued.pop(task.id, None) is not None:
            turns = self._turns[line_of(task)][kind_of(task)]
            del turns[task.id]
            if not turns:
                del self._turns[line_of(task)][kind_of(task)]
        if task.parent_id is not None:
            siblings = self._live_children[task.parent_id]
            siblings.pop(task.id, None)
            if not siblings:
                del self._live_children[task.parent_id]
