"""`raincheck worker`: run the tasks that servers accept, without serving callers, until a signal arrives."""

import asyncio
from typing import Annotated

import typer

from raincheck.cli.commands.serve import ConcurrencyOption, StoreOption, TargetArgument, unwrap_error_groups
from raincheck.cli.exit_codes import echo_err, fail_with_error
from raincheck.cli.loader import load_tasks, redirect_stdout_to_stderr, run_with_reload
from raincheck.cli.output.log import LogFormat, LogFormatOption, install_handler
from raincheck.engine import Engine
from raincheck.engine.process_signals import stop_signals
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.operations.describe import describe_store, format_json
from raincheck.server import Tasks
from raincheck.stores.factory import resolve_address
from raincheck.stores.url import MemoryAddress

EPILOG = """
TARGET is what the servers serve: a file or a module, optionally with a colon and the name of the Tasks object or of
the server; or workflows. The worker runs tasks of servers with the same name, with the tools of TARGET.

Examples:

\b
  raincheck worker package.server:mcp --store postgresql://app@db.example.com/tasks
  raincheck worker workflows.yaml --store /var/lib/tasks.db
  raincheck worker server.py --concurrency 4 --queues build_report,transcode
  raincheck serve server.py --http 0.0.0.0:8000 --no-work

The last example is a server that leaves all tasks to workers. Start any number of workers, on any machine that reaches
the database; on one machine they may share a file. SIGINT and SIGTERM stop a worker gracefully: it starts no new tasks,
lets running tools continue for the grace period of the settings, and hands back tasks that have not ended. A second
signal skips the grace period. Exit codes: 0 success; 2 the worker could not be started.
"""


def worker(
    target: TargetArgument,
    store: StoreOption = None,
    concurrency: ConcurrencyOption = None,
    queues: Annotated[
        str | None,
        typer.Option(metavar="TOOL,...", help="Only run tasks of these tools. Each tool has a queue with its name."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Once the worker runs, print its store and tools as one line of JSON.")
    ] = False,
    log_format: LogFormatOption = None,
) -> None:
    """Run the tasks of a file or a module, without serving callers."""
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
        raise ConfigurationError(f"{text!r} is not a list of tools: write their names, separated by commas")
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
    with redirect_stdout_to_stderr():
        tasks = load_tasks(target)
    install_handler(log_format, is_quiet=False)
    # A worker runs tasks even if the file configures its servers not to.
    tasks.configure(store=store, works=True, concurrency=concurrency, queues=queues)
    if isinstance(resolve_address(tasks.options.store), MemoryAddress):
        raise ConfigurationError(
            "a worker can't use a store in memory, which no other process can access: name the store that the server "
            "uses, as in --store postgresql://user@host/database"
        )

    with unwrap_error_groups():
        asyncio.run(run_with_reload(tasks, run_worker(tasks, as_json=as_json)))


async def run_worker(tasks: Tasks, *, as_json: bool) -> None:
    """Run tasks, without serving callers, until a signal arrives.

    Attempts that have not ended by then are handed back. A second signal skips the grace period.

    Raises:
        ConfigurationError, StoreError: the worker can't be started.
    """
    with stop_signals(tasks.skip_grace) as stopping:
        async with tasks.running() as engine:
            _report_ready(tasks, engine, as_json=as_json)
            await stopping.wait()


def _report_ready(tasks: Tasks, engine: Engine, *, as_json: bool) -> None:
    settings, store = tasks.options.settings, describe_store(tasks.options.store)
    tools = sorted({tool.name for tool in engine.toolbox.subset(settings.queues)})
    count = "1 tool" if len(tools) == 1 else f"{len(tools)} tools"
    idle = "" if tools else ". No tool of the server runs as a task, so there is nothing to do"
    echo_err(f"worker of {engine.namespace!r} on {store}: {count}, {settings.concurrency} at once{idle}")
    if as_json:
        facts = {"name": tasks.server.name, "namespace": engine.namespace, "store": store, "tools": tools}
        typer.echo(format_json({**facts, "concurrency": settings.concurrency}, indent=None))
