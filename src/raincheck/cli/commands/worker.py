"""`raincheck worker`: runs the tasks that servers take, and serves nobody.

Working for servers: running the tasks that they took, until a signal says that it is over.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from raincheck.cli.commands.serve import ConcurrencyOption, TargetArgument
from raincheck.cli.exit_codes import refuse_unusable, tell
from raincheck.cli.output.log import LogFormat, LogFormatOption, install_handler
from raincheck.engine.signals import signals
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.operations.describe import json_of
from raincheck.operations.redact import shown_store
from raincheck.server import Tasks
from raincheck.stores.factory import find_address
from raincheck.stores.url import MemoryAddress

# What follows a line with a backspace alone is printed as it stands.
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
        refuse_unusable(error, as_json=as_json)


def parse_queues(text: str) -> frozenset[str]:
    """The tools of a list such as `build_report,transcode`.

    Raises:
        ConfigurationError: it has none, or an empty one.
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
    # The SDK takes most of a second to import. Other commands do without it.
    from raincheck.cli.commands.serve import unwrapped
    from raincheck.cli.loader import kept_fresh, load_tasks, stdout_aside

    with stdout_aside():
        tasks = load_tasks(target)
    install_handler(log_format, is_quiet=False)
    # Also if the file says that its servers leave the running to others: that is who this is.
    tasks.configure(store=store, works=True, concurrency=concurrency, queues=queues)
    check_shared(tasks)

    def works(post: Post) -> None:
        tell(str(post))
        if as_json:
            typer.echo(json_of(asdict(post), indent=None))

    with unwrapped():
        asyncio.run(kept_fresh(tasks, work(tasks, works)))


@dataclass(frozen=True, slots=True)
class Post:
    """What a worker is there for."""

    name: str
    """The server's."""
    namespace: str
    store: str
    tools: list[str]
    concurrency: int

    def __str__(self) -> str:
        many = "1 tool" if len(self.tools) == 1 else f"{len(self.tools)} tools"
        idle = "" if self.tools else ". None of the server's tools runs as tasks, so there is nothing to do"
        return f"worker of {self.namespace!r} on {self.store}: {many}, {self.concurrency} at once{idle}"


def check_shared(tasks: Tasks) -> None:
    """Refuse a store that no server could put tasks into.

    Raises:
        ConfigurationError: it is in the memory of this process.
    """
    if isinstance(find_address(tasks.options.store), MemoryAddress):
        raise ConfigurationError(
            "a worker on memory: has nobody to work for, since no other process sees what is kept there: name the "
            "store that the server uses, as in --store postgresql://user@host/database"
        )


async def work(tasks: Tasks, works: Callable[[Post], None]) -> None:
    """Run tasks, and serve nobody, until a signal comes. What has not ended then is handed back; a second one hurries.

    `works` is told when it does.

    Raises:
        ConfigurationError, StoreError: it can't be started.
    """
    options = tasks.options
    with signals(tasks.hurry) as told:
        async with tasks.running() as engine:
            tools = sorted({tool.name for tool in engine.toolbox.only(options.settings.queues)})
            store = shown_store(options.store)
            works(Post(tasks.server.name, engine.namespace, store, tools, options.settings.concurrency))
            await told.wait()
