"""Apply commands to stored tasks: read, decide, commit, and retry if another writer committed first.

An `on_commit` observer is notified of each change once it is stored.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from raincheck.core.change import Change
from raincheck.core.commands import Answer, Command, Expire, Interrupt
from raincheck.core.decide import DEFAULT_LIMITS, decide
from raincheck.core.owner import Scope
from raincheck.core.policies import Limits
from raincheck.core.records import Task, TaskId
from raincheck.core.values import Payload
from raincheck.errors import StaleChange
from raincheck.stores.base import Store

CommitObserver: TypeAlias = Callable[[Change], Awaitable[None]]


async def apply(
    store: Store,
    task_id: TaskId,
    scope: Scope,
    command: Command,
    *,
    now: datetime,
    limits: Limits = DEFAULT_LIMITS,
    on_commit: CommitObserver | None = None,
) -> Task:
    """Apply the command, and return the task after it; the unchanged task if there was nothing to change.

    Raises:
        TaskNotFound, IllegalTransition, LeaseLost, TooLarge: as decided on the current task.
        AlreadyRecorded, QuotaExceeded: something in the command can't be stored.
    """

    async def read_and_decide() -> tuple[Task, Change | None]:
        task = await store.load(task_id, scope, now=now)
        return task, decide(task, command, now, limits)

    return await commit_until_current(store, read_and_decide, on_commit)


async def answer(
    store: Store,
    task_id: TaskId,
    scope: Scope,
    answers: Mapping[str, Payload],
    *,
    actor: str,
    now: datetime,
    limits: Limits = DEFAULT_LIMITS,
    on_commit: CommitObserver | None = None,
) -> Task:
    """Answer open input requests by their keys. Unknown keys and keys that are already answered are ignored.

    Raises:
        TaskNotFound, IllegalTransition, TooLarge: as decided on the current task.
    """

    async def read_and_decide() -> tuple[Task, Change | None]:
        view = await store.view(task_id, scope, now=now)
        return view.task, decide(view.task, Answer(view.inputs, answers, actor), now, limits)

    return await commit_until_current(store, read_and_decide, on_commit)


async def sweep(
    store: Store, *, now: datetime, limit: int = 100, on_commit: CommitObserver | None = None
) -> tuple[Task, ...]:
    """Interrupt attempts with an expired lease, and end tasks past their deadline. Return the changed tasks.

    A task whose holder extends or finishes in the meantime is left alone.
    """
    swept: list[Task] = []
    for task in await store.list_overdue(now=now, limit=limit):
        is_late = task.deadline_at is not None and task.deadline_at <= now
        change = decide(task, Expire() if is_late else Interrupt(), now)
        if change is None:
            continue
        try:
            await store.commit([change])
        except StaleChange:
            continue
        if on_commit is not None:
            await on_commit(change)
        swept.append(change.after)
    return tuple(swept)


async def commit_until_current(
    store: Store,
    read_and_decide: Callable[[], Awaitable[tuple[Task, Change | None]]],
    on_commit: CommitObserver | None = None,
) -> Task:
    """Commit the decision on the task as it was read, and start over if another writer committed first."""
    # Each further round means that another writer's change of this very task was committed, so the loop ends.
    while True:
        task, change = await read_and_decide()
        if change is None:
            return task
        try:
            await store.commit([change])
        except StaleChange:
            continue
        if on_commit is not None:
            await on_commit(change)
        return change.after
