"""The memory store: tasks in this process's memory. It is the reference model that every other store is compared with.

It favours being obviously right over being fast. It holds the documents with a few indexes, and rolls back a write that
failed.

Each method runs without yielding to the event loop, and records are frozen, so no reader sees a change half-done and
returned records can't be modified behind the store's back.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Self

from raincheck.clock import SteadyClock
from raincheck.core.change import Change, Creation
from raincheck.core.effects import queue_key, turn_after, turn_group
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Quota
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import StoreUnavailable
from raincheck.stores.base import Capabilities
from raincheck.stores.change_feed import ChangeBroadcaster, ChangeFeed
from raincheck.stores.documents import Documents, TaskDocument, count_live, count_states
from raincheck.stores.requests import (
    PAGE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    Page,
    PageCursor,
    TaskQuery,
    build_page,
    check_definitions,
    check_distinct_tasks,
    check_durations,
    check_secret_name,
    clamp_limit,
    find_next_due,
    find_overdue,
    generate_secret,
)


@dataclass(slots=True)
class _OwnerUsage:
    """The facts a quota needs about one owner in a namespace: the live count, and sorted creation times."""

    live: int = 0
    created: list[datetime] = field(default_factory=list[datetime])


class IndexedDocuments(Documents):
    """All tasks, with indexes on the live and the queued ones, so that a search for work does not scan every task.

    Creation and pruning do not scan either: keys and expiring tasks have indexes, and tasks are counted per owner as
    they are created and deleted.

    As a context manager, it is a transaction: its writes take effect whole or not at all, and then the changed tasks
    are published.
    """

    def __init__(self, publish: Callable[[Iterable[TaskId]], None]) -> None:
        super().__init__()
        self._publish = publish
        self._live: dict[TaskId, TaskDocument] = {}
        self._queued: dict[TaskId, TaskDocument] = {}
        self._live_children: defaultdict[TaskId, dict[TaskId, TaskDocument]] = defaultdict(dict)
        self._turns: defaultdict[Hashable, list[int]] = defaultdict(list)
        """The sorted turns of the queued tasks: per kind in a queue, and per tool."""
        self._usage_by_owner: defaultdict[Hashable, _OwnerUsage] = defaultdict(_OwnerUsage)
        self._holders: dict[Hashable, TaskId] = {}
        """The task that has an owner's idempotency key."""
        self._expiring: list[tuple[datetime, TaskId]] = []
        """Expiry times of the ended tasks, sorted."""
        self._before: dict[TaskId, TaskDocument | None] = {}
        self._saved = self.served_turns, self.durations

    def __enter__(self) -> Self:
        self._before, self._saved = {}, (self.served_turns, self.durations)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self._publish(filter(self._is_changed, self._before))
            return
        self.served_turns, self.durations = self._saved
        for task_id, document in self._before.items():
            self._put(task_id, document)

    def _is_changed(self, task_id: TaskId) -> bool:
        """Return whether feeds report what was written of a task. A heartbeat is not a change: the version stays."""
        before, after = self._before[task_id], self.data.get(task_id)
        return before is None or after is None or before.task.version != after.task.version

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
        served = self.served_turns.get(queue_key(new), 0)
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
        usage = self._usage_by_owner.get(_owner_key(new), _OwnerUsage())
        quota.check_live(usage.live)
        if quota.created is not None and len(usage.created) >= quota.created:
            quota.check_created(usage.created[-quota.created], now)

    def _holder_of_key(self, new: Task) -> TaskDocument | None:
        holder = self._holders.get((_owner_key(new), new.idempotency_key))
        return None if holder is None else self.data[holder]

    def _index(self, document: TaskDocument) -> None:
        task = document.task
        usage = self._usage_by_owner[_owner_key(task)]
        insort(usage.created, task.created_at)
        if task.idempotency_key is not None:
            self._holders[_owner_key(task), task.idempotency_key] = task.id
        if task.expires_at is not None:
            insort(self._expiring, (task.expires_at, task.id))
        if task.is_terminal:
            return
        usage.live += 1
        self._live[task.id] = document
        if task.phase is Phase.QUEUED:
            self._queued[task.id] = document
            for group in _groups_of(task):
                insort(self._turns[group], document.turn)
        if task.parent_id is not None:
            self._live_children[task.parent_id][task.id] = document

    def _unindex(self, document: TaskDocument) -> None:
        task = document.task
        usage = self._usage_by_owner[_owner_key(task)]
        del usage.created[bisect_left(usage.created, task.created_at)]
        if not usage.created:
            del self._usage_by_owner[_owner_key(task)]
        key = _owner_key(task), task.idempotency_key
        # While a failed write is rolled back, the key may already belong to another task again.
        if self._holders.get(key) == task.id:
            del self._holders[key]
        if task.expires_at is not None:
            del self._expiring[bisect_left(self._expiring, (task.expires_at, task.id))]
        if self._live.pop(task.id, None) is not None:
            usage.live -= 1
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


def _owner_key(task: Task) -> Hashable:
    return task.namespace, task.owner.key


def _groups_of(task: Task) -> tuple[Hashable, Hashable]:
    """Return the groups of queued tasks that determine a task's turn: those of its kind, and those of its tool."""
    key = queue_key(task)
    return (key, turn_group(task)), (key, task.tool)


class MemoryStore:
    """A store that keeps tasks until the process ends. For tests, and for servers whose tasks need not survive."""

    def __init__(self) -> None:
        self.capabilities = Capabilities(durable=False, shared=False, clock=SteadyClock())
        self._feeds = ChangeBroadcaster()
        self._documents = IndexedDocuments(self._feeds.publish)
        self._secrets: dict[str, bytes] = {}
        self._is_open = False

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._feeds.close()

    def new_handle(self) -> "MemoryStore":
        raise StoreUnavailable(
            "memory:", "a memory store has only one handle and one event loop: use a store in a file"
        )

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        with self._require_open() as documents:
            return documents.create(creation, quota, now, claim)

    async def commit(self, changes: Sequence[Change]) -> None:
        check_distinct_tasks(changes)
        with self._require_open() as documents:
            for change in changes:
                documents.commit(change)

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        with self._require_open() as documents:
            for change in request.decide_wakeups(documents.live(), now):
                documents.commit(change)
            return documents.commit_claims(request.decide_claims(documents.claim_order(), now))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        documents = self._require_open()
        return find_next_due(documents.live(), namespace, tools)

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        with self._require_open() as documents:
            return frozenset(
                attempt.task_id for attempt in held if not documents.extend_lease(attempt.task_id, attempt.fence, until)
            )

    async def release_key(self, task_id: TaskId, key: str) -> None:
        with self._require_open() as documents:
            documents.release_key(task_id, key)

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return find_overdue(self._require_open().live(), now=now, limit=limit)

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        with self._require_open() as documents:
            return documents.prune(now, clamp_limit(limit), only)

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
        return tuple(entry for entry in history if entry.seq > after)[: clamp_limit(limit)]

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        return build_page(self._require_open().tasks(), query, now=now, after=after, limit=limit)

    async def count_states(self, scope: Scope, *, now: datetime) -> dict[tuple[str, str], int]:
        return count_states(self._require_open().tasks(), scope, now)

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        return count_live(self._require_open().live(), scope)

    async def get_or_create_secret(self, name: str) -> bytes:
        check_secret_name(name)
        self._require_open()
        return self._secrets.setdefault(name, generate_secret())

    async def save_definitions(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        check_definitions(namespace, definitions)
        return self._require_open().save_definitions(namespace, definitions)

    async def merge_durations(
        self, namespace: str, durations: Mapping[str, DurationHistogram]
    ) -> dict[str, DurationHistogram]:
        check_durations(namespace, durations)
        return self._require_open().merge_durations(namespace, durations)

    def listen(self) -> AbstractContextManager[ChangeFeed]:
        self._require_open()
        return self._feeds.listen()

    def _require_open(self) -> IndexedDocuments:
        if not self._is_open:
            raise StoreUnavailable("memory:", "the store is not open: open it before use")
        return self._documents

    def _document(self, task_id: TaskId, scope: Scope, now: datetime) -> TaskDocument:
        return self._require_open().get_visible(task_id, scope, now)
