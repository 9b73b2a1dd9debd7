"""`raincheck tasks cancel`, `pause`, `resume` and `retry`: control tasks, and report the outcome of each.

A task that has ended stays unchanged: its caller may have read its outcome, and no transition leaves a terminal phase.
`retry` therefore creates a new task, with the same tool, arguments, owner and caller. It starts from the beginning:
steps are not copied, since an operator who retries does not trust their results. The old task keeps its
idempotency key, since a caller that returns with the key asks for the old task. The old task's parent, if any, has
continued without it.
"""

import inspect
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from raincheck.cli.operator import ACTOR, ReasonOption, StoreOption, open_operator_store, store_command
from raincheck.cli.options import JsonOption, set_parameters
from raincheck.cli.output.results import make_console
from raincheck.clock import Clock, new_task_id
from raincheck.core.change import Creation, NewTask, create
from raincheck.core.commands import Cancel, Pause, Resume
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import NO_QUOTA, Limits
from raincheck.core.records import Journal, Task
from raincheck.core.values import clip
from raincheck.errors import IllegalTransition, TaskError, TaskNotFound
from raincheck.operations.describe import SHORT_ID_LENGTH, format_id, format_tool, printable
from raincheck.operations.select import EVERYTHING, find_task
from raincheck.operations.serialize import serialize_task
from raincheck.stores.base import Store, iterate_tasks
from raincheck.stores.commit import apply
from raincheck.stores.requests import TaskQuery

_EPILOG = """
Examples:

\b
  raincheck tasks {0} 019b76da40a1
  raincheck tasks {0} 019b76da40a1 019b76da4f03 --store /var/lib/tasks.db --json

An error with one task does not affect the other tasks. Exit codes: 0 success; 1 a task was not changed; 2 the store
can't be used.
"""
CANCEL_EPILOG, PAUSE_EPILOG, RESUME_EPILOG = map(_EPILOG.format, ("cancel", "pause", "resume"))

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="The tasks. A prefix of an id is enough.")]


class ActionNotApplicable(TaskError):
    """The requested action does not apply to the task."""


TaskAction = Callable[..., Coroutine[Any, Any, tuple[Task, str]]]
"""Acts on a task, and returns the changed or new task and what happened to the task.

It is called with the store, the task, the time and, if it takes one, the operator's reason.
"""


def task_command(act: TaskAction) -> Callable[..., NoReturn]:
    """Make a command of an action: it acts on each task that is named, and reports each outcome."""

    async def command(
        clock: Clock,
        task_ids: IdsArgument,
        store: StoreOption = None,
        as_json: JsonOption = False,
        **reason: str | None,
    ) -> bool:
        outcomes: list[dict[str, object]] = []
        async with open_operator_store(store, clock) as opened:
            for id_prefix in task_ids:
                outcomes.append(await _act_on(opened, id_prefix, partial(act, **reason), clock.now()))
                if not as_json:
                    _print(outcomes[-1])
        if as_json:
            typer.echo(json.dumps(outcomes, indent=2))
        return all(outcome["done"] for outcome in outcomes)

    *first, as_json, _ = inspect.signature(command).parameters.values()
    reason = list(inspect.signature(act).parameters.values())[3:]
    set_parameters(command, [*first, *reason, as_json])
    command.__doc__ = act.__doc__
    return store_command(command)


@task_command
async def cancel(store: Store, task: Task, now: datetime, reason: ReasonOption = None) -> tuple[Task, str]:
    """Cancel tasks.

    Also cancels their children, in any process. A workflow instance is cancelled even if its workflow does not allow
    that, and its state does not change.
    """
    return await apply(store, task.id, EVERYTHING, Cancel(ACTOR, reason), now=now), "is cancelled"


@task_command
async def pause(store: Store, task: Task, now: datetime, reason: ReasonOption = None) -> tuple[Task, str]:
    """Pause tasks until they are resumed.

    A running task pauses at its next checkpoint.
    """
    after = await apply(store, task.id, EVERYTHING, Pause(ACTOR, reason), now=now)
    if after.version == task.version:
        return after, "is already waiting for its next checkpoint to pause" if after.pausing else "is already paused"
    return after, "pauses at its next checkpoint" if after.pausing else "is paused"


@task_command
async def resume(store: Store, task: Task, now: datetime) -> tuple[Task, str]:
    """Resume paused tasks."""
    if not (task.phase is Phase.PAUSED or task.pausing or task.is_terminal):
        raise ActionNotApplicable(task.id, f"is {task.phase}, not paused")
    return await apply(store, task.id, EVERYTHING, Resume(ACTOR), now=now), "is resumed"


async def _act_on(store: Store, id_prefix: str, act: TaskAction, now: datetime) -> dict[str, object]:
    """Apply the action to one task, and return the outcome as JSON."""
    name = id_prefix
    try:
        task = await find_task(store, id_prefix, now=now)
        name = f"{format_id(task.id)} ({format_tool(task.tool)})"
        after, result = await act(store, task, now)
    except ActionNotApplicable as error:
        message = f"{name} {error}"
    except IllegalTransition as error:
        message = f"{name} is {error.phase}: nothing changed"
    except TaskNotFound:
        message = f"{name} no longer exists"
    except TaskError as error:
        message = str(error)
    else:
        return {"id": id_prefix, "done": True, "message": f"{name} {result}", "task": serialize_task(after)}
    return {"id": id_prefix, "done": False, "message": message, "task": None}


def _print(outcome: dict[str, object]) -> None:
    is_done = bool(outcome["done"])
    style = "" if is_done else "red"
    make_console(is_error=not is_done).print(Text(str(outcome["message"]), style), soft_wrap=True)


RETRY_EPILOG = """
Examples:

\b
  raincheck tasks retry 019b76da40a1
  raincheck tasks retry 019b76da40a1 --reason 'the disk was full' --json

A task that has ended never changes, so a retry creates a new task, and prints its id. The new task has the same tool,
arguments and owner, and a server of the same name runs it. A task can be retried once: if the new task fails too, retry
that one. Earlier retries are searched for among the newest 100 tasks of the same owner and tool. Exit codes: 0 success;
1 a task was not retried; 2 the store can't be used.
"""

MAX_HISTORIES_READ = 100
"""The maximum number of tasks whose history is read.

Each takes a query, and the tool may have been called a million times since. An operator who retries so old a task is
expected to know about earlier retries.
"""


@task_command
async def retry(store: Store, task: Task, now: datetime, reason: ReasonOption = None) -> tuple[Task, str]:
    """Run failed or cancelled tasks again, as new tasks.

    Also tasks that ended with an error. The new tasks have the same arguments.
    """
    check_retryable(task)
    journal = await store.journal(task.id, EVERYTHING, now=now)
    before = await find_retry(store, task, now)
    if before is not None:
        raise ActionNotApplicable(
            task.id,
            f"was already retried as {format_id(before.id)}, which is {before.phase}: continue with that task",
        )
    creation = recreate_task(journal, reason, now)
    # The store's operator decides, regardless of the owner's quota.
    new = await store.create(creation, quota=NO_QUOTA, now=now)
    return new, f"is retried as {printable(new.id)}"


def check_retryable(task: Task) -> None:
    """Check that a task has ended without success.

    Raises:
        ActionNotApplicable: it has not. The error gives the reason.
    """
    if not task.is_terminal:
        raise ActionNotApplicable(task.id, f"is {task.phase}, and has not ended: wait for its end, or cancel it first")
    if task.phase is Phase.COMPLETED and not task.is_error:
        raise ActionNotApplicable(task.id, "has completed, so there is nothing to retry")


async def find_retry(store: Store, old: Task, now: datetime) -> Task | None:
    """Return the task that retries this one; None if there is none, or it is no longer stored.

    Nothing can be written to the old task, so its retry is searched for among later tasks: the newest
    `MAX_HISTORIES_READ` of the same owner and tool.
    """
    query = TaskQuery(Scope.for_namespace(old.namespace), tool=old.tool.name)
    read = 0
    async for task in iterate_tasks(store, query, now=now):
        if task.created_at < old.created_at or read == MAX_HISTORIES_READ:
            return None
        if task.owner != old.owner:
            continue
        read += 1
        if await _is_retry_of(store, task, old, now):
            return task
    return None


async def _is_retry_of(store: Store, task: Task, old: Task, now: datetime) -> bool:
    if task.id == old.id:
        return False
    try:
        first_entries = await store.history(task.id, EVERYTHING, now=now, limit=1)
    except TaskNotFound:
        return False
    return any(entry.actor == ACTOR and (entry.note or "").partition(": ")[0] == _note(old) for entry in first_entries)


def _note(old: Task) -> str:
    # Only a prefix of the id: the whole id of an anonymous task grants access to it.
    return f"again what {printable(old.id[:SHORT_ID_LENGTH])} was"


def recreate_task(journal: Journal, reason: str | None, now: datetime) -> Creation:
    """Return a new task for the same request. It gets as much time to its deadline as the old one had."""
    old = journal.task
    new = NewTask(
        new_task_id(now),
        old.namespace,
        old.owner,
        old.tool,
        journal.arguments,
        caller=journal.caller,
        priority=old.priority,
        deadline_at=None if old.deadline_at is None else now + (old.deadline_at - old.created_at),
        retry=old.retry,
        retention=old.retention,
        actor=ACTOR,
    )
    # The limits under which the old task was created are not known here, so they are set to fit it.
    creation = create(new, now, Limits(arguments=len(journal.arguments), caller=len(journal.caller or b"")))
    note = f"{_note(old)}: {reason}" if reason else _note(old)
    return replace(creation, entry=replace(creation.entry, note=clip(note)))
