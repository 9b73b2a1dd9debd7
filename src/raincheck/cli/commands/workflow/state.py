"""`raincheck workflow state` and `take`: show an instance's state and transitions, and take a transition."""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer

from raincheck.cli.operator import ACTOR, ReasonOption, StoreOption, open_operator_store, store_command
from raincheck.cli.options import JsonOption
from raincheck.cli.prompts.arguments import parse_arguments, read_files
from raincheck.clock import Clock
from raincheck.core.records import Task
from raincheck.engine import Settings, Toolbox
from raincheck.engine.instances import WorkflowInstances
from raincheck.engine.tool import EngineDeps
from raincheck.engine.workflow import AvailableTransition
from raincheck.errors import TaskError
from raincheck.operations.describe import format_id, format_json, printable
from raincheck.operations.select import find_task
from raincheck.operations.serialize import load_task_document, serialize_task
from raincheck.stores.base import Store
from raincheck.wire.fallback_text import clip_text

STATE_EPILOG = """
Examples:

\b
  raincheck workflow state 019b76da40a1
  raincheck workflow state 019b76da40a1 --store /var/lib/tasks.db --json

Exit codes: 0 success; 1 there is no such instance; 2 the store can't be used.
"""
TAKE_EPILOG = """
Examples:

\b
  raincheck workflow take 019b76da40a1 approve
  raincheck workflow take 019b76da40a1 reject --reason 'two records are missing'
  raincheck workflow take 019b76da40a1 submit text='all of it' pages:=3

Exit codes: 0 success; 1 the workflow does not allow the transition; 2 the store or the arguments can't be used.
"""

DEFINITION_UNAVAILABLE = "its transitions are known only to the program that defines its workflow in Python"

MAX_DATA_LENGTH = 300
"""The maximum number of characters of an instance's data. JSON output has all of it."""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The instance: its task's id, or a prefix of it.")]


class NotAnInstance(TaskError):
    """The task has no transitions: it is not a workflow instance, or it has ended."""


class DefinitionUnavailable(NotAnInstance):
    """The definition of the instance's workflow is not stored."""


@store_command
async def state(clock: Clock, task_id: IdArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the state of a workflow instance, and its transitions."""
    async with open_operator_store(store, clock) as opened:
        task = await find_task(opened, task_id, now=clock.now())
        state_name = _state_of(task)
        data = (await load_task_document(opened, task, now=clock.now()))["variables"] or {}
        transitions = () if task.is_terminal else await _available(opened, task, clock)
    if as_json:
        listed = None if transitions is None else [asdict(transition) for transition in transitions]
        typer.echo(format_json({**serialize_task(task), "data": data, "transitions": listed}))
        return
    typer.echo(f"{_format_instance(task)} is in {printable(state_name)}, and {task.status}")
    if data:
        typer.echo(f"  its data: {printable(clip_text(json.dumps(data, ensure_ascii=False), MAX_DATA_LENGTH))}")
    if transitions is None:
        typer.echo(f"  {DEFINITION_UNAVAILABLE}")
    for transition in transitions or ():
        typer.echo(f"  {_describe_transition(transition)}")


@store_command
async def take(
    clock: Clock,
    task_id: IdArgument,
    action: Annotated[str, typer.Argument(metavar="TRANSITION", help="A transition from its current state.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE...]", help="Values to add to its data.")
    ] = None,
    reason: ReasonOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a transition of a workflow instance, if its workflow allows that now."""
    data = parse_arguments(await asyncio.to_thread(read_files, words or ()), {})
    async with open_operator_store(store, clock) as opened:
        task = await find_task(opened, task_id, now=clock.now())
        instances = await _open_instances(opened, task, clock)
        after = await instances.transition(task.id, action, owner=task.owner, actor=ACTOR, reason=reason, data=data)
    if as_json:
        typer.echo(format_json(serialize_task(after)))
    else:
        typer.echo(f"{_format_instance(after)} is now in {printable(_state_of(after))}")


async def _available(store: Store, task: Task, clock: Clock) -> tuple[AvailableTransition, ...] | None:
    """Return the transitions of the current state; None if only the program that defines the workflow knows them."""
    try:
        instances = await _open_instances(store, task, clock)
    except DefinitionUnavailable:
        return None
    return tuple(await instances.available_transitions(task.id, owner=task.owner))


async def _open_instances(store: Store, task: Task, clock: Clock) -> WorkflowInstances:
    """Return the operations on an instance, by the definition that it started with.

    Raises:
        NotAnInstance: the task is not an instance, or has ended.
        DefinitionUnavailable: the definition is not stored.
    """
    state = _state_of(task)
    if task.is_terminal:
        raise NotAnInstance(task.id, f"task {format_id(task.id)} has no transitions: it has ended in {state!r}")
    definition = (await store.save_definitions(task.namespace, {})).get(task.tool)
    if definition is None:
        raise DefinitionUnavailable(
            task.id,
            f"the definition of {task.tool.name!r} in version {task.tool.version!r} is not stored, as for all "
            f"workflows in Python: use `engine.instances.transition` in the program that defines it",
        )
    from raincheck.workflows.load import restore_definition

    toolbox = Toolbox()
    toolbox.add_older_version((await asyncio.to_thread(restore_definition, definition)).tool())
    return WorkflowInstances(EngineDeps(store, clock, task.namespace, toolbox, Settings()))


def _state_of(task: Task) -> str:
    if task.state is None:
        raise NotAnInstance(
            task.id, f"task {format_id(task.id)} is not a workflow instance: its tool {task.tool.name!r} has no states"
        )
    return task.state.name


def _format_instance(task: Task) -> str:
    return f"{format_id(task.id)} ({printable(task.tool.name)})"


def _describe_transition(transition: AvailableTransition) -> str:
    reason = ", with a reason" if transition.requires_reason else ""
    closed = "" if transition.closed is None else f" (closed: {printable(transition.closed)})"
    return f"{printable(transition.action)} leads to {printable(transition.to)}{reason}{closed}"
