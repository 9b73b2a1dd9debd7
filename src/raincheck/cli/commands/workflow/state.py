"""`raincheck workflow state` and `take`: show an instance's state and transitions, and take a transition."""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer

from raincheck.cli.options import ACTOR, JsonOption, StoreOption, open_operator_store, run_on_store
from raincheck.cli.prompts.arguments import parse_arguments, read_files
from raincheck.clock import Clock
from raincheck.core.limits import Limits
from raincheck.core.records import Task
from raincheck.engine import Toolbox
from raincheck.engine.instances import WorkflowInstances
from raincheck.engine.submit import EngineDeps
from raincheck.engine.workflow import AvailableTransition
from raincheck.errors import TaskError
from raincheck.operations.describe import format_id, format_json, printable
from raincheck.operations.select import find_task
from raincheck.operations.serialize import load_task_document, serialize_task
from raincheck.stores.base import Store
from raincheck.wire.fallback_text import clip_text

# Text after a line that contains only \b is not rewrapped.
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

DEFINITION_UNAVAILABLE = (
    "its transitions are known only to the program that has its workflow, which is written in Python"
)

MAX_DATA_LENGTH = 300
"""The maximum number of characters of an instance's data. JSON output has all of it."""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The process: its task's id, or how that begins.")]


class NotAnInstance(TaskError):
    """The task has no transitions: it is not a workflow instance, or it has ended."""


class DefinitionUnavailable(NotAnInstance):
    """The definition of the instance's workflow is not stored."""


def state(ctx: typer.Context, task_id: IdArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say where a process is, and what leads on from there."""

    async def work(clock: Clock) -> bool:
        async with open_operator_store(store, clock) as opened:
            task = await find_task(opened, task_id, now=clock.now())
            here = _state_of(task)
            data = (await load_task_document(opened, task, now=clock.now()))["variables"] or {}
            ways = () if task.is_terminal else await _available(opened, task, clock)
        if as_json:
            known = None if ways is None else [asdict(one) for one in ways]
            typer.echo(format_json({**serialize_task(task), "data": data, "transitions": known}))
            return True
        typer.echo(f"{_named(task)} is in {printable(here)}, and {task.status}")
        if data:
            typer.echo(f"  its data: {printable(clip_text(json.dumps(data, ensure_ascii=False), MAX_DATA_LENGTH))}")
        if ways is None:
            typer.echo(f"  {DEFINITION_UNAVAILABLE}")
        for one in ways or ():
            typer.echo(f"  {_describe_transition(one)}")
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
        data = parse_arguments(await asyncio.to_thread(read_files, words or ()), {})
        async with open_operator_store(store, clock) as opened:
            task = await find_task(opened, task_id, now=clock.now())
            processes = await _open_instances(opened, task, clock)
            after = await processes.transition(task.id, action, owner=task.owner, actor=ACTOR, reason=reason, data=data)
        if as_json:
            typer.echo(format_json(serialize_task(after)))
            return True
        typer.echo(f"{_named(after)} is in {printable(_state_of(after))} now")
        return True

    run_on_store(ctx, work)


async def _available(store: Store, task: Task, clock: Clock) -> tuple[AvailableTransition, ...] | None:
    """Return the transitions of the current state; None if only the program that has the workflow knows them."""
    try:
        processes = await _open_instances(store, task, clock)
    except DefinitionUnavailable:
        return None
    return tuple(await processes.available_transitions(task.id, owner=task.owner))


async def _open_instances(store: Store, task: Task, clock: Clock) -> WorkflowInstances:
    """Return the operations on an instance, by the definition that it started with.

    Raises:
        NotAnInstance: the task is not an instance, or has ended.
        DefinitionUnavailable: the definition is not stored.
    """
    state = _state_of(task)
    if task.is_terminal:
        raise NotAnInstance(task.id, f"task {format_id(task.id)} can't be taken anywhere: it has ended in {state!r}")
    definition = (await store.save_definitions(task.namespace, {})).get(task.tool)
    if definition is None:
        raise DefinitionUnavailable(
            task.id,
            f"nobody kept the definition of {task.tool.name!r} in version {task.tool.version!r}, as for workflows that "
            f"are written in Python: use `engine.instances.transition` in the program that has it",
        )
    from raincheck.workflows.load import restore_definition

    toolbox = Toolbox()
    toolbox.add_older_version((await asyncio.to_thread(restore_definition, definition)).tool())
    return WorkflowInstances(EngineDeps(store, clock, Limits()), task.namespace, toolbox)


def _state_of(task: Task) -> str:
    if task.state is None:
        raise NotAnInstance(
            task.id, f"task {format_id(task.id)} is no process: its tool {task.tool.name!r} has no states"
        )
    return task.state.name


def _named(task: Task) -> str:
    return f"{format_id(task.id)} ({printable(task.tool.name)})"


def _describe_transition(one: AvailableTransition) -> str:
    reason = ", with a reason" if one.requires_reason else ""
    closed = "" if one.closed is None else f" (closed: {printable(one.closed)})"
    return f"{printable(one.action)} leads to {printable(one.to)}{reason}{closed}"
