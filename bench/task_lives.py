"""Run whole lives of tasks on a store, by concurrent callers."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from raincheck.clock import SystemClock, new_task_id
from raincheck.core.change import NewTask, create
from raincheck.core.commands import Claim, Complete
from raincheck.core.decide import decide
from raincheck.core.owner import Owner
from raincheck.core.policies import DEFAULT_RETENTION, Limits, Quota, Retention
from raincheck.core.records import Task, Tool
from raincheck.core.values import encode
from raincheck.stores.base import Store
from raincheck.stores.requests import ClaimRequest

NAMESPACE = "bench"
TOOL = Tool("build_report")
OWNER = Owner.token("https://issuer.example", "user")

_CLAIM = ClaimRequest(NAMESPACE, frozenset({TOOL}), "worker", timedelta(seconds=30), 1)
_LIMITS = Limits()
_QUOTA = Quota()
_clock = SystemClock()


StartAttempt: TypeAlias = Callable[[Store, Task, datetime], Awaitable[Task]]


async def claim_own(store: Store, task: Task, now: datetime) -> Task:
    """Start an attempt on this task, as a server does that runs the tasks it creates."""
    change = decide(task, Claim(_CLAIM.holder, _CLAIM.lease_for), now)
    assert change is not None
    await store.commit([change])
    return change.after


async def claim_from_queue(store: Store, _: Task, now: datetime) -> Task:
    """Start an attempt on the next queued task, as a worker does."""
    (task,) = await store.claim(_CLAIM, now=now)
    return task


async def run_one_task(
    store: Store, retention: Retention = DEFAULT_RETENTION, start_attempt: StartAttempt = claim_from_queue
) -> None:
    """Create a task, start an attempt, and complete it, in three transactions."""
    now = _clock.now()
    new = NewTask(new_task_id(now), NAMESPACE, OWNER, TOOL, encode({"year": 2026}), retention=retention)
    created = await store.create(create(new, now, _LIMITS), quota=_QUOTA, now=now)
    task = await start_attempt(store, created, now)
    change = decide(task, Complete(task.attempt_number, encode({"pages": 12})), now)
    assert change is not None
    await store.commit([change])


async def run_tasks(
    store: Store,
    tasks: int,
    callers: int,
    retention: Retention = DEFAULT_RETENTION,
    start_attempt: StartAttempt = claim_from_queue,
) -> None:
    """Run this many tasks, by this many concurrent callers."""
    remaining = iter(range(tasks))

    async def call() -> None:
        for _ in remaining:
            await run_one_task(store, retention, start_attempt)

    await asyncio.gather(*(call() for _ in range(callers)))
