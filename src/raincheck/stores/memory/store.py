"""The memory store: it favours being obviously right over being fast.

Each method runs without giving up the event loop, and records are frozen, so nobody sees a change in the middle
and what is handed out can't be changed behind the store's back.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.commands import Claim, Due
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Lease, Task, TaskId, View
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
from raincheck.stores.memory.rows import Row, Rows


class MemoryStore:
    """Keeps tasks until the process ends. For tests, and for servers whose tasks need not survive."""

    capabilities = Capabilities(durable=False, shared=False)

    def __init__(self) -> None:
        self._rows = Rows()
        self._feeds = Feeds()
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._feeds.close()

    async def create(self, creation: Creation, *, quota: Quota, now: datetime) -> Task:
        task = self._open_rows().create(creation, quota, now)
        if task.id == creation.task.id:
            self._feeds.publish([task.id])
        return task

    async def commit(self, changes: Sequence[Change]) -> None:
        touched = ids_touched(changes)
        self._open_rows().commit(changes)
        self._feeds.publish(touched)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        rows = self._open_rows()
        parked = self._eligible(request, Phase.PARKED)
        due = [change for task in parked if (change := decide(task, Due(), now)) is not None]
        due = sorted(due, key=lambda change: change.before.due_at or now)[:DUE_LIMIT]
        rows.commit(due)
        queued = self._eligible(request, Phase.QUEUED)
        queued.sort(key=lambda task: (-task.priority, task.created_at, task.id))
        claim = Claim(request.holder, request.lease_for)
        claimed = [change for task in queued[: request.limit] if (change := decide(task, claim, now)) is not None]
        rows.commit(claimed)
        self._feeds.publish(change.before.id for change in (*due, *claimed))
        return tuple(change.after for change in claimed)

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        rows = self._open_rows()
        lost: set[TaskId] = set()
        for one in held:
            row = rows.get(one.task_id)
            attempt = None if row is None else row.task.attempt
            if row is None or attempt is None or attempt.number != one.fence:
                lost.add(one.task_id)
            else:
                lease = Lease(attempt.lease.holder, until)
                row.task = replace(row.task, attempt=replace(attempt, lease=lease))
        return frozenset(lost)

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        late = [
            task
            for task in self._open_rows().live_tasks()
            if (task.attempt is not None and task.attempt.lease.expires_at <= now)
            or (task.deadline_at is not None and task.deadline_at <= now)
        ]
        return tuple(late[:limit])

    async def prune(self, *, now: datetime, limit: int) -> tuple[TaskId, ...]:
        rows = self._open_rows()
        expired = [task.id for task in rows.tasks() if task.is_expired(now)][:limit]
        for task_id in expired:
            rows.forget(task_id)
        self._feeds.publish(expired)
        return tuple(expired)

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        return self._row(task_id, scope, now).task

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        row = self._row(task_id, scope, now)
        inputs = () if row.task.is_terminal else tuple(one for one in row.inputs.values() if one.is_open)
        return View(row.task, row.outcome, inputs)

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        row = self._row(task_id, scope, now)
        return Journal(
            row.task,
            row.arguments,
            row.caller,
            row.variables,
            tuple(row.steps.values()),
            tuple(row.inputs.values()),
            tuple(sorted(row.artifacts)),
        )

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        return self._row(task_id, scope, now).artifacts.get(name)

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        entries = self._row(task_id, scope, now).entries
        return tuple(entry for entry in entries if entry.seq > after)[:limit]

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: Position | None = None, limit: int = 100
    ) -> Page:
        rows = self._open_rows()
        if not query.scope.may_list:
            return Page((), None)
        found = [
            task
            for task in rows.tasks()
            if query.scope.covers(task.namespace, task.owner) and not task.is_expired(now)
            if query.parent_id in (None, task.parent_id) and query.tool in (None, task.tool.name)
            if query.phases is None or task.phase in query.phases
            if after is None or Position.of(task) < after
        ]
        found.sort(key=Position.of, reverse=True)
        return Page.of(found, page_size(limit))

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        counts: dict[Phase, int] = {}
        for task in self._open_rows().live_tasks():
            if scope.covers(task.namespace, task.owner):
                counts[task.phase] = counts.get(task.phase, 0) + 1
        return counts

    def listen(self) -> AbstractContextManager[Feed]:
        self._open_rows()
        return self._feeds.listen()

    def _open_rows(self) -> Rows:
        if not self._is_open:
            raise StoreUnavailable("memory:", "the store is not open: open it before use")
        return self._rows

    def _row(self, task_id: TaskId, scope: Scope, now: datetime) -> Row:
        row = self._open_rows().get(task_id)
        if row is None or row.task.is_expired(now) or not scope.covers(row.task.namespace, row.task.owner):
            raise TaskNotFound(task_id)
        return row

    def _eligible(self, request: ClaimRequest, phase: Phase) -> list[Task]:
        return [
            task
            for task in self._open_rows().live_tasks()
            if task.phase is phase and task.namespace == request.namespace and task.tool in request.tools
        ]
