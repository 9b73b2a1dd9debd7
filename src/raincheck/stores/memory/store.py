"""The memory store: it favours being obviously right over being fast.

Each method runs without giving up the event loop, and records are frozen, so nobody sees a change in the middle and
what is handed out can't be changed behind the store's back.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.content import Artifact, Journal, View
from raincheck.core.document import TaskDocument, find
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, Task, TaskId
from raincheck.errors import StoreUnavailable
from raincheck.stores.feed import Feed, Feeds
from raincheck.stores.interface import Capabilities
from raincheck.stores.memory.documents import Documents
from raincheck.stores.requests import (
    PAGE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    Page,
    Position,
    TaskQuery,
    ids_touched,
    page_of,
    page_size,
)


class MemoryStore:
    """Keeps tasks until the process ends. For tests, and for servers whose tasks need not survive."""

    capabilities = Capabilities(durable=False, shared=False)

    def __init__(self) -> None:
        self._documents = Documents()
        self._feeds = Feeds()
        self._is_open = False

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._feeds.close()

    async def create(self, creation: Creation, *, quota: Quota, now: datetime) -> Task:
        task = self._opened().create(creation, quota, now)
        if task.id == creation.task.id:
            self._feeds.publish([task.id])
        return task

    async def commit(self, changes: Sequence[Change]) -> None:
        touched = ids_touched(changes)
        self._opened().commit(changes)
        self._feeds.publish(touched)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        documents = self._opened()
        woken = request.wake(documents.live_tasks(), now)
        documents.commit(woken)
        begun = request.begin(documents.live_tasks(), now)
        documents.commit(begun)
        self._feeds.publish(change.before.id for change in (*woken, *begun))
        return tuple(change.after for change in begun)

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        documents = self._opened()
        lost: set[TaskId] = set()
        for one in held:
            document = documents.by_id.get(one.task_id)
            extended = None if document is None else document.extended(one.fence, until)
            if extended is None:
                lost.add(one.task_id)
            else:
                documents.put(extended)
        return frozenset(lost)

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        late = [task for task in self._opened().live_tasks() if task.is_overdue(now)]
        return tuple(late[: page_size(limit)])

    async def prune(self, *, now: datetime, limit: int) -> tuple[TaskId, ...]:
        documents = self._opened()
        expired = [task.id for task in documents.tasks() if task.is_expired(now)][: page_size(limit)]
        documents.forget(expired)
        self._feeds.publish(expired)
        return tuple(expired)

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

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        counts: dict[Phase, int] = {}
        for task in self._opened().live_tasks():
            if scope.may_list and scope.covers(task.namespace, task.owner):
                counts[task.phase] = counts.get(task.phase, 0) + 1
        return counts

    def listen(self) -> AbstractContextManager[Feed]:
        self._opened()
        return self._feeds.listen()

    def _opened(self) -> Documents:
        if not self._is_open:
            raise StoreUnavailable("memory:", "the store is not open: open it before use")
        return self._documents

    def _document(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        return find(self._opened().by_id, task_id, scope, now)
