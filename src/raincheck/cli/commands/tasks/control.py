"""`raincheck tasks cancel`, `pause`, `resume` and `retry`: control tasks, and report the outcome of each.

A task that has ended stays unchanged: its caller may have read its outcome, and no transition leaves a terminal phase.
`retry` therefore creates a new task, with the same tool, arguments, owner and caller. It starts from the beginning:
steps are not copied, since an operator who retries does not trust their results. The old task keeps its
idempotency key, since a caller that returns with the key asks for the old task. The old task's parent, if any, has
continued without it.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from raincheck.cli.options import ACTOR, JsonOption, StoreOption, open_operator_store, run_on_store
from raincheck.cli.output.results import make_console
from raincheck.clock import Clock, new_task_id
from raincheck.core.change import Creation
from raincheck.core.commands import Cancel, Command, Pause, Resume
from raincheck.core.create import NewTask, create
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import NO_QUOTA, Limits
from raincheck.core.owner import Scope
from raincheck.core.records import Journal, Task
from raincheck.core.validation import clip
from raincheck.errors import IllegalTransition, TaskError, TaskNotFound
from raincheck.operations.describe import SHORT_ID_LENGTH, format_id, format_tool, printable
from raincheck.operations.select import EVERYTHING, find_task
from raincheck.operations.serialize import serialize_task
from raincheck.stores.base import Store
from raincheck.stores.commit import apply
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery

# Text after a line that contains only \b is not rewrapped.
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
ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, which is stored in the history.")]


class ActionNotApplicable(TaskError):
    """The requested action does not apply to the task."""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The outcome of an action on a task."""

    task: Task
    message: str


TaskAction = Callable[[Store, Task, datetime], Awaitable[ActionOutcome]]


def cancel(
    ctx: typer.Context,
    task_ids: IdsArgument,
    store: StoreOption = None,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel tasks.

    Also cancels their children, in any process. A workflow instance is cancelled even if its workflow does not allow
    that, and its state does not change.
    """

    async def act(opened: Store, task: Task, now: datetime) -> ActionOutcome:
        return ActionOutcome(await _apply(opened, task, Cancel(ACTOR, reason), now), "is cancelled")

    apply_to_each(ctx, task_ids, store, act, as_json=as_json)


def pause(
    ctx: typer.Context,
    task_ids: IdsArgument,
    store: StoreOption = None,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause tasks until they are resumed.

    A running task pauses at its next checkpoint.
    """

    async def act(opened: Store, task: Task, now: datetime) -> ActionOutcome:
        after = await _apply(opened, task, Pause(ACTOR, reason), now)
        if after.version == task.version:
            return ActionOutcome(
                after, "is already waiting for its next checkpoint to pause" if after.pausing else "is already paused"
            )
        return ActionOutcome(after, "pauses at its next checkpoint" if after.pausing else "is paused")

    apply_to_each(ctx, task_ids, store, act, as_json=as_json)


def resume(
    ctx: typer.Context,
    task_ids: IdsArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume paused tasks."""

    async def act(opened: Store, task: Task, now: datetime) -> ActionOutcome:
        if not (task.phase is Phase.PAUSED or task.pausing or task.is_terminal):
            raise ActionNotApplicable(task.id, f"is {task.phase}, not paused")
        return ActionOutcome(await _apply(opened, task, Resume(ACTOR), now), "is resumed")

    apply_to_each(ctx, task_ids, store, act, as_json=as_json)


async def _apply(store: Store, task: Task, command: Command, now: datetime) -> Task:
    try:
        return await apply(store, task.id, EVERYTHING, command, now=now)
    except IllegalTransition as error:
        raise ActionNotApplicable(task.id, f"is {error.phase}: nothing changed") from error
    except TaskNotFound as error:
        raise ActionNotApplicable(task.id, "no longer exists") from error


def apply_to_each(
    ctx: typer.Context, ids: list[str], store: str | None, action: TaskAction, *, as_json: bool
) -> NoReturn:
    """Apply an action to each task, report each outcome, and exit with 1 if something was not done."""

    async def work(clock: Clock) -> bool:
        outcomes: list[dict[str, object]] = []
        async with open_operator_store(store, clock) as opened:
            for id_prefix in ids:
                outcomes.append(await _act_on(opened, id_prefix, action, clock.now()))
                if not as_json:
                    _print(outcomes[-1])
        if as_json:
            typer.echo(json.dumps(outcomes, indent=2))
        return all(outcome["done"] for outcome in outcomes)

    run_on_store(ctx, work)


async def _act_on(store: Store, id_prefix: str, act: TaskAction, now: datetime) -> dict[str, object]:
    """Apply the action to one task, and return the outcome as JSON."""
    name = id_prefix
    try:
        task = await find_task(store, id_prefix, now=now)
        name = f"{format_id(task.id)} ({format_tool(task.tool)})"
        outcome = await act(store, task, now)
    except ActionNotApplicable as error:
        return {"id": id_prefix, "done": False, "message": f"{name} {error}", "task": None}
    except TaskError as error:
        return {"id": id_prefix, "done": False, "message": str(error), "task": None}
    return {"id": id_prefix, "done": True, "message": f"{name} {outcome.message}", "task": serialize_task(outcome.task)}


def _print(outcome: dict[str, object]) -> None:
    is_done = bool(outcome["done"])
    style = "" if is_done else "red"
    make_console(is_error=not is_done).print(Text(str(outcome["message"]), style), soft_wrap=True)


# Text after a line that contains only \b is not rewrapped.
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


def retry(
    ctx: typer.Context,
    task_ids: IdsArgument,
    store: StoreOption = None,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run failed or cancelled tasks again, as new tasks.

    Also tasks that ended with an error. The new tasks have the same arguments.
    """

    async def act(opened: Store, task: Task, now: datetime) -> ActionOutcome:
        check_retryable(task)
        try:
            journal = await opened.journal(task.id, EVERYTHING, now=now)
        except TaskNotFound as error:
            raise ActionNotApplicable(task.id, "no longer exists") from error
        before = await find_retry(opened, task, now)
        if before is not None:
            raise ActionNotApplicable(
                task.id,
                f"was already retried as {format_id(before.id)}, which is {before.phase}: continue with that task",
            )
        creation = recreate_task(journal, reason, now)
        # The store's operator decides, regardless of the owner's quota.
        new = await opened.create(creation, quota=NO_QUOTA, now=now)
        return ActionOutcome(new, f"is retried as {printable(new.id)}")

    apply_to_each(ctx, task_ids, store, act, as_json=as_json)


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
    after, read = None, 0
    while True:
        page = await store.list_tasks(query, now=now, after=after, limit=PAGE_LIMIT)
        for task in page.tasks:
            if task.created_at < old.created_at or read == MAX_HISTORIES_READ:
                return None
            if task.owner != old.owner:
                continue
            read += 1
            if await _is_retry_of(store, task, old, now):
                return task
        after = page.next
        if after is None:
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
