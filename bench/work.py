"""The work that is measured: a task's whole life, by as many callers at once as asked."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from raincheck.clock import SystemClock, new_task_id
from raincheck.core.commands import Claim, Complete
from raincheck.core.create import NewTask, create
from raincheck.core.decide import decide
from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner
from raincheck.core.payload import encode
from raincheck.core.policies import DEFAULT_RETENTION, Retention
from raincheck.core.records import Task, Tool
from raincheck.stores.base import Store
from raincheck.stores.requests import ClaimRequest

NAMESPACE = "bench"
TOOL = Tool("build_report")
OWNER = Owner.token("https://issuer.example", "somebody")

_CLAIM = ClaimRequest(NAMESPACE, frozenset({TOOL}), "worker", timedelta(seconds=30), 1)
_LIMITS = Limits()
_QUOTA = Quota()
_clock = SystemClock()


Begin: TypeAlias = Callable[[Store, Task, datetime], Awaitable[Task]]


async def begin_own(store: Store, task: Task, now: datetime) -> Task:
    """Begin an attempt on the task in hand, as a server does that runs what it has just created."""
    change = decide(task, Claim(_CLAIM.holder, _CLAIM.lease_for), now)
    assert change is not None
    await store.commit([change])
    return change.after


async def begin_from_queue(store: Store, _: Task, now: datetime) -> Task:
    """Begin an attempt on whichever task is next, as a worker does."""
    (task,) = await store.claim(_CLAIM, now=now)
    return task


async def live_once(store: Store, retention: Retention = DEFAULT_RETENTION, begin: Begin = begin_from_queue) -> None:
    """Create a task, begin an attempt, complete it: three transactions."""
    now = _clock.now()
    new = NewTask(new_task_id(now), NAMESPACE, OWNER, TOOL, encode({"year": 2026}), retention=retention)
    created = await store.create(create(new, now, _LIMITS), quota=_QUOTA, now=now)
    task = await begin(store, created, now)
    change = decide(task, Complete(task.attempt_number, encode({"pages": 12})), now)
    assert change is not None
    await store.commit([change])


async def live(
    store: Store,
    tasks: int,
    callers: int,
    retention: Retention = DEFAULT_RETENTION,
    begin: Begin = begin_from_queue,
) -> None:
    """Let so many tasks live, by so many callers at once."""
    left = iter(range(tasks))

    async def call() -> None:
        for _ in left:
            await live_once(store, retention, begin)

    await asyncio.gather(*(call() for _ in range(callers)))
