"""The memory store: it favours being obviously right over being fast.

Each method runs without giving up the event loop, and records are frozen, so nobody sees a change in the middle and
what is handed out can't be changed behind the store's back.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.commands import Claim, Due
from raincheck.core.decide import decide
from raincheck.core.document import TaskDocument
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, View
from raincheck.errors import StoreUnavailable, TaskNotFound
from raincheck.stores.feed import Feed, Feeds
from raincheck.stores.interface import (
    DUE_LIMIT,
    PAGE_LIMIT,
    Capabilities,
    ClaimRequest,
    HeldAttempt,
    Page,
    Position,
    TaskQuery,
    ids_touched,
    page_size,
)
from raincheck.stores.memory.documents import Documents


class MemoryStore:
    """Keeps tasks until the process ends. For tests, and for servers whose tasks need not survive."""

    capabilities = Capabilities(durable=False, shared=False)

    def __init__(self) -> None:
        self._documents = Documents()
        self._feeds = Feeds()
        self._is_open = False

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
        parked = self._waiting(request, Phase.PARKED)
        due = [change for task in parked if (change := decide(task, Due(), now)) is not None]
        due = sorted(due, key=lambda change: change.before.due_at or now)[:DUE_LIMIT]
        documents.commit(due)
        queued = self._waiting(request, Phase.QUEUED)
        queued.sort(key=lambda task: (-task.priority, task.created_at, task.id))
        claim = Claim(request.holder, request.lease_for)
        claimed = [change for task in queued[: request.limit] if (change := decide(task, claim, now)) is not None]
        documents.commit(claimed)
        self._feeds.publish(change.before.id for change in (*due, *claimed))
        return tuple(change.after for change in claimed)

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        documents = self._opened()
        lost: set[TaskId] = set()
        for one in held:
            document = documents.get(one.task_id)
            extended = None if document is None else document.extended(one.fence, until)
            if extended is None:
                lost.add(one.task_id)
            else:
                documents.put(extended)
        return frozenset(lost)

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        late = [
            task
            for task in self._opened().live_tasks()
            if (task.attempt is not None and task.attempt.lease.expires_at <= now)
            or (task.deadline_at is not None and task.deadline_at <= now)
        ]
        return tuple(late[:limit])

    async def prune(self, *, now: datetime, limit: int) -> tuple[TaskId, ...]:
        documents = self._opened()
        expired = [task.id for task in documents.tasks() if task.is_expired(now)][:limit]
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
        documents = self._opened()
        if not query.scope.may_list:
            return Page((), None)
        found = [
            task
            for task in documents.tasks()
            if query.matches(task, now) and (after is None or Position.of(task) < after)
        ]
        found.sort(key=Position.of, reverse=True)
        return Page.of(found, page_size(limit))

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        counts: dict[Phase, int] = {}
        for task in self._opened().live_tasks():
            if scope.covers(task.namespace, task.owner):
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
        document = self._opened().get(task_id)
        if document is None or not document.is_visible(scope, now):
            raise TaskNotFound(task_id)
        return document

    def _waiting(self, request: ClaimRequest, phase: Phase) -> list[Task]:
        return [task for task in self._opened().live_tasks() if task.phase is phase and request.can_run(task)]
