"""The memory store: it favours being obviously right over being fast.

Each method runs without giving up the event loop, and records are frozen, so nobody sees a change in the middle and
what is handed out can't be changed behind the store's back.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.content import Artifact, Journal, View
from raincheck.core.counting import count_live, count_states
from raincheck.core.document import TaskDocument
from raincheck.core.durations import Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, Task, TaskId, Tool
from raincheck.errors import StoreUnavailable
from raincheck.stores.checks import (
    check_definitions,
    check_named_once,
    check_news,
    check_secret_name,
    new_secret,
)
from raincheck.stores.feed import Feed, Feeds
from raincheck.stores.interface import Capabilities
from raincheck.stores.memory.documents import IndexedDocuments, Transaction
from raincheck.stores.requests import (
    PAGE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    Page,
    Position,
    TaskQuery,
    next_moment,
    overdue_of,
    page_of,
    page_size,
)


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
