"""The store interface: a small set of whole transactions.

Theory of operation
===================
Rules live once, in `core`. A store persists what was decided and does nothing else, so it can be small. Every store
behaves alike because one suite (`raincheck.testing.StoreContract`) defines what alike means.

A change goes through three steps: *read* a task, *decide* (`core.decide`, pure), *commit*. No lock is held in between.
A commit succeeds only if the stored task still has the version that was read; otherwise nothing is written and the
store raises `StaleChange`. The loser of a race therefore learns that it lost, reads again, and decides again on the
current task; `stores.commit` is that loop. Two methods decide inside their transaction: `claim`, because workers would
otherwise compete for the same rows, and `create`, because it counts. The effects of a task's end on its relatives are
also decided in the commit of that end, since they must not be lost.

Four rules hold for every method:

- **Whole.** It happens entirely or not at all, even if the process dies halfway or the caller is cancelled.
- **Scoped.** A reader sees what its `Scope` covers. Everything else, and every task that expired at `now`, is the same
  `TaskNotFound`.
- **Timeless.** A store never reads a clock: `now` is a parameter. Leases trust one clock, chosen where the program is
  assembled (this machine's for stores on one machine, the database's for a store shared by many).
- **Honest.** Driver errors are raised as a `StoreError`.

`StoreReader` holds the methods that only read, and `Store` adds the rest.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from raincheck.clock import Clock
from raincheck.core.change import Change, Creation
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Quota
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.stores.change_feed import ChangeFeed
from raincheck.stores.dispatcher import Dispatcher
from raincheck.stores.requests import PAGE_LIMIT, ClaimRequest, HeldAttempt, Page, PageCursor, TaskQuery


class StoreReader(Protocol):
    """The read-only part of a store."""

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        """Return the time from which a claim for these tools may find a task; None if there is nothing to wait for.

        It is `DUE_NOW` if a task is queued, else the time when the first parked one is due. It only reads, so an idle
        worker does not write. A feed reports tasks that are created or answered in the meantime.
        """
        ...

    async def list_overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        """Return tasks of any namespace whose lease or deadline is at or before `now`, and which need to be swept.

        Returns up to `limit`, which is clamped to 1 to `PAGE_LIMIT`, the longest overdue first. It only reads: the
        caller decides and commits, and may lose to the holder, which may still extend its lease or finish.
        """
        ...

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        """Return the task, or raise `TaskNotFound`. The cost does not depend on what else is stored."""
        ...

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        """Return the answer to a poll, read at one moment, or raise `TaskNotFound`."""
        ...

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        """Return the journal that an attempt starts from, read at one moment, or raise `TaskNotFound`.

        Steps and input requests come in the order they were recorded, artifacts by name.
        """
        ...

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        """Return the artifact of that name, or None if there is none. Raises `TaskNotFound` like every read."""
        ...

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        """Return up to `limit` entries with a `seq` above `after`, oldest first, or raise `TaskNotFound`."""
        ...

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        """Return a page of tasks, newest first (by creation, then by id).

        - Continuing from `next` until it is None shows each task that existed throughout exactly once.
        - `limit` is clamped to 1 to `PAGE_LIMIT`.
        - An owner that can't be distinguished from others (`Scope.may_list` is false) gets an empty page.
        """
        ...

    async def count_states(self, scope: Scope, *, now: datetime) -> Mapping[tuple[str, str], int]:
        """Return the number of instances in each state, by workflow and state, whether or not they have ended.

        An owner that can't be distinguished from others gets no counts. Raises InvalidValue for a scope without a
        namespace.
        """
        ...

    async def count_live(self, scope: Scope) -> Mapping[Phase, int]:
        """Return the number of tasks in each live phase. Phases without tasks are omitted.

        An owner that can't be distinguished from others gets no counts.
        """
        ...


async def iterate_tasks(
    store: StoreReader,
    query: TaskQuery,
    *,
    now: datetime,
    after: PageCursor | None = None,
    page_size: int = PAGE_LIMIT,
) -> AsyncGenerator[Task]:
    """Yield all tasks of a list in its order. Pages are read on demand."""
    while True:
        page = await store.list_tasks(query, now=now, after=after, limit=page_size)
        for task in page.tasks:
            yield task
        after = page.next
        if after is None:
            return


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Optional features of a store. The contract suite skips exactly the tests of features that are not declared."""

    durable: bool
    """Committed data is still there when the store is opened again."""
    shared: bool
    """Several handles, in this process or in others, may use the same data at the same time."""
    supports_direct_start: bool = True
    """An attempt can start in the transaction that creates its task, if the creator offers to run it."""
    clock: Clock | None = None
    """The clock that leases trust, if it is not this machine's."""
    make_dispatcher: Callable[[], Dispatcher] | None = None
    """Creates the dispatcher that delivers attempts to a worker, if the worker is not to poll for work itself."""


class Store(StoreReader, Protocol):
    """Stores tasks and reads them (`StoreReader`). The module docstring states the rules that hold for all methods."""

    @property
    def capabilities(self) -> Capabilities:
        """The optional features of this store."""
        ...

    async def open(self) -> None:
        """Open the store, and migrate an older schema. Opening twice is fine.

        - If several processes open an older store at once, one migrates it; the others wait and find it migrated.
        - A newer schema is `SchemaMismatch`, data that raincheck did not create is `NotAStore`; both are left
          untouched.
        """
        ...

    async def close(self) -> None:
        """Release all resources after running operations end. Feeds end. Closing twice and reopening are both fine."""
        ...

    def new_handle(self) -> "Store":
        """Return another handle on the same data, not opened yet, for another event loop in this process.

        A heartbeat in its own thread uses one, so that a body that blocks the event loop keeps its lease. Where
        `capabilities.shared` is false it raises `StoreUnavailable`. So does opening a handle whose data is gone by
        then: such a handle neither creates nor migrates data.
        """
        ...

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        """Store a new task with its first history entry, and return it.

        - The task is committed when this returns: its id may leave the process.
        - If the owner has a task in this namespace with the same idempotency key, that task is returned (its id differs
          from the requested one), and nothing is created. Of two racing creates with one key, one creates and the other
          gets the winner's task. An expired task does not count any more: it is deleted, and its key is free.
        - The same key with another `request_digest` is `IdempotencyConflict`.
        - The quota is counted in the same transaction, so two racing creates can't both take the last slot: the loser
          gets `QuotaExceeded`. A task that is returned by its key is not counted again.
        - An id that exists is `AlreadyRecorded`.
        - With `claim`, the creator offers to run the task at once. Its attempt starts in the same transaction, exactly
          as `claim` would start it, if the task is queued, the request can run it, and no other work that the request
          could run is waiting: nothing queued, and nothing due at or before `now`. So no task is overtaken. Otherwise
          the task is created as without an offer. The returned task is as it is then: running or not.
        - A task that is returned by its key is returned unchanged: it is never started, regardless of the offer.
        - A store may decline all offers (`capabilities.supports_direct_start` is false) and leave the task in the
          queue.
        """
        ...

    async def commit(self, changes: Sequence[Change]) -> None:
        """Store changes of one or several tasks: all of them or none.

        - `StaleChange` (with the id of the first that fails) unless each stored task has `before.version` and, where
          `lease_seen` is set, a lease that ends exactly then. A deleted task is stale too.
        - A step that is recorded already, an input request key that was used before, or a spawned id that exists is
          `AlreadyRecorded`. A spawned task over the change's `quota`, counted as `create` counts it, is
          `QuotaExceeded`.
        - A change that ends a task is stored with its effects on its family (`core.effects`), decided in the same
          transaction on what is stored by then. Its parent, if live, gets a signal, so a parked parent wakes and a
          running one does not miss it. If the task ended in any way other than completed, its live children are
          cancelled, and their children, down the tree. So a commit that names a task and also a relative that its end
          changes is stale.
        - Record, history entry, outcome, steps, input requests, artifacts, variables and spawned tasks become visible
          at one moment.
        - A task that enters the queue (also one spawned, created or woken) gets its turn at once (`core.effects`).
        - Feeds are notified of every task in `changes`, every spawned one and every relative that changed, after the
          commit and not before.
        """
        ...

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        """Start attempts on up to `limit` tasks, and return the tasks as they are then.

        A task is eligible if it

        - is in the namespace, and its tool is among `tools` in exactly that version;
        - is queued, or is parked with `due_at` at or before `now` (up to `DUE_LIMIT` of those, the first to be due
          first, pass through the queue in the same transaction).

        Tasks are claimed by higher priority, then by turn (`core.effects`: owners take turns, so an owner with
        thousands of queued tasks does not hold up another), then by creation time, then by id. Two claims never get the
        same task: the second one finds fewer, or none, without an error. A claim also stores the turn up to which it
        served each queue. Only a claim, or a `create` that starts its task, does that, and nothing undoes it.
        """
        ...

    async def release_key(self, task_id: TaskId, key: str) -> None:
        """Free a task's idempotency key for another task, if it still has that key.

        - Otherwise nothing happens: the task has another key or none, or is deleted.
        - Nothing else about the task changes: not its version, not `updated_at`, not its history, and no feed is
          notified. A change that was decided before is still valid, and does not restore the key.
        """
        ...

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        """Set the end of leases to `until`, and return the tasks that are no longer held.

        - A task is held if it is running with the given fence. A lease that has expired but that was not taken over yet
          is extended.
        - Nothing else about the task changes: not its version, not `updated_at`, and no feed is notified.
        - A stale holder changes nothing; the id in the result informs it.
        """
        ...

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        """Delete up to `limit` tasks that expired at or before `now`, with everything that belongs to them.

        - `limit` is clamped to 1 to `PAGE_LIMIT`.
        - With `only`, delete these tasks instead, provided they have ended, expired or not: an operator requested it.
          Live and unknown tasks are left out.
        - A child whose parent is live is not deleted: the parent may still have to read its result.
        - Feeds are notified of them, so that no caller waits for a deleted task.
        - The cost depends on what is pruned, not on what remains.
        """
        ...

    async def get_or_create_secret(self, name: str) -> bytes:
        """Return the secret of this name, 32 random bytes, created at first use: a key to sign and to hash with.

        - It is the same for every handle on the same data, permanently. Concurrent first requests get the same one.
        - An existing one is only read: no caller waits for a writer.
        - It is committed when this returns. It appears in no error, log or history, and no feed is notified.
        - A name that can't be stored is `InvalidValue`.
        """
        ...

    async def save_definitions(self, namespace: str, definitions: Mapping[Tool, bytes]) -> Mapping[Tool, bytes]:
        """Store definitions of tools, and return the definitions of the tools of all live tasks of the namespace.

        - Tools without a stored definition are left out. Of several definitions of one version, the latest counts.
        - A server or worker calls this at startup with its own definitions: for tasks that started under other
          definitions, it gets the older ones.
        """
        ...

    async def merge_durations(
        self, namespace: str, durations: Mapping[str, DurationHistogram]
    ) -> Mapping[str, DurationHistogram]:
        """Merge task durations, by tool name, into the stored ones, and return all stored durations after that.

        - They cover the whole namespace, regardless of which process measured them. Concurrent merges lose nothing.
        - With no new durations it only reads: no caller waits for a writer.
        - At most `core.histogram.MAX_TOOLS` tools are stored for a namespace: further names are silently left out.
        - Committed when this returns. No task changes, and no feed is notified.
        - A name that can't be stored is `InvalidValue`, and then nothing is stored.
        """
        ...

    def listen(self) -> AbstractContextManager[ChangeFeed]:
        """Return a feed that hints at the tasks that change from now on, by any handle on the same data.

        Iterate over it: each hint is a set of ids. An empty set means that any task may have changed: there were too
        many to name, or some may have been missed. A listener that waits for a task reads it again after either.
        """
        ...
