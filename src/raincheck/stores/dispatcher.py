"""The dispatcher seam: what gets attempts to the processes that run them.

Theory of operation
===================
A store that everybody claims from needs no dispatcher: its tasks are the queue, and whoever works looks at it. Where
many machines work, an engine that is made for it carries attempts, and this is all that it has to do.

A **job** is a message: there is something to run, of this tool. It is queued in the transaction in which the task
enters the queue, so there is never one without the other. It names no task. A worker that gets it asks the store for
the task whose turn it is (`Hands.take`), and that begins the attempt, which raises the fence. So it does no harm if a
job comes twice, late, or for nothing; and priorities, turns and quotas are the store's, whoever carries the jobs. What
must never happen is a queued task without a job. `recover` is what sees to it after a crash.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

from raincheck.core.records import Task, Tool

Transaction = TypeVar("Transaction", contravariant=True)

Running: TypeAlias = asyncio.Future[Any]
"""An attempt that is under way. It is done when its place is free again."""


class Hands(Protocol):
    """A process that runs attempts: how much it can take, and how it takes it."""

    @property
    def namespace(self) -> str:
        """Whose tasks it runs."""
        ...

    @property
    def concurrency(self) -> int:
        """How many attempts it runs at once at most."""
        ...

    @property
    def tools(self) -> frozenset[Tool]:
        """All that it can run."""
        ...

    @property
    def free(self) -> frozenset[Tool]:
        """Those of the tools for which there is room now."""
        ...

    async def follow(self) -> Running | None:
        """Begin another attempt after one that has ended, without a job; None if there is nothing to run, or no room.

        Whoever has been brought one is there anyway. To be brought the next as well takes twice as long.
        """
        ...

    async def take(self, told: Tool | None) -> Running | None:
        """Begin the attempt whose turn it is, and return it; None if there is nothing to run, or no room.

        `told` is the tool of the job that brought this about. If the turn is another tool's, that job has yet to do
        its work, and the store sees to it that another takes its place.
        """
        ...

    def when_room_changes(self, tell: Callable[[], None]) -> None:
        """Call this whenever `free` may have changed."""
        ...


class Jobs(Protocol[Transaction]):
    """What a store needs of a dispatcher, inside its transactions."""

    @property
    def deferral(self) -> str:
        """SQL, an expression: it queues a job for a task that enters the queue, and is the job's number.

        It is part of the statement that keeps the task, which is a transaction by itself then.
        """
        ...

    def parameters(self, task: Task) -> dict[str, Any]:
        """What the deferral takes for a task. No name of another parameter begins with `job_`."""
        ...

    @property
    def withdrawal(self) -> str:
        """SQL, an expression: it takes back the job of the number `job_id`, if there is one and nobody has it.

        For a task that has left the queue, and not because of a job.
        """
        ...

    async def is_ready(self, transaction: Transaction) -> bool:
        """Whether `migrate` has nothing to do."""
        ...

    async def migrate(self, transaction: Transaction) -> None:
        """Make what it needs in the database, or bring it up to date."""
        ...


class Dispatcher(Protocol):
    """What an engine needs of it."""

    async def run(self, hands: Hands) -> None:
        """Bring jobs to these hands, until it is told to stop. Whatever happens to the connection, it goes on."""
        ...

    def stop(self) -> None:
        """Bring nothing more. What is under way is left alone."""
        ...

    async def recover(self, now: datetime) -> datetime | None:
        """Have everything run that should: jobs that dead processes had, and parked tasks whose moment has come.

        Returns the next such moment that is known.
        """
        ...
