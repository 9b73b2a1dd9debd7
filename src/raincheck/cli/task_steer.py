"""`raincheck tasks cancel`, `pause` and `resume`, and how a command that is about several tasks tells of each."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from raincheck.cli.finding_tasks import EVERYTHING, find_task
from raincheck.cli.plain import told_id, told_tool
from raincheck.cli.store_option import ACTOR, JsonOption, StoreOption, open_existing, run
from raincheck.cli.task_facts import facts_of
from raincheck.cli.telling import make_console
from raincheck.clock import Clock
from raincheck.core.commands import Cancel, Command, Pause, Resume
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.errors import IllegalTransition, TaskError, TaskNotFound
from raincheck.stores.apply import apply
from raincheck.stores.interface import Store

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

    run(ctx, work)


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
