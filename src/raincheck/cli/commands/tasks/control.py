"""`raincheck tasks retry`: run again what did not succeed.

What has ended stays as it is: its caller may have read how it ended, and nothing leads out of a terminal phase. So
this makes a new task, with the same tool, arguments, owner and caller, that begins from nothing: steps are not carried
over, since whoever retries does not trust what came of them. The old one's idempotency key stays where it is, since a
caller who comes back with it asks for the old task; and its parent, if it had one, has gone on without it.

`raincheck tasks cancel`, `pause` and `resume`, and how a command that is about several tasks tells of each.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from raincheck.cli.options import ACTOR, JsonOption, StoreOption, open_existing, run_on_store
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
from raincheck.operations.describe import ID_SHOWN, printable, told_id, told_tool
from raincheck.operations.select import EVERYTHING, find_task
from raincheck.operations.serialize import facts_of
from raincheck.stores.base import Store
from raincheck.stores.commit import apply
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery

# What follows a line with a backspace alone is printed as it stands.
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


class NotDone(TaskError):
    """What was asked of a task makes no sense for it."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a task."""

    task: Task
    words: str


Act = Callable[[Store, Task, datetime], Awaitable[Done]]


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

    async def act(opened: Store, task: Task, now: datetime) -> Done:
        return Done(await _apply(opened, task, Cancel(ACTOR, reason), now), "is cancelled")

    act_on_each(ctx, task_ids, store, act, as_json=as_json)


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

    async def act(opened: Store, task: Task, now: datetime) -> Done:
        after = await _apply(opened, task, Pause(ACTOR, reason), now)
        if after.version == task.version:
            return Done(after, "is to be paused already" if after.pausing else "is paused already")
        return Done(after, "is paused at its next checkpoint" if after.pausing else "is paused")

    act_on_each(ctx, task_ids, store, act, as_json=as_json)


def resume(
    ctx: typer.Context,
    task_ids: IdsArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let paused tasks go on."""

    async def act(opened: Store, task: Task, now: datetime) -> Done:
        if not (task.phase is Phase.PAUSED or task.pausing or task.is_terminal):
            raise NotDone(task.id, f"is {task.phase}, and not paused")
        return Done(await _apply(opened, task, Resume(ACTOR), now), "goes on")

    act_on_each(ctx, task_ids, store, act, as_json=as_json)


async def _apply(store: Store, task: Task, command: Command, now: datetime) -> Task:
    try:
        return await apply(store, task.id, EVERYTHING, command, now=now)
    except IllegalTransition as error:
        raise NotDone(task.id, f"is {error.phase}: nothing changed") from error
    except TaskNotFound as error:
        raise NotDone(task.id, "is gone by now") from error


def act_on_each(ctx: typer.Context, ids: list[str], store: str | None, act: Act, *, as_json: bool) -> NoReturn:
    """Do something to each task, tell what became of it, and end with 1 if something was not done."""

    async def work(clock: Clock) -> bool:
        told: list[dict[str, object]] = []
        async with open_existing(store, clock) as opened:
            for given in ids:
                told.append(await _act_on(opened, given, act, clock.now()))
                if not as_json:
                    _print(told[-1])
        if as_json:
            typer.echo(json.dumps(told, indent=2))
        return all(one["done"] for one in told)

    run_on_store(ctx, work)


async def _act_on(store: Store, given: str, act: Act, now: datetime) -> dict[str, object]:
    """What became of it, as JSON."""
    name = given
    try:
        task = await find_task(store, given, now=now)
        name = f"{told_id(task.id)} ({told_tool(task.tool)})"
        done = await act(store, task, now)
    except NotDone as error:
        return {"given": given, "done": False, "said": f"{name} {error}", "task": None}
    except TaskError as error:
        return {"given": given, "done": False, "said": str(error), "task": None}
    return {"given": given, "done": True, "said": f"{name} {done.words}", "task": facts_of(done.task)}


def _print(told: dict[str, object]) -> None:
    is_done = bool(told["done"])
    style = "" if is_done else "red"
    make_console(is_error=not is_done).print(Text(str(told["said"]), style), soft_wrap=True)


# What follows a line with a backspace alone is printed as it stands.
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

MOST_READ = 100
"""Of the tasks whose history is read. Each takes a query, and a tool may have been called a million times since: an
operator who retries something as old as that knows it."""


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

    async def act(opened: Store, task: Task, now: datetime) -> Done:
        check_may_retry(task)
        try:
            journal = await opened.journal(task.id, EVERYTHING, now=now)
        except TaskNotFound as error:
            raise NotDone(task.id, "is gone by now") from error
        before = await last_retry(opened, task, now)
        if before is not None:
            raise NotDone(
                task.id, f"was run again before, as {told_id(before.id)}, which is {before.phase}: see to that"
            )
        creation = same_again(journal, reason, now)
        # Whoever operates the store decides, and not how many tasks their owner may have.
        new = await opened.create(creation, quota=NO_QUOTA, now=now)
        return Done(new, f"is run again as {printable(new.id)}")

    act_on_each(ctx, task_ids, store, act, as_json=as_json)


def check_may_retry(task: Task) -> None:
    """Refuse to run again what still runs, or has succeeded.

    Raises:
        NotDone: it says why.
    """
    if not task.is_terminal:
        raise NotDone(task.id, f"is {task.phase}, and has not ended: cancel it first, or let it go on")
    if task.phase is Phase.COMPLETED and not task.is_error:
        raise NotDone(task.id, "has completed: there is nothing to run again")


async def last_retry(store: Store, old: Task, now: datetime) -> Task | None:
    """The task that somebody has run this again as; None if nobody has, or it is not kept any longer.

    Nothing about that can be written to the old one, so it is looked for among what came after it: the newest
    `MOST_READ` of the same owner and tool.
    """
    query = TaskQuery(Scope.within(old.namespace), tool=old.tool.name)
    after, read = None, 0
    while True:
        page = await store.list_tasks(query, now=now, after=after, limit=PAGE_LIMIT)
        for task in page.tasks:
            if task.created_at < old.created_at or read == MOST_READ:
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
    # Not more of the id: who has the whole of an anonymous task's has the right to it.
    return f"again what {printable(old.id[:ID_SHOWN])} was"


def same_again(journal: Journal, reason: str | None, now: datetime) -> Creation:
    """A new task that asks for the same. It has as much time to its deadline as the old one had."""
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
    # Who made the old one was bounded by limits of their own, which are not known here.
    creation = create(new, now, Limits(arguments=len(journal.arguments), caller=len(journal.caller or b"")))
    note = f"{_note(old)}: {reason}" if reason else _note(old)
    return replace(creation, entry=replace(creation.entry, note=clip(note)))
