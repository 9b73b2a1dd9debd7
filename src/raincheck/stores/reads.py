"""What a store is asked without changing anything. `stores.interface` says what holds for all methods."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from raincheck.core.content import Artifact, Journal, View
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, Task, TaskId, Tool
from raincheck.stores.requests import PAGE_LIMIT, Page, Position, TaskQuery


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
