"""The store of a simulation: one disk, and a handle on it for each simulated process.

The disk is the shipped memory store. It outlives the processes. Each operation happens at one moment, but a request
takes a while to reach the disk, and so does the reply. A request can fail before it has an effect, or its reply is
lost. What a killed process has requested may still happen.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from raincheck.core.change import Change, Creation
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Quota
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import StoreUnavailable, TaskNotFound
from raincheck.stores.base import Capabilities, Store
from raincheck.stores.change_feed import ANY_TASK, ChangeBroadcaster, ChangeFeed, ChangeHint
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import PAGE_LIMIT, ClaimRequest, HeldAttempt, Page, PageCursor, TaskQuery
from raincheck.testing.invariants import EARLIEST
from tests.simulation.loop import LANE, Lane, SimulatedLoop

T = TypeVar("T")

EVERYTHING = Scope.everything()


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """How slow and how unreliable the way to the disk is. Probabilities, and seconds."""

    refused: float = 0.0
    """A request fails without effect."""
    reply_lost: float = 0.0
    """A request is executed, and fails for the caller."""
    delayed: float = 0.5
    """A request or a reply takes a while."""
    very_late: float = 0.0
    """It takes up to `max_delay`."""
    max_delay: float = 3.0
    hint_lost: float = 0.0
    hint_delay: float = 0.03


class ObservedStore(MemoryStore):
    """The shipped memory store. It also lists the tasks that have changed, whether or not a feed was notified."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[TaskId, int] = {}

    def pop_changed(self) -> list[TaskId]:
        """Return the tasks that were created, changed or deleted since the last call."""
        versions = {task_id: document.task.version for task_id, document in self._documents.items()}
        changed = [task_id for task_id, version in versions.items() if self._versions.get(task_id) != version]
        changed += [task_id for task_id in self._versions if task_id not in versions]
        self._versions = versions
        return changed


class Disk:
    """The data, and the requests that are on their way to it."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, faults: StoreFaults) -> None:
        self.memory = ObservedStore()
        self.faults = faults
        self.on_change: Callable[[TaskId], object] = lambda _: None
        """Called with each task that has changed, at the moment of its commit."""
        self.violations: list[str] = []
        self.latest = EARLIEST
        """The latest time that a process starting on this data can know."""
        self.is_over = False
        self._loop = loop
        self._rng = rng
        self._handles: list[DiskHandle] = []
        self._context = Context()

    def open(self) -> None:
        """Open the store, and start to report its changes."""
        now_or_fail(self.memory.open())
        self._context.run(LANE.set, self._loop.base)
        self._loop.create_task(self._report_changes(), context=self._context)

    def new_handle(self, lane: Lane, *, takes_offers: bool) -> "DiskHandle":
        handle = DiskHandle(self, lane, takes_offers=takes_offers)
        self._handles.append(handle)
        return handle

    def detach(self, handle: "DiskHandle") -> None:
        """Forget the handle of a process that has ended."""
        if handle in self._handles:
            self._handles.remove(handle)

    def task(self, task_id: str) -> Task | None:
        """Return a task as it is stored; None if it is not."""
        try:
            return now_or_fail(self.memory.load(TaskId(task_id), EVERYTHING, now=EARLIEST))
        except TaskNotFound:
            return None

    async def request(self, handle: "DiskHandle", name: str, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Send an operation to the disk, and wait for the reply."""
        if self.is_over:
            raise asyncio.CancelledError
        reply: asyncio.Future[T] = self._loop.create_future()

        def execute() -> None:
            if handle.lane.is_dead and self._rng.random() < 0.5:
                return
            if handle.is_cut or self._rng.random() < self.faults.refused:
                self._reply(handle, reply, None, StoreUnavailable("the disk", f"{name} was refused"))
                return
            result, error = None, None
            try:
                result = now_or_fail(operation())
            except Exception as raised:  # noqa: BLE001 - any error of the store is the reply
                error = raised
            for task_id in self.memory.pop_changed():
                self.on_change(task_id)
            if self._rng.random() < self.faults.reply_lost:
                error = StoreUnavailable("the disk", f"the reply to {name} was lost")
            self._reply(handle, reply, result, error)

        self._loop.call_later(self._delay(), execute, context=self._context)
        return await reply

    async def extend(self, held: Sequence[HeldAttempt], until: datetime) -> frozenset[TaskId]:
        """Extend leases, and check that it concerns only those of the holders, and that stale holders are informed."""
        before = {attempt.task_id: self.task(attempt.task_id) for attempt in held}
        lost = await self.memory.extend_leases(held, until=until)
        for task_id, task in before.items():
            fences = [attempt.fence for attempt in held if attempt.task_id == task_id]
            current = None if task is None or task.attempt is None else task.attempt.number
            stale = [fence for fence in fences if fence != current]
            # A process may hold a task twice: in an attempt that has lost it, and in the next one.
            if stale and (task_id not in lost or (current not in fences and self.task(task_id) != task)):
                self.violations.append(f"fence: attempts {stale} of {task_id} extended a lease after they lost it")
        return lost

    def _reply(self, handle: "DiskHandle", reply: "asyncio.Future[T]", result: Any, error: Exception | None) -> None:
        def settle() -> None:
            if reply.done():
                return
            if error is not None:
                reply.set_exception(error)
            else:
                reply.set_result(result)

        self._loop.call_later(self._delay(), settle, context=handle.context)

    def _delay(self) -> float:
        chance = self._rng.random()
        if chance < self.faults.very_late:
            return self._rng.random() * self.faults.max_delay
        return self._rng.random() * 0.02 if chance < self.faults.delayed else 0.0

    async def _report_changes(self) -> None:
        with self.memory.listen() as feed:
            await feed.for_each(self._report)

    def _report(self, hint: ChangeHint) -> None:
        for task_id in sorted(hint):
            for handle in self._handles:
                if self._rng.random() >= self.faults.hint_lost:
                    handle.hint_later(frozenset({task_id}), self._rng.random() * self.faults.hint_delay)


class DiskHandle(Store):
    """One process's connection to the disk."""

    def __init__(self, disk: Disk, lane: Lane, *, takes_offers: bool) -> None:
        self.lane = lane
        self.context = Context()
        self.context.run(LANE.set, lane)
        self.is_cut = False
        """Whether the connection is interrupted."""
        self._disk = disk
        self._memory = disk.memory
        self._feeds = ChangeBroadcaster()
        self._capabilities = Capabilities(durable=True, shared=False, supports_direct_start=takes_offers)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def hint_later(self, hint: ChangeHint, delay: float) -> None:
        asyncio.get_running_loop().call_later(delay, self._publish, hint, context=self.context)

    def reconnect(self) -> None:
        """End an interruption. Hints were missed."""
        self.is_cut = False
        self.hint_later(ANY_TASK, 0.0)

    def _publish(self, hint: ChangeHint) -> None:
        if self.is_cut:
            return
        if hint == ANY_TASK:
            self._feeds.publish_any_task()
        else:
            self._feeds.publish(hint)

    def _do(self, name: str, operation: Callable[[], Coroutine[Any, Any, T]]) -> Coroutine[Any, Any, T]:
        return self._disk.request(self, name, operation)

    async def open(self) -> None:
        return

    async def close(self) -> None:
        self._feeds.close()

    def new_handle(self) -> Store:
        raise StoreUnavailable("the disk", "a simulated process has one handle and one event loop")

    def listen(self) -> AbstractContextManager[ChangeFeed]:
        return self._feeds.listen()

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        return await self._do("create", lambda: self._memory.create(creation, quota=quota, now=now, claim=claim))

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._do("commit", lambda: self._memory.commit(changes))

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        return await self._do("claim", lambda: self._memory.claim(request, now=now))

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        return await self._do("extend_leases", lambda: self._disk.extend(held, until))

    async def release_key(self, task_id: TaskId, key: str) -> None:
        await self._do("release_key", lambda: self._memory.release_key(task_id, key))

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        return await self._do("prune", lambda: self._memory.prune(now=now, limit=limit, only=only))

    async def get_or_create_secret(self, name: str) -> bytes:
        return await self._do("get_or_create_secret", lambda: self._memory.get_or_create_secret(name))

    async def save_definitions(self, namespace: str, definitions: Mapping[Tool, bytes]) -> Mapping[Tool, bytes]:
        return await self._do("save_definitions", lambda: self._memory.save_definitions(namespace, definitions))

    async def merge_durations(
        self, namespace: str, durations: Mapping[str, DurationHistogram]
    ) -> Mapping[str, DurationHistogram]:
        return await self._do("merge_durations", lambda: self._memory.merge_durations(namespace, durations))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        return await self._do("next_due", lambda: self._memory.next_due(namespace, tools))

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        return await self._do("list_overdue", lambda: self._memory.list_overdue(now=now, limit=limit))

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        return await self._do("load", lambda: self._memory.load(task_id, scope, now=now))

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return await self._do("view", lambda: self._memory.view(task_id, scope, now=now))

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return await self._do("journal", lambda: self._memory.journal(task_id, scope, now=now))

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        return await self._do("artifact", lambda: self._memory.artifact(task_id, name, scope, now=now))

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        return await self._do(
            "history", lambda: self._memory.history(task_id, scope, now=now, after=after, limit=limit)
        )

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        return await self._do("list_tasks", lambda: self._memory.list_tasks(query, now=now, after=after, limit=limit))

    async def count_states(self, scope: Scope, *, now: datetime) -> Mapping[tuple[str, str], int]:
        return await self._do("count_states", lambda: self._memory.count_states(scope, now=now))

    async def count_live(self, scope: Scope) -> Mapping[Phase, int]:
        return await self._do("count_live", lambda: self._memory.count_live(scope))


def now_or_fail(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait for anything."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("the memory store waited")
