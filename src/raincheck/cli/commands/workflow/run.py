"""`raincheck workflow run`: run a workflow in this process as a task, and monitor it like a call.

The file of workflows is served inside this process, and its task can be resumed later by the command that serves the
file. A run may start at a step: it then takes its arguments, and the results of previous steps, from an previous run.
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
        self._redacted = redact_command(words)
        self.display_name = self._redacted.text
        # In the form of a command that was started in this folder.
        self.name = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(words)}"

    def connect(self) -> Transport:
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        server = lowlevel_of(self._tasks.server)
        async with create_client_server_memory_streams() as (client_streams, server_streams):
            serving = asyncio.ensure_future(server.run(*server_streams, server.create_initialization_options()))
            try:
                yield client_streams
            finally:
                await client_streams[1].aclose()
                await asyncio.wait([serving])

    def stderr_tail(self) -> str:
        return ""

    def hint(self) -> str | None:
        return None

    def redact(self, text: str) -> str:
        return self._redacted.redact(text)


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
    # Imported here: the SDK takes most of a second to import, and other commands don't need it.
    from raincheck.workflows.serve import WorkflowTasks

    try:
        tasks = WorkflowTasks(file)
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json)
    options = ConnectionOptions(
        headers=None,
        calls_path=calls,
        connect_timeout=DEFAULT_CONNECT_TIMEOUT,
        is_verbose=verbose,
        as_json=as_json,
        timeout=timeout,
    )
    request = RunRequest(name, arguments or [], store, step, task_id)
    run_command(run_workflow(tasks, request, options), as_json=as_json)


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
    pipeline = _pipeline_with(definition, step)
    clock = StoreClock()
    # With an operator's rights: the earlier run may belong to another caller of a server.
    async with open_operator_store(_store_of(tasks), clock) as store:
        task = await _find(store, tasks, definition.name, task_id, clock)
        journal = await store.journal(task.id, Scope.everything(), now=clock.now())
    arguments = cast("dict[str, Any]", decode(journal.arguments))
    before = cast("dict[str, Json]", arguments.pop(RESTORED, {}))
    checkpoints = {step.name: decode(step.result) for step in journal.steps}
    restored = _results_to_restore(pipeline, step, before, checkpoints)
    missing = [name for name in pipeline.plan.order if name in pipeline.predecessors(step) and name not in restored]
    count = "the result of 1 step" if len(restored) == 1 else f"the results of {len(restored)} steps"
    echo_err(f"using {count} from task {format_id(task.id)}")
    if missing:
        echo_err(f"that task has no result of {', '.join(missing)}, before {step}: running again")
    properties = as_object(definition.input_schema.get("properties"))
    # The file may have changed since. Arguments that the workflow no longer accepts are dropped.
    return PreviousRun({name: value for name, value in arguments.items() if name in properties}, restored)


def _results_to_restore(
    pipeline: "Pipeline", step: str, before: dict[str, Json], checkpoints: dict[str, Json]
) -> dict[str, Json]:
    from raincheck.workflows.load import find_restorable

    inherited = {
        name: result for name, result in before.items() if name != step and _is_not_after(pipeline, name, step)
    }
    return {**inherited, **find_restorable(pipeline, step, checkpoints)}


def _is_not_after(pipeline: "Pipeline", name: str, step: str) -> bool:
    return name in pipeline.plan.order and step not in pipeline.predecessors(name)


def _pipeline_with(definition: WorkflowDefinition, step: str) -> "Pipeline":
    from raincheck.workflows.pipelines.pipeline import Pipeline

    if not isinstance(definition, Pipeline):
        raise UsageError(f"{definition.name} has states, not steps: --from is only for pipelines")
    if step not in definition.plan.order:
        raise UsageError(f"{definition.name} has no step {step!r}: its steps are {', '.join(definition.plan.order)}")
    return definition


def _store_of(tasks: WorkflowTasks) -> str | None:
    store = tasks.options.store
    return None if store is None else str(store)


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


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The workflow to run, with its arguments and the step to start at."""

    name: str
    arguments: list[str]
    """The workflow's arguments, as typed."""
    store: str | None
    step: str | None
    """The step to start at; None for the first step."""
    task_id: str | None
    """The task to take results from; None for the latest run."""


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


async def run_workflow(tasks: WorkflowTasks, request: RunRequest, options: ConnectionOptions) -> ExitCode:
    """Run a workflow, and wait for its result.

    Raises:
        UsageError: it can't be run with this request.
    """
    if not options.is_verbose:
        silence_library_logs()
    definition, inputs = find_workflow(tasks.path, tasks.definitions, request.name), read_files(request.arguments)
    tasks.configure(store=request.store)
    if isinstance(resolve_address(tasks.options.store), MemoryAddress):
        raise UsageError(
            "a store in memory ends with this command, so its tasks could not be resumed: name a file with --store"
        )
    target, saved_calls = InProcessTarget(tasks, request.store), DeferredSavedCalls(calls_path(options.calls_path))
    # Fail before there is a task if the saved calls can't be used.
    await saved_calls.list_refs()
    reporter, ui = make_reporter(target, saved_calls, options), CallUI(request.name, options.timeout)
    previous = await _load_previous(tasks, definition, request)
    new_arguments = parse_arguments(inputs, definition.input_schema)
    arguments = {**previous.arguments, **new_arguments}
    check_arguments(request.name, arguments, definition.input_schema, verb="run")
    _warn_changed_arguments(previous, new_arguments)
    with ui.open(), _StepLogHandler.attached(is_verbose=options.is_verbose):
        async with tasks.running() as engine:
            guard = ui.monitor.wait_for_server
            async with connect_client(
                target,
                saved_calls=saved_calls,
                elicitation_callback=ui.prompter,
                timeout=options.connect_timeout,
                guard=guard,
            ) as client:
                ui.monitor.start_timeout()
                task_ref = await _submit(engine, target, definition, arguments, previous)
                await saved_calls.add(task_ref)
                return await ui.wait_for_end(client.resume(task_ref), reporter)


async def _load_previous(tasks: WorkflowTasks, definition: WorkflowDefinition, request: RunRequest) -> PreviousRun:
    if request.step is None:
        return PreviousRun({}, None)
    return await load_previous_run(tasks, definition, request.step, request.task_id)


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
