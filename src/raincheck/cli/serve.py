"""`raincheck serve`: a server from a file or a module, on stdio, HTTP or a Unix socket."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from raincheck.cli.endings import tell
from raincheck.cli.log_output import LogFormat, LogFormatOption, install_handler
from raincheck.cli.unusable import refuse_unusable
from raincheck.errors import ConfigurationError, RaincheckError

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
TARGET is a file or a module, and after a colon the Tasks in it, or the server that they are attached to; or a file of
workflows that ends in .yaml, or a folder of such files, which are read again when they change.

Examples:

\b
  raincheck serve server.py
  raincheck serve server.py:mcp --http 127.0.0.1:8000
  raincheck serve workflows.yaml --http 127.0.0.1:8000
  raincheck serve package.server:tasks --unix /run/user/1000/reports.sock --store /var/lib/tasks.db

On stdio, stdout is for messages alone; everything else goes to stderr. SIGINT and SIGTERM stop it in good order, and a
second one cuts the waiting for tools short. It ends with 0, or with 2 if it could not be started.
"""

TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help="What to load, such as server.py:mcp.")]
ConcurrencyOption = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="How many attempts run at once, whatever the file says.")
]


def serve(
    target: TargetArgument,
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve the program that started this. The default.")] = False,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Streamable HTTP; the URL is printed on stderr.")
    ] = None,
    unix: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Serve on a Unix socket, for this user alone.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Keep tasks there, whatever the file says: a URL or a path.")
    ] = None,
    no_work: Annotated[
        bool, typer.Option("--no-work", help="Take tasks and answer for them, and leave the running to others.")
    ] = False,
    concurrency: ConcurrencyOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="When it listens, print where as one line of JSON (not on stdio).")
    ] = False,
    log_format: LogFormatOption = None,
) -> None:
    """Serve the tools and tasks of a file or a module."""
    try:
        if stdio + (http is not None) + (unix is not None) > 1:
            raise ConfigurationError("one of --stdio, --http and --unix: start it twice to serve both")
        if as_json and http is None and unix is None:
            raise ConfigurationError("on stdio, stdout is for messages alone: --json is for --http and --unix")
        if no_work and concurrency is not None:
            raise ConfigurationError("with --no-work nothing is run here: leave out --concurrency")
        wanted = {"store": store, "works": False if no_work else None, "concurrency": concurrency}
        _serve(target, http, unix, wanted, log_format, as_json=as_json)
    except RaincheckError as error:
        # On stdio, stdout is not for that.
        refuse_unusable(error, as_json=as_json and not (http is None and unix is None))


def _serve(
    target: str,
    http: str | None,
    unix: Path | None,
    wanted: dict[str, Any],
    log_format: LogFormat | None,
    *,
    as_json: bool,
) -> None:
    # The SDK takes most of a second to import. Other commands do without it.
    from raincheck.cli.loading import kept_fresh, load_tasks, stdout_aside
    from raincheck.cli.serving import (
        asks_who,
        is_open_to_others,
        parse_endpoint,
        serve_http,
        serve_stdio,
        serve_unix,
        unwrapped,
    )

    endpoint = None if http is None else parse_endpoint(http)
    with stdout_aside():
        tasks = load_tasks(target)
    install_handler(log_format, is_quiet=endpoint is None and unix is None)
    tasks.configure(**wanted)

    def listens(where: str) -> None:
        tell(f"{tasks.server.name!r} is served at {where}")
        if endpoint is not None and is_open_to_others(endpoint[0]) and not asks_who(tasks.server):
            alone = f"--http 127.0.0.1:{endpoint[1]} is for this machine alone"
            tell(f"anyone who reaches this machine can call it, for it asks nobody who they are: {alone}")
        if as_json:
            typer.echo(json.dumps({"name": tasks.server.name, "at": where}))

    if endpoint is not None:
        serving = serve_http(tasks, *endpoint, listens)
    elif unix is not None:
        serving = serve_unix(tasks, unix, listens)
    else:
        if sys.stdin.isatty():
            tell(
                f"{tasks.server.name!r} is served on stdio, which is for a host that starts this command. For a URL: "
                f"--http 127.0.0.1:8000"
            )
        serving = serve_stdio(tasks)
    with unwrapped():
        asyncio.run(kept_fresh(tasks, serving))
