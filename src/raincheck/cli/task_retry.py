"""`raincheck tasks retry`: run again what did not succeed.

What has ended stays as it is: its caller may have read how it ended, and nothing leads out of a terminal phase. So
this makes a new task, with the same tool, arguments, owner and caller, that begins from nothing: steps are not carried
over, since whoever retries does not trust what came of them. The old one's idempotency key stays where it is, since a
caller who comes back with it asks for the old task; and its parent, if it had one, has gone on without it.
"""

from dataclasses import replace
from datetime import datetime

import typer

from raincheck.cli.finding_tasks import EVERYTHING
from raincheck.cli.plain import ID_SHOWN, printable, told_id
from raincheck.cli.store_option import ACTOR, JsonOption, StoreOption
from raincheck.cli.task_steer import Done, IdsArgument, NotDone, ReasonOption, act_on_each
from raincheck.clock import new_task_id
from raincheck.core.change import Creation
from raincheck.core.content import Journal
from raincheck.core.create import NewTask, create
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import NO_QUOTA, Limits
from raincheck.core.owner import Scope
from raincheck.core.records import Task
from raincheck.core.text import clip
from raincheck.errors import TaskNotFound
from raincheck.stores.interface import Store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
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
