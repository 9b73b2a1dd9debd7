"""The command."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from raincheck.cli.tidying import run_tidily

EPILOG = """
Examples:

\b
  raincheck demo
  raincheck demo --json

It takes about fifteen seconds, and needs no network. It ends with 0, with 1 if something did not come out right, or
with 130 if you stop it by Ctrl-C.
"""


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of it as JSON, and nothing else.")] = False,
) -> None:
    """See it work: three kinds of callers, one tool, and a server that is killed in the middle."""
    # Here, since the SDK takes most of a second to import, and other commands do without.
    from raincheck.cli.demo.playing import row_of, run, show_ending
    from raincheck.cli.reaching import quiet

    # What the SDK has to say of connections that are cut off is said on the board.
    quiet()
    console = Console(quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="raincheck-demo-") as folder:
        ending, history = run_tidily(run(console, Path(folder), "alive" if console.is_terminal else "lines"))
    if as_json:
        facts = {"results": ending.results, "tasks": ending.tasks, "printed_twice": ending.printed_twice}
        typer.echo(json.dumps(facts | {"right": ending.is_right, "history": [row_of(entry) for entry in history]}))
    else:
        show_ending(console, ending, history)
    raise typer.Exit(0 if ending.is_right else 1)
