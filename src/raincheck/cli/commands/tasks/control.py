"""`raincheck tasks cancel`, `pause`, `resume` and `retry`: control tasks, and report the outcome of each.

A task that has ended stays unchanged: its caller may have read its outcome, and no transition leaves a terminal phase.
`retry` therefore creates a new task, with the same tool, arguments, owner and caller. It starts from the beginning:
steps are not carried over, since an operator who retries does not trust their results. The old task keeps its
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

Each task is tried, whatever becomes of the others. It ends with 0, with 1 if something was not done, or with 2 if the
store can't be used.
"""
CANCEL_EPILOG, PAUSE_EPILOG, RESUME_EPILOG = map(_EPILOG.format, ("cancel", "pause", "resume"))

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="The tasks. The beginning of an id is enough.")]
ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is kept in the history.")]


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
    """Stop tasks for good.

    With their children, whatever process they run in. A process of a workflow is stopped whatever that says, and its
    state stays what it was.
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
    """Hold tasks back until they are resumed.

    One that runs stops at its next checkpoint.
    """

    async def act(opened: Store, task: Task, now: datetime) -> ActionOutcome:
        after = await _apply(opened, task, Pause(ACTOR, reason), now)
        if after.version == task.version:
            return ActionOutcome(after, "is to be paused already" if after.pausing else "is paused already")
        return ActionOutcome(after, "is paused at its next checkpoint" if after.pausing else "is paused")

    apply_to_each(ctx, task_ids, store, act, as_json=as_json)


def resume(
    ctx: typer.Context,
    task_ids: IdsArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let paused tasks go on."""

    async def act(opened: Store, task: Task, now: datetime) -> ActionOutcome:
        if not (task.phase is Phase.PAUSED or task.pausing or task.is_terminal):
            raise ActionNotApplicable(task.id, f"is {task.phase}, and not paused")
        return ActionOutcome(await _apply(opened, task, Resume(ACTOR), now), "goes on")

    apply_to_each(ctx, task_ids, store, act, as_json=as_json)


async def _apply(store: Store, task: Task, command: Command, now: datetime) -> Task:
    try:
        return await apply(store, task.id, EVERYTHING, command, now=now)
    except IllegalTransition as error:
        raise ActionNotApplicable(task.id, f"is {error.phase}: nothing changed") from error
    except TaskNotFound as error:
        raise ActionNotApplicable(task.id, "is gone by now") from error


def apply_to_each(
    ctx: typer.Context, ids: list[str], store: str | None, action: TaskAction, *, as_json: bool
) -> NoReturn:
    """Apply an action to each task, report each outcome, and exit with 1 if something was not done."""

    async def work(clock: Clock) -> bool:
        told: list[dict[str, object]] = []
        async with open_operator_store(store, clock) as opened:
            for given in ids:
                told.append(await _act_on(opened, given, action, clock.now()))
                if not as_json:
                    _print(told[-1])
        if as_json:
            typer.echo(json.dumps(told, indent=2))
        return all(one["done"] for one in told)

    run_on_store(ctx, work)


async def _act_on(store: Store, given: str, act: TaskAction, now: datetime) -> dict[str, object]:
    """Apply the action to one task, and return the outcome as JSON."""
    name = given
    try:
        task = await find_task(store, given, now=now)
        name = f"{format_id(task.id)} ({format_tool(task.tool)})"
        done = await act(store, task, now)
    except ActionNotApplicable as error:
        return {"given": given, "done": False, "said": f"{name} {error}", "task": None}
    except TaskError as error:
        return {"given": given, "done": False, "said": str(error), "task": None}
    return {"given": given, "done": True, "said": f"{name} {done.message}", "task": serialize_task(done.task)}


def _print(told: dict[str, object]) -> None:
    is_done = bool(told["done"])
    style = "" if is_done else "red"
    make_console(is_error=not is_done).print(Text(str(told["said"]), style), soft_wrap=True)


# Text after a line that contains only \b is not rewrapped.
RETRY_EPILOG = """
Examples:

\b
  raincheck tasks retry 019b76da40a1
  raincheck tasks retry 019b76da40a1 --reason 'the disk was full' --json

What has ended never changes, so the new task has an id of its own, which is printed; it has the same tool, arguments
and owner, and a server of the same name runs it. A task is run again once: if that went wrong too, retry the new one.
It ends with 0, with 1 if something was not done, or with 2 if the
store can't be used. Whether it was run again is looked up in the newest 100 tasks of the same owner and tool.
"""

MAX_HISTORIES_READ = 100
"""The maximum number of tasks whose history is read.

Each takes a query, and a tool may have been called a million times since. An operator who retries so old a task knows
it.
"""


def retry(
    ctx: typer.Context,
    task_ids: IdsArgument,
    store: StoreOption = None,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run again what went wrong, as a new task.

    That is what failed, was cancelled or ended with an error. The new task has the same arguments.
    """

    async def act(opened: Store, task: Task, now: datetime) -> ActionOutcome:
        check_retryable(task)
        try:
            journal = await opened.journal(task.id, EVERYTHING, now=now)
        except TaskNotFound as error:
            raise ActionNotApplicable(task.id, "is gone by now") from error
        before = await find_retry(opened, task, now)
        if before is not None:
            raise ActionNotApplicable(
                task.id, f"was run again before, as {format_id(before.id)}, which is {before.phase}: see to that"
            )
        creation = recreate_task(journal, reason, now)
        # The store's operator decides, regardless of the owner's quota.
        new = await opened.create(creation, quota=NO_QUOTA, now=now)
        return ActionOutcome(new, f"is run again as {printable(new.id)}")

    apply_to_each(ctx, task_ids, store, act, as_json=as_json)


def check_retryable(task: Task) -> None:
    """Check that a task has ended without success.

    Raises:
        ActionNotApplicable: it has not. The error says why.
    """
    if not task.is_terminal:
        raise ActionNotApplicable(task.id, f"is {task.phase}, and has not ended: cancel it first, or let it go on")
    if task.phase is Phase.COMPLETED and not task.is_error:
        raise ActionNotApplicable(task.id, "has completed: there is nothing to run again")


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
        beginning = await store.history(task.id, EVERYTHING, now=now, limit=1)
    except TaskNotFound:
        return False
    return any(entry.actor == ACTOR and (entry.note or "").partition(": ")[0] == _note(old) for entry in beginning)


def _note(old: Task) -> str:
    # Only a prefix of the id: the whole id of an anonymous task is the right to it.
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
