"""A toy store: each task is one document in a toy database."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from docs_src.toy_database import ToyDatabase

from raincheck.core.change import Change, Creation
from raincheck.core.histogram import Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import StoreUnavailable
from raincheck.stores import requests
from raincheck.stores import requests as ask
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import Feed, Feeds
from raincheck.stores.documents import TaskDocument, count_live, count_states


class ToyStore:
    capabilities = Capabilities(durable=True, shared=True)

    def __init__(self, database: ToyDatabase) -> None:
        self._database, self._feeds = database, Feeds()

    async def open(self) -> None:
        with self._database.one_at_a_time:
            self._database.listening[self._feeds] = asyncio.get_running_loop()

    async def close(self) -> None:
        with self._database.one_at_a_time:
            self._database.listening.pop(self._feeds, None)
        self._feeds.close()

    def twin(self) -> "ToyStore":
        return ToyStore(self._database)

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ask.ClaimRequest | None = None
    ) -> Task:
        with self._opened().transaction() as documents:
            return documents.create(creation, quota, now, claim)

    async def commit(self, changes: Sequence[Change]) -> None:
        requests.check_named_once(changes)
        with self._opened().transaction() as documents:
            for change in changes:
                documents.keep(change)

    async def claim(self, request: ask.ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        with self._opened().transaction() as documents:
            for change in request.wake(documents.live(), now):
                documents.keep(change)
            return documents.take(request.begin(documents.line(), now))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        return ask.next_moment(self._opened().documents.live(), namespace, tools)

    async def extend_leases(self, held: Sequence[ask.HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        with self._opened().transaction() as documents:
            return frozenset(one.task_id for one in held if not documents.extend(one.task_id, one.fence, until))

    async def release_key(self, task_id: TaskId, key: str) -> None:
        with self._opened().transaction() as documents:
            documents.release_key(task_id, key)

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        with self._opened().transaction() as documents:
            return documents.prune(now, ask.page_size(limit), only)

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return ask.overdue_of(self._opened().documents.live(), now=now, limit=limit)

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
        return ask.page_of(self._opened().documents.tasks(), query, now=now, after=after, limit=limit)

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        return count_live(self._opened().documents.live(), scope)

    async def count_states(self, scope: Scope, *, now: datetime) -> dict[tuple[str, str], int]:
        return count_states(self._opened().documents.tasks(), scope, now)

    async def secret(self, name: str) -> bytes:
        requests.check_secret_name(name)
        with self._opened().one_at_a_time:
            return self._database.secrets.setdefault(name, requests.new_secret())

    async def remember(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        requests.check_definitions(namespace, definitions)
        with self._opened().transaction() as documents:
            return documents.remember(namespace, definitions)

    async def learn(self, namespace: str, news: Mapping[str, Sketch]) -> dict[str, Sketch]:
        requests.check_news(namespace, news)
        with self._opened().transaction() as documents:
            return documents.learn(namespace, news)

    def listen(self) -> AbstractContextManager[Feed]:
        self._opened()
        return self._feeds.listen()

    def _opened(self) -> ToyDatabase:
        if self._feeds not in self._database.listening:
            raise StoreUnavailable("toy", "the store is not open: open it before use")
        return self._database

    def _document(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        return self._opened().documents.visible(task_id, scope, now)
