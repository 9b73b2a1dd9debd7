"""Tasks in this process's memory: the reference model that every other store is compared with.

What the memory store holds: the documents with a few indexes, and a way back from a write that failed.

The memory store: it favours being obviously right over being fast.

Each method runs without giving up the event loop, and records are frozen, so nobody sees a change in the middle and
what is handed out can't be changed behind the store's back.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile

from raincheck.core.change import Change, Creation
from raincheck.core.fair_queue import kind_of, line_of, turn_after
from raincheck.core.histogram import Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import Feed, Feeds
from raincheck.stores.documents import Documents, TaskDocument, count_live, count_states
from raincheck.stores.requests import (
    PAGE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    Page,
    Position,
    TaskQuery,
    check_definitions,
    check_named_once,
    check_news,
    check_secret_name,
    new_secret,
    next_moment,
    overdue_of,
    page_of,
    page_size,
)


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


class MemoryStore:
    """Keeps tasks until the process ends. For tests, and for servers whose tasks need not survive."""

    capabilities = Capabilities(durable=False, shared=False)

    def __init__(self) -> None:
        self._documents = IndexedDocuments()
        self._secrets: dict[str, bytes] = {}
        self._feeds = Feeds()
        self._is_open = False

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._feeds.close()

    def twin(self) -> "MemoryStore":
        raise StoreUnavailable("memory:", "tasks in memory have one handle and one event loop: use a store in a file")

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        with self._transaction() as documents:
            return documents.create(creation, quota, now, claim)

    async def commit(self, changes: Sequence[Change]) -> None:
        check_named_once(changes)
        with self._transaction() as documents:
            for change in changes:
                documents.keep(change)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        with self._transaction() as documents:
            for change in request.wake(documents.live(), now):
                documents.keep(change)
            return documents.take(request.begin(documents.line(), now))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        documents = self._opened()
        return next_moment(documents.live(), namespace, tools)

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        documents = self._opened()
        # Without those who listen: a heartbeat is not news.
        with documents.transaction():
            return frozenset(one.task_id for one in held if not documents.extend(one.task_id, one.fence, until))

    async def release_key(self, task_id: TaskId, key: str) -> None:
        documents = self._opened()
        with documents.transaction():
            documents.release_key(task_id, key)

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return overdue_of(self._opened().live(), now=now, limit=limit)

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        with self._transaction() as documents:
            return documents.prune(now, page_size(limit), only)

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        return self._document(task_id, scope, now).task

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return self._document(task_id, scope, now).view()

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return self._document(task_id, scope, now).journal()

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        artifacts = self._document(task_id, scope, now).artifacts
        return next((artifact for artifact in artifacts if artifact.name == name), None)

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        history = self._document(task_id, scope, now).history
        return tuple(entry for entry in history if entry.seq > after)[: page_size(limit)]

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: Position | None = None, limit: int = 100
    ) -> Page:
        return page_of(self._opened().tasks(), query, now=now, after=after, limit=limit)

    async def count_states(self, scope: Scope, *, now: datetime) -> dict[tuple[str, str], int]:
        return count_states(self._opened().tasks(), scope, now)

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        return count_live(self._opened().live(), scope)

    async def secret(self, name: str) -> bytes:
        check_secret_name(name)
        self._opened()
        return self._secrets.setdefault(name, new_secret())

    async def remember(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        check_definitions(namespace, definitions)
        return self._opened().remember(namespace, definitions)

    async def learn(self, namespace: str, news: Mapping[str, Sketch]) -> dict[str, Sketch]:
        check_news(namespace, news)
        return self._opened().learn(namespace, news)

    def listen(self) -> AbstractContextManager[Feed]:
        self._opened()
        return self._feeds.listen()

    def _transaction(self) -> Transaction:
        return self._opened().transaction(self._feeds.publish)

    def _opened(self) -> IndexedDocuments:
        if not self._is_open:
            raise StoreUnavailable("memory:", "the store is not open: open it before use")
        return self._documents

    def _document(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        return self._opened().visible(task_id, scope, now)
