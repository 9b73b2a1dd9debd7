"""`raincheck workflow run`: run a workflow in this process as a task, and monitor it like any call.

The file of workflows is served inside this process, and its task can be resumed later by the command that serves the
file. A run may start at a step: it then takes its arguments, and the results of earlier steps, from an earlier run.
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
from raincheck.cli.exit_codes import (
    EXIT_CODES_HELP,
    ExitCode,
    UsageError,
    echo_err,
    fail,
    fail_with_error,
    find_workflow,
)
from raincheck.cli.options import (
    DEFAULT_CONNECT_TIMEOUT,
    CallsOption,
    ConnectionOptions,
    JsonOption,
    StoreOption,
    TimeoutOption,
    calls_path,
    open_operator_store,
)
from raincheck.cli.options import run_call as run_command
from raincheck.cli.prompts.arguments import as_object, check_arguments, parse_arguments, read_files
from raincheck.cli.remote.connect import connect_client, silence_library_logs
from raincheck.cli.remote.saved_calls import DeferredSavedCalls
from raincheck.cli.remote.session import CallUI, make_reporter
from raincheck.client import TaskRef
from raincheck.clock import StoreClock, SystemClock
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import Json, decode
from raincheck.core.records import Task
from raincheck.engine import Engine
from raincheck.errors import RaincheckError
from raincheck.operations.describe import format_id
from raincheck.operations.redact import redact_command
from raincheck.operations.select import find_task
from raincheck.server.identity import FALLBACK_CAPABILITIES
from raincheck.server.sdk_compat import lowlevel_of
from raincheck.stores.base import Store
from raincheck.stores.factory import resolve_address
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.stores.url import MemoryAddress
from raincheck.workflows.definition import WorkflowDefinition
from raincheck.workflows.parsing.models import RESTORED
from raincheck.workflows.serve import WorkflowTasks

if TYPE_CHECKING:
    from raincheck.workflows.pipelines.pipeline import Pipeline


class InProcessTarget:
    """A server inside this process. A command that resumes its task later serves the same file."""

    ends_with_command = True
    has_secret = False

    def __init__(self, tasks: WorkflowTasks, store: str | None) -> None:
        self._tasks = tasks
        words = [*_program(), "serve", str(tasks.path), *([] if store is None else ["--store", store])]
        self._covered = redact_command(words)
        self.display_name = self._covered.text
        # In the form of a command that was started in this folder.
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

    def stderr_tail(self) -> str:
        return ""

    def hint(self) -> str | None:
        return None

    def redact(self, text: str) -> str:
        return self._covered.redact(text)


def _program() -> list[str]:
    """Return the command that starts this program again."""
    if shutil.which("raincheck") is not None:
        return ["raincheck"]
    return [sys.executable, "-c", "from raincheck.cli import main; main()"]


# Text after a line that contains only \b is not rewrapped.
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
{EXIT_CODES_HELP}"""


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
    calls: CallsOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what is logged meanwhile.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a workflow here, and wait for its result."""
    if task_id is not None and step is None:
        fail("--task says whose results to take: say from which step on, with --from", as_json=as_json)
    # Imported here: the SDK takes most of a second to import, and other commands don't need it.
    from raincheck.workflows.serve import WorkflowTasks

    try:
        tasks = WorkflowTasks(file)
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json)
    wishes = ConnectionOptions(
        headers=None,
        calls_path=calls,
        connect_timeout=DEFAULT_CONNECT_TIMEOUT,
        is_verbose=verbose,
        as_json=as_json,
        timeout=timeout,
    )
    asked = RunRequest(name, arguments or [], store, step, task_id)
    run_command(run_workflow(tasks, asked, wishes), as_json=as_json)


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """The arguments and the step results that a run takes from an earlier one."""

    arguments: dict[str, Any]
    restored: dict[str, Json] | None
    """The results of steps; None if nothing is taken from an earlier run."""


async def load_previous_run(
    tasks: WorkflowTasks, definition: WorkflowDefinition, step: str, task_id: str | None
) -> PreviousRun:
    """Return what a run that starts at a step takes from an earlier run.

    Raises:
        UsageError: there is no earlier run, or it can't be used.
    """
    pipeline = _pipeline_with(definition, step)
    clock = StoreClock()
    # With an operator's rights: a run that a server made for another caller can be resumed here, too.
    async with open_operator_store(_store_of(tasks), clock) as store:
        task = await _find(store, tasks, definition.name, task_id, clock)
        journal = await store.journal(task.id, Scope.everything(), now=clock.now())
    arguments = cast("dict[str, Any]", decode(journal.arguments))
    before = cast("dict[str, Json]", arguments.pop(RESTORED, {}))
    checkpoints = {one.name: decode(one.result) for one in journal.steps}
    restored = _results_to_restore(pipeline, step, before, checkpoints)
    anew = [one for one in pipeline.plan.order if one in pipeline.predecessors(step) and one not in restored]
    many = "1 result of a step is that" if len(restored) == 1 else f"{len(restored)} results of steps are those"
    echo_err(f"{many} of task {format_id(task.id)}")
    if anew:
        echo_err(f"of what is before {step}, it has no result of {', '.join(anew)}: that is seen to anew")
    takes = as_object(definition.input_schema.get("properties"))
    # The file may have changed since. Arguments that the workflow no longer takes are dropped.
    return PreviousRun({one: value for one, value in arguments.items() if one in takes}, restored)


def _results_to_restore(
    pipeline: "Pipeline", step: str, before: dict[str, Json], checkpoints: dict[str, Json]
) -> dict[str, Json]:
    from raincheck.workflows.load import find_restorable

    kept = {one: result for one, result in before.items() if one != step and _is_not_after(pipeline, one, step)}
    return {**kept, **find_restorable(pipeline, step, checkpoints)}


def _is_not_after(pipeline: "Pipeline", one: str, step: str) -> bool:
    return one in pipeline.plan.order and step not in pipeline.predecessors(one)


def _pipeline_with(definition: WorkflowDefinition, step: str) -> "Pipeline":
    from raincheck.workflows.pipelines.pipeline import Pipeline

    if not isinstance(definition, Pipeline):
        raise UsageError(f"{definition.name} has states and no steps: --from is for pipelines")
    if step not in definition.plan.order:
        raise UsageError(
            f"{definition.name} has no step {step!r} to begin with: it has {', '.join(definition.plan.order)}"
        )
    return definition


def _store_of(tasks: WorkflowTasks) -> str | None:
    store = tasks.options.store
    return None if store is None else str(store)


async def _find(store: Store, tasks: WorkflowTasks, name: str, task_id: str | None, clock: StoreClock) -> Task:
    now = clock.now()
    if task_id is not None:
        task = await find_task(store, task_id, now=now)
        if task.tool.name != name:
            raise UsageError(f"task {format_id(task.id)} is of {task.tool.name}, and not of {name}")
        return task
    query = TaskQuery(Scope.for_namespace(tasks.options.namespace), tool=name)
    page = await store.list_tasks(query, now=now, limit=PAGE_LIMIT)
    # Tasks that other workflows started belong to those.
    ended = [task for task in page.tasks if task.is_terminal and task.parent_id is None]
    if not ended:
        namespace = tasks.options.namespace
        raise UsageError(
            f"no run of {name} has ended in namespace {namespace!r} of this store, which is that of the file's name: "
            f"name its task with --task, or run it without --from"
        )
    return ended[0]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The workflow to run, and how."""

    name: str
    arguments: list[str]
    """The workflow's arguments, as typed."""
    store: str | None
    step: str | None
    """The step to start with; None for all of them."""
    task_id: str | None
    """The task whose results to take; None for that of the latest run."""


class _StepLogHandler(logging.Handler):
    """Prints what functions of steps raise: the user of this command is its operator, and there is no other log."""

    def emit(self, record: logging.LogRecord) -> None:
        echo_err(self.format(record))

    @classmethod
    @contextmanager
    def attached(cls, *, is_verbose: bool) -> Generator[None]:
        logger, handler = logging.getLogger("raincheck.workflows.actions.python"), cls()
        if not is_verbose:
            logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


async def run_workflow(tasks: WorkflowTasks, request: RunRequest, options: ConnectionOptions) -> ExitCode:
    """Run a workflow, and wait for its result.

    Raises:
        UsageError: it can't be run with this request.
    """
    if not options.is_verbose:
        silence_library_logs()
    definition, given = find_workflow(tasks.path, tasks.definitions, request.name), read_files(request.arguments)
    tasks.configure(store=request.store)
    if isinstance(resolve_address(tasks.options.store), MemoryAddress):
        raise UsageError(
            "what is kept in memory: ends with this command, and nobody could come back to it: name a file with --store"
        )
    target, book = InProcessTarget(tasks, request.store), DeferredSavedCalls(calls_path(options.calls_path))
    # Find out whether the saved calls are usable before there is a task.
    await book.list_refs()
    manner, scene = make_reporter(target, book, options), CallUI(request.name, options.timeout)
    earlier = await _earlier(tasks, definition, request)
    anew = parse_arguments(given, definition.input_schema)
    arguments = {**earlier.arguments, **anew}
    check_arguments(request.name, arguments, definition.input_schema, verb="run")
    _warn_changed_arguments(earlier, anew)
    with scene.open(), _StepLogHandler.attached(is_verbose=options.is_verbose):
        async with tasks.running() as engine:
            guard = scene.monitor.wait_for_server
            async with connect_client(
                target,
                saved_calls=book,
                elicitation_callback=scene.prompter,
                timeout=options.connect_timeout,
                guard=guard,
            ) as client:
                scene.monitor.start_timeout()
                slip = await _begin(engine, target, definition, arguments, earlier)
                await book.add(slip)
                return await scene.wait_for_end(client.resume(slip), manner)


async def _earlier(tasks: WorkflowTasks, definition: WorkflowDefinition, asked: RunRequest) -> PreviousRun:
    if asked.step is None:
        return PreviousRun({}, None)
    return await load_previous_run(tasks, definition, asked.step, asked.task_id)


def _warn_changed_arguments(earlier: PreviousRun, anew: dict[str, Any]) -> None:
    """Warn if results are restored that were computed with other arguments."""
    others = [name for name, value in anew.items() if earlier.arguments.get(name) != value]
    if earlier.restored and others:
        echo_err(f"careful: {', '.join(others)} is not what the earlier run had, whose results are taken as they are")


async def _begin(
    engine: Engine,
    target: InProcessTarget,
    definition: WorkflowDefinition,
    arguments: dict[str, Any],
    earlier: PreviousRun,
) -> TaskRef:
    """Create the task. It is submitted directly: no caller may supply the results of steps."""
    restored = {} if earlier.restored is None else {RESTORED: earlier.restored}
    task = await engine.submit(
        definition.name,
        {**arguments, **restored},
        owner=Owner.local(),
        caller={"capabilities": FALLBACK_CAPABILITIES},
        validate=False,
    )
    now = SystemClock().now().isoformat(timespec="seconds")
    return TaskRef(server=target.name, task_id=task.id, tool=definition.name, tier="2026-07-28", taken_at=now)
