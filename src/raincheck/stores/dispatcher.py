"""The dispatcher interface: delivers attempts to the worker processes that run them.

Theory of operation
===================
A store from which every worker claims needs no dispatcher: its tasks are the queue, and workers poll it. Where many
machines work, a dedicated queue delivers attempts, and this interface is all that it has to implement.

A **job** is a message: there is an attempt of this tool to run. It is queued in the transaction in which the task
enters the queue, so neither exists without the other. It names no task. A worker that receives it asks the store for
the next task by turn (`JobConsumer.claim_next`), which starts the attempt and raises the fence. So a job that arrives
twice, late, or for nothing does no harm; and priorities, turns and quotas belong to the store, regardless of which
queue carries the jobs. What must never happen is a queued task without a job. `recover` ensures that after a crash.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

from raincheck.core.records import Task, Tool

Transaction = TypeVar("Transaction", contravariant=True)

AttemptFuture: TypeAlias = asyncio.Future[Any]
"""A running attempt. The future is done when the attempt's slot is free again."""


class JobConsumer(Protocol):
    """A process that runs attempts: its capacity, and how it claims them."""

    @property
    def namespace(self) -> str:
        """The namespace whose tasks it runs."""
        ...

    @property
    def concurrency(self) -> int:
        """The maximum number of attempts it runs at once."""
        ...

    @property
    def tools(self) -> frozenset[Tool]:
        """All tools that it can run."""
        ...

    @property
    def free_tools(self) -> frozenset[Tool]:
        """The tools for which a slot is free now."""
        ...

    async def claim_following(self) -> AttemptFuture | None:
        """Start the next attempt after one that ended, without a job; None if there is no work or no free slot.

        The consumer that received a job is already running. Waiting for another job as well takes twice as long.
        """
        ...

    async def claim_next(self, job_tool: Tool | None) -> AttemptFuture | None:
        """Start the next attempt by turn, and return it; None if there is no work or no free slot.

        `job_tool` is the tool of the job that triggered this. If the next task is of another tool, that job still has
        work to trigger, and the store queues another job in its place.
        """
        ...

    def on_free_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `free_tools` may have changed."""
        ...


class JobQueue(Protocol[Transaction]):
    """The part of a dispatcher that a store uses inside its transactions."""

    @property
    def enqueue_sql(self) -> str:
        """SQL expression that queues a job for a task that enters the queue, and evaluates to the job's number.

        It is part of the statement that stores the task, which is then a transaction by itself.
        """
        ...

    def parameters(self, task: Task) -> dict[str, Any]:
        """Return the parameters of `enqueue_sql` for a task. No name of another parameter starts with `job_`."""
        ...

    @property
    def withdraw_sql(self) -> str:
        """SQL expression that withdraws the job with the number `job_id`, if it exists and no worker has fetched it.

        For a task that left the queue for another reason than a job.
        """
        ...

    async def is_migrated(self, transaction: Transaction) -> bool:
        """Return whether `migrate` has nothing to do."""
        ...

    async def migrate(self, transaction: Transaction) -> None:
        """Create the queue's schema in the database, or bring it up to date."""
        ...


class Dispatcher(Protocol):
    """The part of a dispatcher that an engine uses."""

    async def run(self, consumer: JobConsumer) -> None:
        """Deliver jobs to this consumer until `stop` is called. Connection failures do not end it."""
        ...

    def stop(self) -> None:
        """Deliver no more jobs. Running attempts are not affected."""
        ...

    async def recover(self, now: datetime) -> datetime | None:
        """Requeue work that would otherwise be lost: jobs of dead processes, and parked tasks that are due.

        Returns the next known due time.
        """
        ...
