"""Running a workflow in this process: begin it as a task, and stay with it as with any call.

What an earlier run of a workflow left: its arguments, and the results of its steps.

`raincheck workflow run`: run a workflow here, and see it through.

The server of a file of workflows, in this process: reached as any other, and found again by the command for it.
"""

import asyncio
import logging
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from mcp.client import Transport
from mcp.client._transport import TransportStreams
from mcp.shared.memory import create_client_server_memory_streams

from raincheck.cli.commands.workflow.check import FileArgument
from raincheck.cli.exit_codes import CODES, Ending, Unusable, find_workflow, refuse, refuse_unusable, tell
from raincheck.cli.options import (
    PATIENCE,
    BookOption,
    JsonOption,
    StoreOption,
    TimeoutOption,
    Wishes,
    book_path,
    open_existing,
)
from raincheck.cli.options import run_call as run_command
from raincheck.cli.prompts.arguments import as_object, check_arguments, read_arguments, read_files
from raincheck.cli.remote.connect import quiet, reach
from raincheck.cli.remote.saved_calls import Ledger
from raincheck.cli.remote.session import Scene, make_manner
from raincheck.client import Slip
from raincheck.clock import StoresClock, SystemClock
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import Json, decode
from raincheck.core.records import Task
from raincheck.engine import Engine
from raincheck.errors import RaincheckError
from raincheck.operations.describe import told_id
from raincheck.operations.redact import cover
from raincheck.operations.select import find_task
from raincheck.server.identity import ANSWERED_IN_WORDS
from raincheck.server.sdk_compat import lowlevel_of
from raincheck.stores.base import Store
from raincheck.stores.factory import find_address
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.stores.url import MemoryAddress
from raincheck.workflows.definition import Definition
from raincheck.workflows.parsing.models import RESTORED
from raincheck.workflows.serve import WorkflowTasks

if TYPE_CHECKING:
    from raincheck.workflows.pipelines.pipeline import Pipeline


class HereTarget:
    """What is run by this command. Whoever comes back to it later serves the same file."""

    ends_with_us = True
    has_secret = False

    def __init__(self, tasks: WorkflowTasks, store: str | None) -> None:
        self._tasks = tasks
        words = [*_program(), "serve", str(tasks.path), *([] if store is None else ["--store", store])]
        self._covered = cover(words)
        self.shown = self._covered.text
        # As a command that was started here would be called.
        self.name = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(words)}"

    def connect(self) -> Transport:
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        server = lowlevel_of(self._tasks.server)
        async with create_client_server_memory_streams() as (ours, theirs):
            serving = asyncio.ensure_future(server.run(*theirs, server.create_initialization_options()))
            try:
                yield ours
            finally:
                await ours[1].aclose()
                await asyncio.wait([serving])

    def last_words(self) -> str:
        return ""

    def hint(self) -> str | None:
        return None

    def cleaned(self, text: str) -> str:
        return self._covered.clean(text)


def _program() -> list[str]:
    """What starts this program once more."""
    if shutil.which("raincheck") is not None:
        return ["raincheck"]
    return [sys.executable, "-c", "from raincheck.cli import main; main()"]


# What follows a line with a backspace alone is printed as it stands.
EPILOG = f"""
Examples:

\b
  raincheck workflow run workflows.yaml release tag=v1.2
  raincheck workflow run workflows.yaml release @arguments.json --store tasks.db
  raincheck workflow run workflows.yaml release --from publish

Arguments are name=value, read as the workflow's input says; name:=JSON; @file.json or - (stdin) for an object with all
of them. With --from, what the steps before that one came to is taken from the latest run of this workflow, or from
the task that --task names, and so are its arguments, unless they are given anew. On a terminal, what the workflow asks
is asked there, and Ctrl-C offers to detach or to cancel. Tasks of this file that were left before go on meanwhile.
{CODES}"""


def run(
    file: FileArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which workflow to run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What to run it with.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Begin there, with earlier results of what is before.")
    ] = None,
    task_id: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="For --from: the task whose results to take.")
    ] = None,
    store: StoreOption = None,
    timeout: TimeoutOption = None,
    book: BookOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what is logged meanwhile.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a workflow here, and wait for its result."""
    if task_id is not None and step is None:
        refuse("--task says whose results to take: say from which step on, with --from", as_json=as_json)
    # The SDK takes most of a second to import. Other commands do without it.
    from raincheck.workflows.serve import WorkflowTasks

    try:
        tasks = WorkflowTasks(file)
    except RaincheckError as error:
        refuse_unusable(error, as_json=as_json)
    wishes = Wishes(
        headers=None, named_book=book, within=PATIENCE, is_verbose=verbose, as_json=as_json, timeout=timeout
    )
    asked = Asked(name, arguments or [], store, step, task_id)
    run_command(run_workflow(tasks, asked, wishes), as_json=as_json)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What to begin with."""

    arguments: dict[str, Any]
    restored: dict[str, Json] | None
    """The results of steps; None if nothing is taken from an earlier run."""


async def earlier_run(tasks: WorkflowTasks, definition: Definition, step: str, task_id: str | None) -> Earlier:
    """What there is of an earlier run for one that begins with a step.

    Raises:
        Unusable: there was none, or it is of no use.
    """
    pipeline = _pipeline_with(definition, step)
    clock = StoresClock()
    # As an operator: what a server ran for others may be gone on with here, too.
    async with open_existing(_store_of(tasks), clock) as store:
        task = await _find(store, tasks, definition.name, task_id, clock)
        journal = await store.journal(task.id, Scope.everything(), now=clock.now())
    arguments = cast("dict[str, Any]", decode(journal.arguments))
    before = cast("dict[str, Json]", arguments.pop(RESTORED, {}))
    checkpoints = {one.name: decode(one.result) for one in journal.steps}
    restored = _restorable(pipeline, step, before, checkpoints)
    anew = [one for one in pipeline.plan.order if one in pipeline.before(step) and one not in restored]
    many = "1 result of a step is that" if len(restored) == 1 else f"{len(restored)} results of steps are those"
    tell(f"{many} of task {told_id(task.id)}")
    if anew:
        tell(f"of what is before {step}, it has no result of {', '.join(anew)}: that is seen to anew")
    takes = as_object(definition.input_schema.get("properties"))
    # The file may have changed since, and what it does not take any more is of no use.
    return Earlier({one: value for one, value in arguments.items() if one in takes}, restored)


def _restorable(
    pipeline: "Pipeline", step: str, before: dict[str, Json], checkpoints: dict[str, Json]
) -> dict[str, Json]:
    from raincheck.workflows.load import find_restorable

    kept = {one: result for one, result in before.items() if one != step and _is_not_after(pipeline, one, step)}
    return {**kept, **find_restorable(pipeline, step, checkpoints)}


def _is_not_after(pipeline: "Pipeline", one: str, step: str) -> bool:
    return one in pipeline.plan.order and step not in pipeline.before(one)


def _pipeline_with(definition: Definition, step: str) -> "Pipeline":
    from raincheck.workflows.pipelines.pipeline import Pipeline

    if not isinstance(definition, Pipeline):
        raise Unusable(f"{definition.name} has states and no steps: --from is for pipelines")
    if step not in definition.plan.order:
        raise Unusable(
            f"{definition.name} has no step {step!r} to begin with: it has {', '.join(definition.plan.order)}"
        )
    return definition


def _store_of(tasks: WorkflowTasks) -> str | None:
    store = tasks.options.store
    return None if store is None else str(store)


async def _find(store: Store, tasks: WorkflowTasks, name: str, task_id: str | None, clock: StoresClock) -> Task:
    now = clock.now()
    if task_id is not None:
        task = await find_task(store, task_id, now=now)
        if task.tool.name != name:
            raise Unusable(f"task {told_id(task.id)} is of {task.tool.name}, and not of {name}")
        return task
    query = TaskQuery(Scope.within(tasks.options.namespace), tool=name)
    page = await store.list_tasks(query, now=now, limit=PAGE_LIMIT)
    # What other workflows began is theirs.
    ended = [task for task in page.tasks if task.is_terminal and task.parent_id is None]
    if not ended:
        namespace = tasks.options.namespace
        raise Unusable(
            f"no run of {name} has ended in namespace {namespace!r} of this store, which is that of the file's name: "
            f"name its task with --task, or run it without --from"
        )
    return ended[0]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run."""

    name: str
    words: list[str]
    """Its arguments, as they were typed."""
    store: str | None
    step: str | None
    """The step to begin with; None for all of them."""
    task_id: str | None
    """The task whose results to take; None for that of the latest run."""


class _Telling(logging.Handler):
    """Tells what functions of steps raise: whoever runs it here is its operator, and there is no other log."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(self.format(record))

    @classmethod
    @contextmanager
    def meanwhile(cls, *, is_verbose: bool) -> Generator[None]:
        logger, handler = logging.getLogger("raincheck.workflows.actions.python"), cls()
        if not is_verbose:
            logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


async def run_workflow(tasks: WorkflowTasks, asked: Asked, wishes: Wishes) -> Ending:
    """Run a workflow, and wait for the result.

    Raises:
        Unusable: it can't be run like that.
    """
    if not wishes.is_verbose:
        quiet()
    definition, given = find_workflow(tasks.path, tasks.definitions, asked.name), read_files(asked.words)
    tasks.configure(store=asked.store)
    if isinstance(find_address(tasks.options.store), MemoryAddress):
        raise Unusable(
            "what is kept in memory: ends with this command, and nobody could come back to it: name a file with --store"
        )
    target, book = HereTarget(tasks, asked.store), Ledger(book_path(wishes.named_book))
    # A book that can't be used is better known before there is a task.
    await book.slips()
    manner, scene = make_manner(target, book, wishes), Scene(asked.name, wishes.timeout)
    earlier = await _earlier(tasks, definition, asked)
    anew = read_arguments(given, definition.input_schema)
    arguments = {**earlier.arguments, **anew}
    check_arguments(asked.name, arguments, definition.input_schema, verb="run")
    _warn_of_mixing(earlier, anew)
    with scene.set(), _Telling.meanwhile(is_verbose=wishes.is_verbose):
        async with tasks.running() as engine:
            guard = scene.vigil.until_there
            async with reach(target, book=book, asked=scene.asker, within=wishes.within, guard=guard) as client:
                scene.vigil.begin()
                slip = await _begin(engine, target, definition, arguments, earlier)
                await book.add(slip)
                return await scene.stay(client.take_up(slip), manner)


async def _earlier(tasks: WorkflowTasks, definition: Definition, asked: Asked) -> Earlier:
    if asked.step is None:
        return Earlier({}, None)
    return await earlier_run(tasks, definition, asked.step, asked.task_id)


def _warn_of_mixing(earlier: Earlier, anew: dict[str, Any]) -> None:
    """Results that are taken over were made with the arguments of the earlier run."""
    others = [name for name, value in anew.items() if earlier.arguments.get(name) != value]
    if earlier.restored and others:
        tell(f"careful: {', '.join(others)} is not what the earlier run had, whose results are taken as they are")


async def _begin(
    engine: Engine, target: HereTarget, definition: Definition, arguments: dict[str, Any], earlier: Earlier
) -> Slip:
    """Make the task. Not by a call: no caller may say what steps came to."""
    restored = {} if earlier.restored is None else {RESTORED: earlier.restored}
    task = await engine.submit(
        definition.name,
        {**arguments, **restored},
        owner=Owner.local(),
        caller={"capabilities": ANSWERED_IN_WORDS},
        checks=False,
    )
    now = SystemClock().now().isoformat(timespec="seconds")
    return Slip(server=target.name, task_id=task.id, tool=definition.name, tier="2026-07-28", taken_at=now)
