"""What the memory store holds: the documents with a few indexes, and a way back from a write that failed."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile

from raincheck.core.document import TaskDocument
from raincheck.core.documents import Documents
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.records import Task, TaskId
from raincheck.core.turn import kind_of, line_of, turn_after


@dataclass(slots=True)
class _Theirs:
    """What a quota asks of one owner's tasks in a namespace: how many live, and when each was created, sorted."""

    live: int = 0
    created: list[datetime] = field(default_factory=list[datetime])


class IndexedDocuments(Documents):
    """Every task, and apart from that the live and the queued ones, so that who looks for work need not look at all.

    Nor need who creates or prunes: keys and what expires are found by themselves, and owners' tasks are counted as they
    come and go.
    """

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[TaskId, TaskDocument] = {}
        self._queued: dict[TaskId, TaskDocument] = {}
        self._live_children: defaultdict[TaskId, dict[TaskId, TaskDocument]] = defaultdict(dict)
        self._turns: defaultdict[Hashable, list[int]] = defaultdict(list)
        """The turns of the queued tasks, sorted: those of each kind in a line, and those of each tool."""
        self._theirs: defaultdict[Hashable, _Theirs] = defaultdict(_Theirs)
        self._holders: dict[Hashable, TaskId] = {}
        """Which task has an owner's idempotency key."""
        self._expiring: list[tuple[datetime, TaskId]] = []
        """When the ended tasks expire, sorted."""
        self._before: dict[TaskId, TaskDocument | None] = {}
        self._had = self.served, self.durations

    def transaction(self, tell: Callable[[Iterable[TaskId]], None] | None = None) -> "Transaction":
        """What is written in it counts whole or not at all. Then what has changed is told."""
        return Transaction(self, tell)

    def begin(self) -> None:
        self._before, self._had = {}, (self.served, self.durations)

    def roll_back(self) -> None:
        """Be as it was at the beginning."""
        self.served, self.durations = self._had
        for task_id, document in self._before.items():
            self._put(task_id, document)

    @property
    def changed(self) -> Iterable[TaskId]:
        """The tasks that were written since the beginning."""
        return self._before.keys()

    def live(self) -> Iterable[Task]:
        return [document.task for document in self._live.values()]

    def queued(self) -> Iterable[TaskDocument]:
        return self._queued.values()

    def expired(self, now: datetime) -> Iterable[Task]:
        return [self.data[task_id].task for _, task_id in takewhile(lambda end: end[0] <= now, self._expiring)]

    def live_children(self, parent_id: TaskId) -> Iterable[Task]:
        children = self._live_children.get(parent_id, {})
        return [document.task for document in children.values()]

    def next_turn(self, new: Task) -> int:
        served = self.served.get(line_of(new), 0)
        kind, tool = _groups_of(new)
        same_kind, same_tool = self._turns.get(kind, ()), self._turns.get(tool, ())
        return turn_after(same_kind[-1] if same_kind else 0, same_tool[0] if same_tool else served, served)

    def __setitem__(self, task_id: TaskId, document: TaskDocument) -> None:
        self._before.setdefault(task_id, self.data.get(task_id))
        self._put(task_id, document)

    def __delitem__(self, task_id: TaskId) -> None:
        self._before.setdefault(task_id, self.data[task_id])
        self._put(task_id, None)

    def _put(self, task_id: TaskId, document: TaskDocument | None) -> None:
        old = self.data.get(task_id)
        if old is not None:
            self._unindex(old)
        if document is None:
            self.data.pop(task_id, None)
        else:
            self.data[task_id] = document
            self._index(document)

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        theirs = self._theirs.get(_whose(new), _Theirs())
        quota.check_live(theirs.live)
        if quota.created is not None and len(theirs.created) >= quota.created:
            quota.check_created(theirs.created[-quota.created], now)

    def _holder_of_key(self, new: Task) -> TaskDocument | None:
        holder = self._holders.get((_whose(new), new.idempotency_key))
        return None if holder is None else self.data[holder]

    def _index(self, document: TaskDocument) -> None:
        task = document.task
        theirs = self._theirs[_whose(task)]
        insort(theirs.created, task.created_at)
        if task.idempotency_key is not None:
            self._holders[_whose(task), task.idempotency_key] = task.id
        if task.expires_at is not None:
            insort(self._expiring, (task.expires_at, task.id))
        if task.is_terminal:
            return
        theirs.live += 1
        self._live[task.id] = document
        if task.phase is Phase.QUEUED:
            self._queued[task.id] = document
            for group in _groups_of(task):
                insort(self._turns[group], document.turn)
        if task.parent_id is not None:
            self._live_children[task.parent_id][task.id] = document

    def _unindex(self, document: TaskDocument) -> None:
        task = document.task
        theirs = self._theirs[_whose(task)]
        del theirs.created[bisect_left(theirs.created, task.created_at)]
        if not theirs.created:
            del self._theirs[_whose(task)]
        key = _whose(task), task.idempotency_key
        # On the way back from a write that failed, the key may be another's again already.
        if self._holders.get(key) == task.id:
            del self._holders[key]
        if task.expires_at is not None:
            del self._expiring[bisect_left(self._expiring, (task.expires_at, task.id))]
        if self._live.pop(task.id, None) is not None:
            theirs.live -= 1
        if self._queued.pop(task.id, None) is not None:
            for group in _groups_of(task):
                turns = self._turns[group]
                del turns[bisect_left(turns, document.turn)]
                if not turns:
                    del self._turns[group]
        if task.parent_id is not None:
            siblings = self._live_children[task.parent_id]
            siblings.pop(task.id, None)
            if not siblings:
                del self._live_children[task.parent_id]


class Transaction:
    """Writes to documents, whole or not at all. Every task takes two, so it is no generator: those cost."""

    __slots__ = ("_documents", "_tell")

    def __init__(self, documents: IndexedDocuments, tell: Callable[[Iterable[TaskId]], None] | None) -> None:
        self._documents = documents
        self._tell = tell

    def __enter__(self) -> IndexedDocuments:
        self._documents.begin()
        return self._documents

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._documents.roll_back()
        elif self._tell is not None:
            self._tell(self._documents.changed)


def _whose(task: Task) -> Hashable:
    return task.namespace, task.owner.key


def _groups_of(task: Task) -> tuple[Hashable, Hashable]:
    """Among which queued tasks its turn is looked for: those of its kind, and those of its tool."""
    line = line_of(task)
    return (line, kind_of(task)), (line, task.tool)
