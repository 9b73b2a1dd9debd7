"""`raincheck worker`: run the tasks that servers accept, without serving callers, until a signal arrives."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from raincheck.cli.commands.serve import ConcurrencyOption, TargetArgument
from raincheck.cli.exit_codes import echo_err, fail_with_error
from raincheck.cli.output.log import LogFormat, LogFormatOption, install_handler
from raincheck.engine.signals import stop_signals
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.operations.describe import format_json
from raincheck.operations.redact import describe_store
from raincheck.server import Tasks
from raincheck.stores.factory import resolve_address
from raincheck.stores.url import MemoryAddress

# Text after a line that contains only \b is not rewrapped.
EPILOG = """
TARGET is what the servers serve: a file or a module, and after a colon the Tasks in it, or the server that they are
attached to; or workflows. A worker runs tasks of that server's name, with its tools.

Examples:

\b
  raincheck worker package.server:mcp --store postgresql://app@db.example.com/tasks
  raincheck worker workflows.yaml --store /var/lib/tasks.db
  raincheck worker server.py --concurrency 4 --queues build_report,transcode
  raincheck serve server.py --http 0.0.0.0:8000 --no-work

The last is a server that leaves all running to workers. Start as many as you like, on any machine that reaches the
database; those on one machine may share a file. SIGINT and SIGTERM stop a worker in good order: it takes nothing new,
lets tools go on for as long as the settings say, and hands back what has not ended; a second one cuts that short.
It ends with 0, or with 2 if it could not be started.
"""


def worker(
    target: TargetArgument,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the tasks are, whatever the file says: a URL or a path.")
    ] = None,
    concurrency: ConcurrencyOption = None,
    queues: Annotated[
        str | None,
        typer.Option(metavar="TOOL,...", help="Only run tasks of these tools. Each has a queue of its own name."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="When it works, print what for as one line of JSON.")] = False,
    log_format: LogFormatOption = None,
) -> None:
    """Run the tasks of a file or a module, and serve nobody."""
    try:
        names = None if queues is None else parse_queues(queues)
        _work(target, store, concurrency, names, log_format, as_json=as_json)
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json)


def parse_queues(text: str) -> frozenset[str]:
    """Parse a list of tools such as `build_report,transcode`.

    Raises:
        ConfigurationError: the list is empty, or contains an empty name.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ConfigurationError(f"{text!r} is no list of tools: write their names with commas between them")
    return frozenset(names)


def _work(
    target: str,
    store: str | None,
    concurrency: int | None,
    queues: frozenset[str] | None,
    log_format: LogFormat | None,
    *,
    as_json: bool,
) -> None:
    # Imported here: the SDK takes most of a second to import, and other commands don't need it.
    from raincheck.cli.commands.serve import unwrap_error_groups
    from raincheck.cli.loader import load_tasks, redirect_stdout_to_stderr, run_with_reload

    with redirect_stdout_to_stderr():
        tasks = load_tasks(target)
    install_handler(log_format, is_quiet=False)
    # A worker runs tasks even if the file configures its servers not to.
    tasks.configure(store=store, works=True, concurrency=concurrency, queues=queues)
    check_store_is_shared(tasks)

    def works(post: WorkerInfo) -> None:
        echo_err(str(post))
        if as_json:
            typer.echo(format_json(asdict(post), indent=None))

    with unwrap_error_groups():
        asyncio.run(run_with_reload(tasks, run_worker(tasks, works)))


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker's server name, store and tools."""

    name: str
    """The server's name."""
    namespace: str
    store: str
    tools: list[str]
    concurrency: int

    def __str__(self) -> str:
        many = "1 tool" if len(self.tools) == 1 else f"{len(self.tools)} tools"
        idle = "" if self.tools else ". None of the server's tools runs as tasks, so there is nothing to do"
        return f"worker of {self.namespace!r} on {self.store}: {many}, {self.concurrency} at once{idle}"


def check_store_is_shared(tasks: Tasks) -> None:
    """Check that servers can put tasks into the store.

    Raises:
        ConfigurationError: the store is in the memory of this process.
    """
    if isinstance(resolve_address(tasks.options.store), MemoryAddress):
        raise ConfigurationError(
            "a worker on memory: has nobody to work for, since no other process sees what is kept there: name the "
            "store that the server uses, as in --store postgresql://user@host/database"
        )


async def run_worker(tasks: Tasks, on_ready: Callable[[WorkerInfo], None]) -> None:
    """Run tasks, without serving callers, until a signal arrives.

    Attempts that have not ended by then are handed back. A second signal skips the grace period. `on_ready` is called
    when the worker is running.

    Raises:
        ConfigurationError, StoreError: the worker can't be started.
    """
    options = tasks.options
    with stop_signals(tasks.skip_grace) as told:
        async with tasks.running() as engine:
            tools = sorted({tool.name for tool in engine.toolbox.subset(options.settings.queues)})
            store = describe_store(options.store)
            on_ready(WorkerInfo(tasks.server.name, engine.namespace, store, tools, options.settings.concurrency))
            await told.wait()
