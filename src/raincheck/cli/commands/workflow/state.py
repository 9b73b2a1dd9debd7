"""`raincheck workflow state` and `take`: where a process is, what leads on from there, and taking it there."""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer

from raincheck.cli.options import ACTOR, JsonOption, StoreOption, open_existing, run_on_store
from raincheck.cli.prompts.arguments import read_arguments, read_files
from raincheck.clock import Clock
from raincheck.core.limits import Limits
from raincheck.core.records import Task
from raincheck.engine import Toolbox
from raincheck.engine.instances import Processes
from raincheck.engine.submit import Means
from raincheck.engine.workflow import Available
from raincheck.errors import TaskError
from raincheck.operations.describe import json_of, printable, told_id
from raincheck.operations.select import find_task
from raincheck.operations.serialize import document_of, facts_of
from raincheck.stores.base import Store
from raincheck.wire.fallback_text import clipped

# What follows a line with a backspace alone is printed as it stands.
STATE_EPILOG = """
Examples:

\b
  raincheck workflow state 019b76da40a1
  raincheck workflow state 019b76da40a1 --store /var/lib/tasks.db --json

It ends with 0, with 1 if there is no such process, or with 2 if the store can't be used.
"""
TAKE_EPILOG = """
Examples:

\b
  raincheck workflow take 019b76da40a1 approve
  raincheck workflow take 019b76da40a1 reject --reason 'two records are missing'
  raincheck workflow take 019b76da40a1 submit text='all of it' pages:=3

It ends with 0, with 1 if the workflow does not allow it, or with 2 if the store can't be used, or what was given can't
be read.
"""

NOT_KEPT = "its transitions are known only to the program that has its workflow, which is written in Python"

LONGEST = 300
"""Characters of the data of a process. JSON has all of it."""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The process: its task's id, or how that begins.")]


class NoProcess(TaskError):
    """What was named can't be taken anywhere."""


class NotKept(NoProcess):
    """Nobody kept the definition of its workflow."""


def state(ctx: typer.Context, task_id: IdArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say where a process is, and what leads on from there."""

    async def work(clock: Clock) -> bool:
        async with open_existing(store, clock) as opened:
            task = await find_task(opened, task_id, now=clock.now())
            here = _state_of(task)
            data = (await document_of(opened, task, now=clock.now()))["variables"] or {}
            ways = () if task.is_terminal else await _available(opened, task, clock)
        if as_json:
            known = None if ways is None else [asdict(one) for one in ways]
            typer.echo(json_of({**facts_of(task), "data": data, "transitions": known}))
            return True
        typer.echo(f"{_named(task)} is in {printable(here)}, and {task.status}")
        if data:
            typer.echo(f"  its data: {printable(clipped(json.dumps(data, ensure_ascii=False), LONGEST))}")
        if ways is None:
            typer.echo(f"  {NOT_KEPT}")
        for one in ways or ():
            typer.echo(f"  {_told(one)}")
        return True

    run_on_store(ctx, work)


def take(
    ctx: typer.Context,
    task_id: IdArgument,
    action: Annotated[str, typer.Argument(metavar="TRANSITION", help="What leads on from the state it is in.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE...]", help="What is added to its data.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is kept in the history.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a process along one of its transitions, if its workflow allows that now."""

    async def work(clock: Clock) -> bool:
        data = read_arguments(await asyncio.to_thread(read_files, words or ()), {})
        async with open_existing(store, clock) as opened:
            task = await find_task(opened, task_id, now=clock.now())
            processes = await _processes(opened, task, clock)
            after = await processes.transition(task.id, action, owner=task.owner, actor=ACTOR, reason=reason, data=data)
        if as_json:
            typer.echo(json_of(facts_of(after)))
            return True
        typer.echo(f"{_named(after)} is in {printable(_state_of(after))} now")
        return True

    run_on_store(ctx, work)


async def _available(store: Store, task: Task, clock: Clock) -> tuple[Available, ...] | None:
    """What leads on from the state; None if only the program knows that has the workflow."""
    try:
        processes = await _processes(store, task, clock)
    except NotKept:
        return None
    return tuple(await processes.available(task.id, owner=task.owner))


async def _processes(store: Store, task: Task, clock: Clock) -> Processes:
    """What can be done with a process, by the definition that it began with.

    Raises:
        NoProcess: it is none, or has ended.
        NotKept: nobody kept that.
    """
    state = _state_of(task)
    if task.is_terminal:
        raise NoProcess(task.id, f"task {told_id(task.id)} can't be taken anywhere: it has ended in {state!r}")
    definition = (await store.remember(task.namespace, {})).get(task.tool)
    if definition is None:
        raise NotKept(
            task.id,
            f"nobody kept the definition of {task.tool.name!r} in version {task.tool.version!r}, as for workflows that "
            f"are written in Python: use `engine.processes.transition` in the program that has it",
        )
    from raincheck.workflows.load import rebuilt

    toolbox = Toolbox()
    toolbox.keep_older((await asyncio.to_thread(rebuilt, definition)).tool())
    return Processes(Means(store, clock, Limits()), task.namespace, toolbox)


def _state_of(task: Task) -> str:
    if task.state is None:
        raise NoProcess(task.id, f"task {told_id(task.id)} is no process: its tool {task.tool.name!r} has no states")
    return task.state.name


def _named(task: Task) -> str:
    return f"{told_id(task.id)} ({printable(task.tool.name)})"


def _told(one: Available) -> str:
    reason = ", with a reason" if one.requires_reason else ""
    closed = "" if one.closed is None else f" (closed: {printable(one.closed)})"
    return f"{printable(one.action)} leads to {printable(one.to)}{reason}{closed}"
