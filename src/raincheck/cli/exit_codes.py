"""Ending in good order, whatever signal says so: bars are put away, and the cursor is shown again.

How the commands that call tools end: with which code, and in which words.

Ending a command that was given workflows which can't be used.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from raincheck.errors import RaincheckError
from raincheck.operations.describe import harmless, json_of

if TYPE_CHECKING:
    from raincheck.workflows.definition import Definition, WorkflowFaults


T = TypeVar("T")

BY_SIGNAL = 128
"""What a program that a signal ended ends with, plus the number of that, as shells have it."""


FATAL = (signal.SIGTERM, signal.SIGHUP)
"""Signals beside Ctrl-C that would end the program at once."""


def fatal_signals() -> list[signal.Signals]:
    """Return the fatal signals, without those that the parent process ignores on purpose, as `nohup` does."""
    return _not_ignored(*FATAL)


def _not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def let_go_of_dead_terminals() -> bool:
    """Drop what is still written to a terminal that was hung up, which would raise. Whether there was one."""
    # There is none of it on every system.
    import termios

    was_dead = False
    for output in (1, 2):
        try:
            termios.tcgetattr(output)
        except termios.error as error:
            # Others say that they are no terminals.
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, output)
                os.close(nowhere)
                was_dead = True
    return was_dead


def run_tidily(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end. Ctrl-C and other signals that end programs cancel it, each time that one comes.

    Raises:
        typer.Exit: one did, whatever failed while the work was being cancelled.
    """
    told: list[signal.Signals] = []

    async def main() -> T:
        loop, command = asyncio.get_running_loop(), asyncio.current_task()
        assert command is not None  # noqa: S101 - this is one

        def stop(number: signal.Signals) -> None:
            told.append(number)
            command.cancel()

        # Left to asyncio, a second Ctrl-C would raise KeyboardInterrupt in whichever background task runs just then.
        for number in _not_ignored(signal.SIGINT, *FATAL):
            loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(main())
    except typer.Exit:
        raise
    except (Exception, asyncio.CancelledError) as error:
        # Ctrl-C ends child processes, too. That they are gone may be noticed before the cancellation is.
        if not told:
            raise
        raise typer.Exit(BY_SIGNAL + told[0]) from error


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


def find_workflow(path: Path, definitions: "Mapping[str, Definition]", name: str) -> "Definition":
    """The workflow of this name.

    Raises:
        Unusable: there is none.
    """
    found = definitions.get(name)
    if found is None:
        raise Unusable(f"{path} has no workflow {name!r}: it has {', '.join(sorted(definitions))}")
    return found


def _refuse_faults(found: "WorkflowFaults", *, as_json: bool, ending: int) -> NoReturn:
    """End, and tell of each fault in a line of its own, as editors and other programs know them."""
    if as_json:
        faults = [asdict(fault) for fault in found.faults]
        typer.echo(json_of({"error": str(found), "faults": faults}, indent=None))
    for fault in found.faults:
        typer.echo(harmless(str(fault)), err=True)
    many = "1 fault" if len(found.faults) == 1 else f"{len(found.faults)} faults"
    tell(f"{many}: nothing of it can be used before that is mended")
    raise typer.Exit(ending)


def refuse_unusable(error: Exception, *, as_json: bool, faults: int = Ending.COULD_NOT_RUN) -> NoReturn:
    """End, and say why: of workflows fault by fault, and with another code if that is wanted."""
    from raincheck.workflows.definition import WorkflowFaults

    if isinstance(error, WorkflowFaults):
        _refuse_faults(error, as_json=as_json, ending=faults)
    refuse(str(error), as_json=as_json)
