"""Read, decide, commit, and again if somebody was quicker: how what is asked becomes a change."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from raincheck.core.change import Change
from raincheck.core.commands import Answer, Command, Expire, Interrupt
from raincheck.core.decide import DEFAULT_LIMITS, decide
from raincheck.core.limits import Limits
from raincheck.core.owner import Scope
from raincheck.core.payload import Payload
from raincheck.core.records import Task, TaskId
from raincheck.errors import StaleChange
from raincheck.stores.base import Store


async def apply(
    store: Store,
    task_id: TaskId,
    scope: Scope,
    command: Command,
    *,
    now: datetime,
    limits: Limits = DEFAULT_LIMITS,
) -> Task:
    """Do what the command asks, and return the task as it is then. If there was nothing to change, the task as it is.

    Raises:
        TaskNotFound, IllegalTransition, LeaseLost, TooLarge: as decided on the task as it is by then.
        AlreadyRecorded, QuotaExceeded: something that the command brings can't be kept.
    """

    async def read_and_decide() -> tuple[Task, Change | None]:
        task = await store.load(task_id, scope, now=now)
        return task, decide(task, command, now, limits)

    return await keep(store, read_and_decide)


async def answer(
    store: Store,
    task_id: TaskId,
    scope: Scope,
    answers: Mapping[str, Payload],
    *,
    actor: str,
    now: datetime,
    limits: Limits = DEFAULT_LIMITS,
) -> Task:
    """Answer open questions by their keys. Keys that are unknown, or answered already, are ignored.

    Raises:
        TaskNotFound, IllegalTransition, TooLarge: as decided on the task as it is by then.
    """

    async def read_and_decide() -> tuple[Task, Change | None]:
        view = await store.view(task_id, scope, now=now)
        return view.task, decide(view.task, Answer(view.inputs, answers, actor), now, limits)

    return await keep(store, read_and_decide)


async def sweep(store: Store, *, now: datetime, limit: int = 100) -> tuple[Task, ...]:
    """Take back what dead workers held, and end what is past its deadline. Returns the tasks that it changed.

    A task whose holder extends or finishes in the meantime is left alone.
    """
    swept: list[Task] = []
    for task in await store.overdue(now=now, limit=limit):
        is_late = task.deadline_at is not None and task.deadline_at <= now
        change = decide(task, Expire() if is_late else Interrupt(), now)
        if change is None:
            continue
        try:
            await store.commit([change])
        except StaleChange:
            continue
        swept.append(change.after)
    return tuple(swept)


async def keep(store: Store, read_and_decide: Callable[[], Awaitable[tuple[Task, Change | None]]]) -> Task:
    """Keep what is decided on the task as it was read, and the same again if somebody was quicker."""
    # Each further round means that somebody else's change of this very task was kept, so it ends.
    while True:
        task, change = await read_and_decide()
        if change is None:
            return task
        try:
            await store.commit([change])
        except StaleChange:
            continue
        return change.after
