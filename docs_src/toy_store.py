"""A toy store: each task is one document in a toy database."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from docs_src.toy_database import ToyDatabase

from raincheck import Quota, stores
from raincheck.stores import (
    Artifact,
    Capabilities,
    Change,
    ChangeBroadcaster,
    ChangeFeed,
    ClaimRequest,
    Creation,
    DurationHistogram,
    HeldAttempt,
    HistoryEntry,
    Journal,
    Page,
    PageCursor,
    Phase,
    Scope,
    StoreUnavailable,
    Task,
    TaskDocument,
    TaskId,
    TaskQuery,
    Tool,
    View,
)


class ToyStore:
    capabilities = Capabilities(durable=True, shared=True)

    def __init__(self, database: ToyDatabase) -> None:
        self._database, self._feeds = database, ChangeBroadcaster()

    async def open(self) -> None:
        with self._database.lock:
            self._database.listeners[self._feeds] = asyncio.get_running_loop()

    async def close(self) -> None:
        with self._database.lock:
            self._database.listeners.pop(self._feeds, None)
        self._feeds.close()

    def new_handle(self) -> "ToyStore":
        return ToyStore(self._database)

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        with self._require_open().transaction() as documents:
            return documents.create(creation, quota, now, claim)

    async def commit(self, changes: Sequence[Change]) -> None:
        stores.check_distinct_tasks(changes)
        with self._require_open().transaction() as documents:
            for change in changes:
                documents.commit(change)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        with self._require_open().transaction() as documents:
            for change in request.decide_wakeups(documents.live(), now):
                documents.commit(change)
            return documents.commit_claims(request.decide_claims(documents.claim_order(), now))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        return stores.find_next_due(self._require_open().documents.live(), namespace, tools)

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        with self._require_open().transaction() as documents:
            lost = (each for each in held if not documents.extend_lease(each.task_id, each.fence, until))
            return frozenset(each.task_id for each in lost)

    async def release_key(self, task_id: TaskId, key: str) -> None:
        with self._require_open().transaction() as documents:
            documents.release_key(task_id, key)

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        with self._require_open().transaction() as documents:
            return documents.prune(now, stores.clamp_limit(limit), only)

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return stores.find_overdue(self._require_open().documents.live(), now=now, limit=limit)

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        return self._document(task_id, scope, now).task

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return self._document(task_id, scope, now).view()

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return self._document(task_id, scope, now).journal()

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        return {artifact.name: artifact for artifact in self._document(task_id, scope, now).artifacts}.get(name)

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = stores.PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        return self._document(task_id, scope, now).history[after:][: stores.clamp_limit(limit)]

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        return stores.build_page(self._require_open().documents.tasks(), query, now=now, after=after, limit=limit)

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        return stores.count_live(self._require_open().documents.live(), scope)

    async def count_states(self, scope: Scope, *, now: datetime) -> dict[tuple[str, str], int]:
        return stores.count_states(self._require_open().documents.tasks(), scope, now)

    async def get_or_create_secret(self, name: str) -> bytes:
        stores.check_secret_name(name)
        with self._require_open().lock:
            return self._database.secrets.setdefault(name, stores.generate_secret())

    async def save_definitions(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        stores.check_definitions(namespace, definitions)
        with self._require_open().transaction() as documents:
            return documents.save_definitions(namespace, definitions)

    async def merge_durations(
        self, namespace: str, durations: Mapping[str, DurationHistogram]
    ) -> dict[str, DurationHistogram]:
        stores.check_durations(namespace, durations)
        with self._require_open().transaction() as documents:
            return documents.merge_durations(namespace, durations)

    def listen(self) -> AbstractContextManager[ChangeFeed]:
        self._require_open()
        return self._feeds.listen()

    def _require_open(self) -> ToyDatabase:
        if self._feeds not in self._database.listeners:
            raise StoreUnavailable("toy", "the store is not open: open it before use")
        return self._database

    def _document(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        return self._require_open().documents.get_visible(task_id, scope, now)
