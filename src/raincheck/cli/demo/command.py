"""The command."""

import asyncio
import json
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

EPILOG = """
Examples:

\b
  raincheck demo
  raincheck demo --json

It takes about fifteen seconds, and needs no network. It ends with 0, or with 1 if something did not come out right.
"""


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of it as JSON, and nothing else.")] = False,
) -> None:
    """See it work: three kinds of callers, one tool, and a server that is killed in the middle."""
    # Here, since the SDK takes most of a second to import, and other commands do without.
    from raincheck.cli.demo.playing import row_of, run, show_ending

    for ending_signal in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: the server and its folder are not left behind.
        signal.signal(ending_signal, signal.default_int_handler)
    console = Console(quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="raincheck-demo-") as folder:
        ending, history = asyncio.run(run(console, Path(folder), "alive" if console.is_terminal else "lines"))
    if as_json:
        facts = {"results": ending.results, "tasks": ending.tasks, "printed_twice": ending.printed_twice}
        typer.echo(json.dumps(facts | {"right": ending.is_right, "history": [row_of(entry) for entry in history]}))
    else:
        show_ending(console, ending, history)
    raise typer.Exit(0 if ending.is_right else 1)
