"""`raincheck tools`: what the calls of each tool become, and why."""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer

from raincheck.cli.endings import tell
from raincheck.cli.unusable import refuse_unusable
from raincheck.errors import RaincheckError

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
TARGET is a file or a module, and after a colon the Tasks in it, or the server that they are attached to:

\b
  raincheck tools server.py
  raincheck tools server.py:mcp
  raincheck tools package.server:tasks --store /var/lib/tasks.db --json

It is loaded, and not served. It ends with 0, or with 2 if the target or the store can't be used, or if a file that
--store names is not there. What keeps the server from starting is said on stderr.
"""


def tools(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="What to load, such as server.py:mcp.")],
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store to look into, if not the server's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Say what the calls of each tool become, and why.

    A result that is waited for, or a task: as it is now.
    """
    # The SDK takes most of a second to import. Other commands do without it.
    from raincheck.cli.explained import print_explanation
    from raincheck.cli.loading import load_tasks, stdout_aside

    try:
        with stdout_aside():
            explanation = asyncio.run(load_tasks(target).explain(store))
    except RaincheckError as error:
        refuse_unusable(error, as_json=as_json)
    for warning in explanation.warnings:
        tell(warning)
    if as_json:
        if not any(tool.measured for tool in explanation.tools):
            typer.echo(explanation.source, err=True)
        typer.echo(json.dumps([asdict(tool) for tool in explanation.tools], indent=2))
    else:
        print_explanation(explanation)
