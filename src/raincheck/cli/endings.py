"""How the commands that call tools end: with which code, and in which words."""

from enum import IntEnum
from typing import NoReturn

import typer

from raincheck.cli.plain import harmless, json_of
from raincheck.cli.tidying import let_go_of_dead_terminals
from raincheck.errors import RaincheckError


class Ending(IntEnum):
    """What such a command ends with. It tells what became of the work."""

    DONE = 0
    """The result is there, or what was asked for is done."""
    FAILED = 1
    """The tool or the task failed, or was cancelled by somebody else."""
    COULD_NOT_RUN = 2
    """It could not be tried: bad usage, no such tool or task, no server."""
    ASKS = 3
    """The task waits for an answer, and there was nobody to ask."""
    GOES_ON = 4
    """The task goes on: the time was over, or somebody left it alone."""
    INTERRUPTED = 130
    """Ctrl-C, and nothing goes on: the task was cancelled, or the call given up."""


CODES = """
It ends with 0 if it is done; with 1 if the tool or the task failed, or somebody else cancelled it; with 2 if it could
not be tried (bad usage, no such tool or task, no server); with 3 if the task waits for an answer, and nobody was there
to be asked; with 4 if the task goes on, since the time was over or you left it; with 130 if you cancelled it by
Ctrl-C; and with 128 and the number of another signal (143 for SIGTERM) if that ended it before there was a task.
"""


class Unusable(RaincheckError):
    """What was asked for can't even be tried."""


def tell(words: str) -> None:
    """Say something to whoever looks on. What the command is for goes to stdout."""
    try:
        typer.echo(f"raincheck: {harmless(words)}", err=True)
    except OSError:
        if not let_go_of_dead_terminals():
            raise


def refuse(why: str, *, as_json: bool, ending: int = Ending.COULD_NOT_RUN) -> NoReturn:
    """End, and say why. Every command does it here, so that programs find it in one shape: a line of JSON."""
    if as_json:
        typer.echo(json_of({"error": why}, indent=None))
    tell(why)
    raise typer.Exit(ending)
