"""A toy store: each task is one document in a toy database, which several handles share and which outlives them."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TypeAlias

from raincheck.core.change import Change, Creation
from raincheck.core.content import Artifact, Journal, View
from raincheck.core.document import TaskDocument, find, insert, keep
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, Task, TaskId
from raincheck.errors import StoreUnavailable
from raincheck.stores import requests as ask
from raincheck.stores.feed import Feed, Feeds
from raincheck.stores.interface import Capabilities

Documents: TypeAlias = dict[TaskId, TaskDocument]


class ToyDatabase:
    """Stands for a real database: it has transactions, and tells those who listen what they changed."""

    def __init__(self) -> None:
        self.documents: Documents = {}
        self.listening: list[Feeds] = []

    @contextmanager
    def transaction(self) -> Generator[Documents]:
        """A copy to work on. It takes effect at one moment, and only if nothing is raised."""
        before, after = self.documents, dict(self.documents)
        yield after
        self.documents = after
        old, new = ({(key, one.task.version) for key, one in state.items()} for state in (before, after))
        for feeds in self.listening:
            feeds.publish(task_id for task_id, _ in old ^ new)


class ToyStore:
    capabilities = Capabilities(durable=True, shared=True)

    def __init__(self, database: ToyDatabase) -> None:
        self._database, self._feeds = database, Feeds()

    async def open(self) -> None:
        if self._feeds not in self._database.listening:
            self._database.listening.append(self._feeds)

    async def close(self) -> None:
        if self._feeds in self._database.listening:
            self._database.listening.remove(self._feeds)
        self._feeds.close()

    async def create(self, creation: Creation, *, quota: Quota, now: datetime) -> Task:
        new, key = creation.task, creation.task.idempotency_key
        whose = Scope.of(new.namespace, new.owner)
        with self._opened().transaction() as documents:
            theirs = [one for one in documents.values() if whose.covers(one.task.namespace, one.task.owner)]
            for holder in [one for one in theirs if key is not None and one.task.idempotency_key == key]:
                if holder.is_asked_for_by(creation, now):
                    return holder.task
                theirs.remove(holder)  # it has expired, so its key is free
                del documents[holder.task.id]
            quota.check([one.task for one in theirs], now)
            insert(documents, creation)
        return new

    async def commit(self, changes: Sequence[Change]) -> None:
        ask.ids_touched(changes)  # refuses a commit that names a task twice
        with self._opened().transaction() as documents:
            for change in changes:
                keep(documents, change)

    async def claim(self, request: ask.ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        with self._opened().transaction() as documents:
            for change in request.wake(tasks_in(documents), now):
                keep(documents, change)
            return tuple(keep(documents, change) for change in request.begin(tasks_in(documents), now))

    async def extend_leases(self, held: Sequence[ask.HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        lost: set[TaskId] = set()
        with self._opened().transaction() as documents:
            for one in held:
                document = documents.get(one.task_id)
                if document is None or (extended := document.extended(one.fence, until)) is None:
                    lost.add(one.task_id)
                else:
                    documents[one.task_id] = extended
        return frozenset(lost)

    async def prune(self, *, now: datetime, limit: int) -> tuple[TaskId, ...]:
        pruned = [task.id for task in self._tasks() if task.is_expired(now)][: ask.page_size(limit)]
        with self._opened().transaction() as documents:
            for task_id in pruned:
                del documents[task_id]
        return tuple(pruned)

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return tuple(task for task in self._tasks() if task.is_overdue(now))[: ask.page_size(limit)]

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        return self._document(task_id, scope, now).task

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return self._document(task_id, scope, now).view()

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return self._document(task_id, scope, now).journal()

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        return {one.name: one for one in self._document(task_id, scope, now).artifacts}.get(name)

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = ask.PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        return self._document(task_id, scope, now).history[after:][: ask.page_size(limit)]

    async def list_tasks(
        self, query: ask.TaskQuery, *, now: datetime, after: ask.Position | None = None, limit: int = 100
    ) -> ask.Page:
        return ask.page_of(self._tasks(), query, now=now, after=after, limit=limit)

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        live = (task for task in self._tasks() if not task.is_terminal and scope.may_list)
        return Counter(task.phase for task in live if scope.covers(task.namespace, task.owner))

    def listen(self) -> AbstractContextManager[Feed]:
        self._opened()
        return self._feeds.listen()

    def _opened(self) -> ToyDatabase:
        if self._feeds not in self._database.listening:
            raise StoreUnavailable("toy", "the store is not open: open it before use")
        return self._database

    def _tasks(self) -> list[Task]:
        return tasks_in(self._opened().documents)

    def _document(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        return find(self._opened().documents, task_id, scope, now)


def tasks_in(documents: Documents) -> list[Task]:
    return [one.task for one in documents.values()]
