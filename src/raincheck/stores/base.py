"""The store seam: a small set of whole transactions.

Theory of operation
===================
Rules live once, in `core`. A store keeps what was decided and does nothing else, so it can be small, and every store
behaves alike because one suite (`raincheck.testing.StoreContract`) says what alike means.

A change goes through three steps: *read* a task, *decide* (`core.decide`, pure), *commit*. Nothing is locked in
between. A commit holds only if the stored task still has the version that was read; otherwise nothing is
written and `StaleChange` says so. The loser of any race therefore learns that it lost, reads again, and decides
anew on what is true by then; `stores.commit` is that loop. Two verbs can't be split like that without workers
fighting over the same rows, and decide inside their transaction: `claim` and, because it counts, `create`. So is
what a task's end means for its relatives: it is decided in the commit of that end, since it must not be lost.

Four rules hold for every method:

- **Whole.** It happens entirely or not at all, also if the process dies in the middle, or the caller is cancelled.
- **Scoped.** A reader sees what its `Scope` covers. All else, and what expired at `now`, is the same `TaskNotFound`.
- **Timeless.** A store never asks what time it is: `now` is a parameter. Leases trust one clock, chosen where the
  program is put together (this machine's for stores on one machine, the database's for a store on many).
- **Honest.** What the driver raises arrives as a `StoreError`.

What a store is asked without changing anything. `Store` says what holds for all methods.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from raincheck.clock import Clock
from raincheck.core.change import Change, Creation
from raincheck.core.histogram import Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.stores.change_feed import Feed
from raincheck.stores.dispatcher import Dispatcher
from raincheck.stores.requests import PAGE_LIMIT, ClaimRequest, HeldAttempt, Page, Position, TaskQuery


class Reads(Protocol):
    """The part of a store that only reads."""

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        """The moment from which a claim for these tools may find something; None if there is nothing to wait for.

        It is `ANY_TIME` if a task is queued, else the moment when the first parked one is due. Only reads, so that a
        worker with nothing to do need not write. What is created or answered meanwhile is told by a feed.
        """
        ...

    async def overdue(self, *, now: datetime, limit: int) -> tuple[Task, ...]:
        """Tasks, of any namespace, whose lease or deadline is at or before `now`: somebody should take them back.

        Up to `limit`, which is brought within 1 and `PAGE_LIMIT`, the longest overdue first. Only reads: the caller
        decides and commits, and may lose to the holder who extends or finishes after all.
        """
        ...

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        """The task, or `TaskNotFound`. Costs the same whatever else is stored."""
        ...

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        """What answers a poll, as of one moment, or `TaskNotFound`."""
        ...

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        """What an attempt begins with, as of one moment, or `TaskNotFound`.

        Steps and questions come in the order of their recording, artifacts by name.
        """
        ...

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        """An artifact by its name; None if there is none of that name. `TaskNotFound` as everywhere."""
        ...

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        """Up to `limit` entries with a `seq` beyond `after`, oldest first, or `TaskNotFound`."""
        ...

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: Position | None = None, limit: int = 100
    ) -> Page:
        """A page of tasks, newest first (by creation, then by id).

        - Going on from `next` until it is None shows each task that existed throughout exactly once.
        - `limit` is brought within 1 and `PAGE_LIMIT`.
        - An owner who can't be told from others (`Scope.may_list` is false) gets an empty page.
        """
        ...

    async def count_states(self, scope: Scope, *, now: datetime) -> Mapping[tuple[str, str], int]:
        """How many processes are in each state, by workflow and state, whether or not they have ended.

        An owner who can't be told from others gets no counts. Raises InvalidValue for a scope without a namespace.
        """
        ...

    async def count_live(self, scope: Scope) -> Mapping[Phase, int]:
        """How many tasks are in each live phase. Phases without tasks are left out.

        An owner who can't be told from others gets no counts.
        """
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond the contract's core. The suite leaves out what is not declared, and only that."""

    durable: bool
    """What was committed is there when the store is opened again."""
    shared: bool
    """Several handles, in this process or others, may use the same data at the same time."""
    takes_offers: bool = True
    """A task can be begun in the transaction that creates it, for a creator who offers to run it."""
    clock: Clock | None = None
    """The clock that its leases trust, if that is not this machine's."""
    make_dispatcher: Callable[[], Dispatcher] | None = None
    """Makes what gets attempts to a worker, if it is not to look for work itself."""


class Store(Reads, Protocol):
    """What keeps tasks, and reads them (`Reads`). See the module's text for what holds for all methods."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do beyond the contract's core."""
        ...

    async def open(self) -> None:
        """Make the store ready, and bring an older schema up to date. Opening twice is fine.

        - Of several processes that open an older store at once, one migrates it; the others wait and find it done.
        - A newer schema is `SchemaMismatch`, what raincheck did not make is `NotAStore`; both are left untouched.
        """
        ...

    async def close(self) -> None:
        """Let go of everything, after what is under way. Feeds end. Closing twice is fine, and so is opening again."""
        ...

    def twin(self) -> "Store":
        """Another handle on the same data, not opened yet, for another event loop in this process.

        A heartbeat in a thread of its own uses one, so that a body that blocks the event loop keeps its lease. Where
        `capabilities.shared` is false it is `StoreUnavailable`, and so is opening a twin of data that is gone by then:
        it neither makes nor migrates any.
        """
        ...

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        """Keep a new task with its first history entry, and return it.

        - Committed when it returns: the id may leave the process.
        - Where the owner has a task in this namespace with the same idempotency key, that task is returned (its id
          differs from the one asked for), and nothing is created. Of two racing creates with one key, one creates
          and the other gets the winner's task. A task that has expired does not count any more: it is forgotten, and
          its key is free.
        - The same key with another `request_digest` is `IdempotencyConflict`.
        - The quota is counted in the same transaction, so two racing creates can't both take the last place:
          the loser gets `QuotaExceeded`. A task that is returned by its key is not counted again.
        - An id that exists is `AlreadyRecorded`.
        - With `claim`, whoever creates the task offers to run it at once. Its attempt is begun in the same transaction,
          just as `claim` would begin it, if the task is queued, the request can run it, and nothing else waits
          that the request could run: nothing queued, and nothing due at or before `now`. So nobody is overtaken.
          Otherwise it is created as without an offer. The task is returned as it is then: running or not.
        - A task that is returned by its key is as it was: it is never begun, whoever offers.
        - A store may decline all offers (`capabilities.takes_offers` is false) and leave the task in the queue.
        """
        ...

    async def commit(self, changes: Sequence[Change]) -> None:
        """Keep changes of one or several tasks: all of them or none.

        - `StaleChange` (with the id of the first that fails) unless each stored task has `before.version` and,
          where `lease_seen` is set, a lease that ends exactly then. A task that is gone is stale too.
        - A step that is recorded already, a question's key that was used before, or a spawned id that exists is
          `AlreadyRecorded`. A spawned task over the change's `quota`, counted as `create` counts it, is
          `QuotaExceeded`.
        - A change that ends a task is kept with what that means for its family (`core.family`), decided in the same
          transaction on what is stored by then. Its parent, if that lives, gets a signal, so a parked one wakes and a
          running one does not sleep through it. If it ended otherwise than completed, its live children are
          cancelled, and theirs, down the tree. So a commit that names a task and also a relative that its end changes
          is stale.
        - Record, history entry, outcome, steps, questions, artifacts, variables and spawned tasks show at one moment.
        - A task that enters the queue (also one spawned, created or woken) gets its turn at once (`core.fair_queue`).
        - Feeds hear of every task in `changes`, every spawned one and every relative that changed, after the commit
          and not before.
        """
        ...

    async def claim(self, request: ClaimRequest, *, now: datetime) -> tuple[Task, ...]:
        """Begin attempts on up to `limit` tasks, and return them as they are then.

        Eligible is a task that

        - is in the namespace, and whose tool is among `tools` in exactly that version;
        - is queued, or is parked with `due_at` at or before `now` (up to `DUE_LIMIT` of those, the first to be due
          first, pass through the queue in the same transaction).

        They are taken by higher priority, then by turn (`core.fair_queue`: owners take turns, so that one who has
        thousands queued does not hold up another), then by who was created first, then by id. Two claims never get
        the same task: one that comes second finds fewer, or none, without an error.
        It also remembers up to which turn it served each line. Nothing else does that but a `create` that begins its
        task, and nothing takes it back.
        """
        ...

    async def release_key(self, task_id: TaskId, key: str) -> None:
        """Free a task's idempotency key for another task, if it still has that key.

        - Otherwise nothing happens: it has another key or none, or is gone.
        - Nothing else about the task changes: not its version, not `updated_at`, not its history, and no feed hears of
          it. A change that was decided before still holds, and does not bring the key back.
        """
        ...

    async def extend_leases(self, held: Sequence[HeldAttempt], *, until: datetime) -> frozenset[TaskId]:
        """Let leases end at `until` instead, and return the tasks that are no longer held.

        - Held is a running task with the given fence. A lease that has run out but that nobody took away is extended.
        - Nothing else about the task changes: not its version, not `updated_at`, and no feed hears of it.
        - A stale holder changes nothing; it learns of it by the id's being in the answer.
        """
        ...

    async def prune(self, *, now: datetime, limit: int, only: Sequence[TaskId] | None = None) -> tuple[TaskId, ...]:
        """Forget up to `limit` tasks that expired at or before `now`, with everything that belongs to them.

        - `limit` is brought within 1 and `PAGE_LIMIT`.
        - With `only`, these instead, as far as they have ended, expired or not: an operator wants them gone. One that
          lives, or that there is not, is left out.
        - A child whose parent lives is kept: the parent may still have to read its result.
        - Feeds hear of them, so that nobody waits for what is gone.
        - It costs what is pruned, not what is kept.
        """
        ...

    async def secret(self, name: str) -> bytes:
        """A key of 32 random bytes of this name, made when it is first asked for: to sign with, and to hash with.

        - It is the same for every handle on the same data, for good. Several who ask first at once get the same.
        - One that exists is only read: nobody waits for a writer.
        - It is committed when it returns. It is in no error, log or history, and no feed hears of it.
        - A name that can't be kept is `InvalidValue`.
        """
        ...

    async def remember(self, namespace: str, definitions: Mapping[Tool, bytes]) -> Mapping[Tool, bytes]:
        """Keep what tools are made of, and return what the tools of all live tasks of the namespace are made of.

        - Those that were never kept are left out. Of several definitions of one version, the latest counts.
        - Whoever starts asks with what they have: of tasks that began under other definitions, they get those.
        """
        ...

    async def learn(self, namespace: str, news: Mapping[str, Sketch]) -> Mapping[str, Sketch]:
        """Merge how long tasks took, by the name of their tool, with what is known, and return all that is known then.

        - That is the whole namespace's, whoever measured it. Of several who bring news at once, nobody's are lost.
        - Without news it only reads: nobody waits for a writer.
        - No more than `core.durations.MOST_TOOLS` tools are kept for a namespace: further names are left out, quietly.
        - Committed when it returns. No task changes, and no feed hears of it.
        - A name that can't be kept is `InvalidValue`, and then nothing is kept.
        """
        ...

    def listen(self) -> AbstractContextManager[Feed]:
        """A feed that hints at the tasks that change from now on, by any handle on the same data.

        Iterate over it: each hint is a set of ids. An empty one means that anything may have changed: there were too
        many to name, or some may have been missed. Whoever waits for a task reads it again after either.
        """
        ...
