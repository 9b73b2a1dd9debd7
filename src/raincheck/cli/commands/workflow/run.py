"""`raincheck workflow run`: run a workflow in this process as a task, and monitor it like a call.

The file of workflows is served inside this process, and its task can be resumed later by the command that serves the
file. A run may start at a step: it then takes its arguments, and the results of previous steps, from an previous run.
"""

import asyncio
import logging
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
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
from raincheck.cli.operator import StoreOption, open_operator_store
from raincheck.cli.options import CallsOption, ConnectionOptions, JsonOption, TimeoutOption, run_call
from raincheck.cli.prompts.arguments import check_arguments, parse_arguments, read_files
from raincheck.cli.remote.monitor import CallMonitor
from raincheck.cli.remote.reporter import CallReporter
from raincheck.cli.remote.session import connect_client, open_saved_calls, silence_library_logs
from raincheck.cli.remote.target import CommandTarget
from raincheck.client import TaskRef
from raincheck.clock import StoreClock, SystemClock
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task
from raincheck.core.values import Json, decode
from raincheck.engine import Engine
from raincheck.errors import RaincheckError
from raincheck.operations.describe import format_id
from raincheck.operations.select import find_task
from raincheck.server.caller import FALLBACK_CAPABILITIES
from raincheck.server.sdk_compat import lowlevel_of
from raincheck.stores.base import Store
from raincheck.stores.factory import resolve_address
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.stores.url import MemoryAddress
from raincheck.wire.fields import as_object
from raincheck.workflows.definition import WorkflowDefinition
from raincheck.workflows.parsing.models import RESTORED
from raincheck.workflows.serve import WorkflowTasks

if TYPE_CHECKING:
    from raincheck.workflows.pipelines.pipeline import Pipeline


class InProcessTarget(CommandTarget):
    """A server inside this process. A command that resumes its task later serves the same file."""

    def __init__(self, tasks: WorkflowTasks, store: str | None) -> None:
        self._server = lowlevel_of(tasks.server)
        words = [*_program(), "serve", str(tasks.path), *([] if store is None else ["--store", store])]
        super().__init__(words, Path.cwd(), shows_stderr=True)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[TransportStreams]:
        options = self._server.create_initialization_options()
        async with create_client_server_memory_streams() as (client_streams, server_streams):
            serving = asyncio.ensure_future(self._server.run(*server_streams, options))
            try:
                yield client_streams
            finally:
                await client_streams[1].aclose()
                await asyncio.wait([serving])


def _program() -> list[str]:
    """Return the command that starts this program again."""
    if shutil.which("raincheck") is not None:
        return ["raincheck"]
    return [sys.executable, "-c", "from raincheck.cli import main; main()"]


EPILOG = f"""
Examples:

\b
  raincheck workflow run workflows.yaml release tag=v1.2
  raincheck workflow run workflows.yaml release @arguments.json --store tasks.db
  raincheck workflow run workflows.yaml release --from publish

Arguments are name=value, parsed by the workflow's input schema; name:=JSON; @file.json or - (stdin) for an object with
all of them. With --from, the results of the previous steps are taken from the latest run of this workflow, or from the
task that --task names. So are the arguments that are not given. On a terminal, the command asks the questions of the
workflow, and Ctrl-C offers to detach or to cancel. Unfinished tasks of this file also run while the command runs.
{EXIT_CODES_HELP}"""


def run(
    file: FileArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The workflow to run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="The arguments of the workflow.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="STEP", help="Start at this step, with the previous steps' results of an earlier run."
        ),
    ] = None,
    task_id: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="For --from: the task to take the results from.")
    ] = None,
    store: StoreOption = None,
    timeout: TimeoutOption = None,
    calls: CallsOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the log on stderr.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a workflow here, and wait for its result."""
    if task_id is not None and step is None:
        fail("--task requires --from: name the step to start at", as_json=as_json)
    try:
        tasks = WorkflowTasks(file)
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json)
    options = ConnectionOptions(calls_path=calls, is_verbose=verbose, as_json=as_json)
    running = run_workflow(
        tasks, name, arguments or [], options, store=store, step=step, previous_id=task_id, timeout=timeout
    )
    run_call(running, as_json=as_json)


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """The arguments and the step results that a run takes from an earlier run."""

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
    from raincheck.workflows.pipelines.step import find_restorable

    pipeline, clock, address = _pipeline_with(definition, step), StoreClock(), tasks.options.store
    # With an operator's rights: the earlier run may belong to another caller of a server.
    async with open_operator_store(None if address is None else str(address), clock) as store:
        task = await _find(store, tasks, definition.name, task_id, clock)
        journal = await store.journal(task.id, Scope.everything(), now=clock.now())
    arguments = cast("dict[str, Any]", decode(journal.arguments))
    inherited = {
        name: result
        for name, result in cast("dict[str, Json]", arguments.pop(RESTORED, {})).items()
        if name in pipeline.plan.order and name != step and step not in pipeline.predecessors(name)
    }
    checkpoints = {step.name: decode(step.result) for step in journal.steps}
    restored = {**inherited, **find_restorable(pipeline, step, checkpoints)}
    missing = [name for name in pipeline.plan.order if name in pipeline.predecessors(step) and name not in restored]
    count = "the result of 1 step" if len(restored) == 1 else f"the results of {len(restored)} steps"
    echo_err(f"using {count} from task {format_id(task.id)}")
    if missing:
        echo_err(f"that task has no result of {', '.join(missing)}, before {step}: running again")
    properties = as_object(definition.input_schema.get("properties"))
    # The file may have changed since. Arguments that the workflow no longer accepts are dropped.
    return PreviousRun({name: value for name, value in arguments.items() if name in properties}, restored)


def _pipeline_with(definition: WorkflowDefinition, step: str) -> "Pipeline":
    from raincheck.workflows.pipelines.pipeline import Pipeline

    if not isinstance(definition, Pipeline):
        raise UsageError(f"{definition.name} has states, not steps: --from is only for pipelines")
    if step not in definition.plan.order:
        raise UsageError(f"{definition.name} has no step {step!r}: its steps are {', '.join(definition.plan.order)}")
    return definition


async def _find(store: Store, tasks: WorkflowTasks, name: str, task_id: str | None, clock: StoreClock) -> Task:
    now = clock.now()
    if task_id is not None:
        task = await find_task(store, task_id, now=now)
        if task.tool.name != name:
            raise UsageError(f"task {format_id(task.id)} is a run of {task.tool.name}, not of {name}")
        return task
    query = TaskQuery(Scope.for_namespace(tasks.options.namespace), tool=name)
    page = await store.list_tasks(query, now=now, limit=PAGE_LIMIT)
    # Tasks with a parent were started by other workflows.
    ended = [task for task in page.tasks if task.is_terminal and task.parent_id is None]
    if not ended:
        namespace = tasks.options.namespace
        raise UsageError(
            f"no run of {name} has ended in namespace {namespace!r} (from the file's name) of this store: "
            f"name a task with --task, or run without --from"
        )
    return ended[0]


class _StepLogHandler(logging.Handler):
    """Prints the exceptions of steps: the user of this command is the operator, and there is no other log."""

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


async def run_workflow(
    tasks: WorkflowTasks,
    name: str,
    words: list[str],
    options: ConnectionOptions,
    *,
    store: str | None,
    step: str | None,
    previous_id: str | None,
    timeout: float | None,  # noqa: ASYNC109 - the task keeps running after it
) -> ExitCode:
    """Run a workflow, and wait for its result.

    With a step to start at, results are taken from the task `previous_id`, or else from the latest run.

    Raises:
        UsageError: it can't be run so.
    """
    if not options.is_verbose:
        silence_library_logs()
    definition, inputs = find_workflow(tasks.path, tasks.definitions, name), read_files(words)
    tasks.configure(store=store)
    if isinstance(resolve_address(tasks.options.store), MemoryAddress):
        raise UsageError(
            "a store in memory ends with this command, so its tasks could not be resumed: name a file with --store"
        )
    target, saved_calls = InProcessTarget(tasks, store), await open_saved_calls(options)
    reporter, monitor = CallReporter(target, saved_calls, options), CallMonitor(name, timeout)
    previous = PreviousRun({}, None)
    if step is not None:
        previous = await load_previous_run(tasks, definition, step, previous_id)
    new_arguments = parse_arguments(inputs, definition.input_schema)
    arguments = {**previous.arguments, **new_arguments}
    check_arguments(name, arguments, definition.input_schema, verb="run")
    _warn_changed_arguments(previous, new_arguments)
    with monitor.open(), _StepLogHandler.attached(is_verbose=options.is_verbose):
        async with (
            tasks.running() as engine,
            connect_client(target, options.connect_timeout, monitor=monitor, saved_calls=saved_calls) as client,
        ):
            monitor.start_timeout()
            task_ref = await _submit(engine, target, definition, arguments, previous)
            await saved_calls.add(task_ref)
            handle = client.resume(task_ref)
            return await reporter.finish(monitor.wait_for_result(handle), handle, monitor.prompter)


def _warn_changed_arguments(previous: PreviousRun, new_arguments: dict[str, Any]) -> None:
    """Warn if restored results were computed with different arguments."""
    changed = [name for name, value in new_arguments.items() if previous.arguments.get(name) != value]
    if previous.restored and changed:
        echo_err(f"warning: the earlier run, whose results are used, had different values of {', '.join(changed)}")


async def _submit(
    engine: Engine,
    target: InProcessTarget,
    definition: WorkflowDefinition,
    arguments: dict[str, Any],
    previous: PreviousRun,
) -> TaskRef:
    """Create the task. It is submitted directly, since callers must not supply the results of steps."""
    restored = {} if previous.restored is None else {RESTORED: previous.restored}
    task = await engine.submit(
        definition.name,
        {**arguments, **restored},
        owner=Owner.local(),
        caller={"capabilities": FALLBACK_CAPABILITIES},
        validate=False,
    )
    now = SystemClock().now().isoformat(timespec="seconds")
    return TaskRef(server=target.name, task_id=task.id, tool=definition.name, tier="2026-07-28", taken_at=now)
