"""Exit codes, signals and error output of the commands.

Signals cancel the running command, so that it removes its progress bars and shows the cursor again. Every command
reports errors here, in one format. Invalid workflows are reported with one line for each fault.
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
from raincheck.operations.describe import format_json, printable_lines

if TYPE_CHECKING:
    from raincheck.workflows.definition import WorkflowDefinition


T = TypeVar("T")

SIGNAL_EXIT_BASE = 128
"""The base of the exit code of a program that a signal ended, as in shells: the signal's number is added."""


FATAL = (signal.SIGTERM, signal.SIGHUP)
"""Signals, besides Ctrl-C, that would end the program at once."""


def without_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    """Return the signals without those that the parent process ignores on purpose, as `nohup` does."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def redirect_dead_terminals() -> bool:
    """Discard output to a terminal that was hung up, since writing there would raise. Returns whether one was."""
    # Not every platform has this module.
    import termios

    was_dead = False
    for output in (1, 2):
        try:
            termios.tcgetattr(output)
        except termios.error as error:
            # Other errors mean that the output is not a terminal.
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, output)
                os.close(nowhere)
                was_dead = True
    return was_dead


def run_with_signals(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Ctrl-C and other fatal signals cancel it, once for each signal.

    Raises:
        typer.Exit: a signal arrived, whatever error the cancelled work raised.
    """
    received: list[signal.Signals] = []

    async def main() -> T:
        loop, command = asyncio.get_running_loop(), asyncio.current_task()
        assert command is not None  # noqa: S101 - this coroutine runs in a task

        def stop(number: signal.Signals) -> None:
            received.append(number)
            command.cancel()

        # Handled by asyncio, a second Ctrl-C would raise KeyboardInterrupt in the background task that runs at that
        # moment.
        for number in without_ignored(signal.SIGINT, *FATAL):
            loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(main())
    except typer.Exit:
        raise
    except (Exception, asyncio.CancelledError) as error:
        # Ctrl-C also ends child processes. The work may notice their end before its own cancellation.
        if not received:
            raise
        raise typer.Exit(SIGNAL_EXIT_BASE + received[0]) from error


class ExitCode(IntEnum):
    """The exit code of a command that calls a tool. It reports the outcome of the call."""

    SUCCESS = 0
    """The result was returned, or the requested action was done."""
    FAILED = 1
    """The tool or the task failed, or another actor cancelled it."""
    COULD_NOT_RUN = 2
    """The request could not be sent: a usage error, no such tool or task, or no server."""
    NEEDS_INPUT = 3
    """The task waits for an answer, and there was no terminal to ask at."""
    STILL_RUNNING = 4
    """The task continues: the timeout expired, or the user detached."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C, and no work continues: the task or the call was cancelled."""


EXIT_CODES_HELP = """
Exit codes: 0 success; 1 the tool or the task failed, or another client cancelled it; 2 usage or connection error (bad
arguments, no such tool or task, no server); 3 the task waits for an answer, and there is no terminal to ask at; 4 the
task is still running, because the timeout expired or you detached; 130 you cancelled it with Ctrl-C; 128 plus the
signal's number (143 for SIGTERM) if another signal ended the command before there was a task.
"""


class UsageError(RaincheckError):
    """The request is invalid, so nothing was done."""


def echo_err(message: str) -> None:
    """Print a message for the user on stderr. The output of the command itself goes to stdout."""
    try:
        typer.echo(f"raincheck: {printable_lines(message)}", err=True)
    except OSError:
        if not redirect_dead_terminals():
            raise


def fail(message: str, *, as_json: bool, exit_code: int = ExitCode.COULD_NOT_RUN) -> NoReturn:
    """Exit with an error message. All commands exit here, so that programs get errors in one format: a line of JSON."""
    if as_json:
        typer.echo(format_json({"error": message}, indent=None))
    echo_err(message)
    raise typer.Exit(exit_code)


def find_workflow(path: Path, definitions: "Mapping[str, WorkflowDefinition]", name: str) -> "WorkflowDefinition":
    """Return the workflow of this name.

    Raises:
        UsageError: there is none.
    """
    found = definitions.get(name)
    if found is None:
        raise UsageError(f"{path} has no workflow {name!r}: its workflows are {', '.join(sorted(definitions))}")
    return found


def fail_with_error(
    error: Exception, *, as_json: bool, diagnostics_exit_code: int = ExitCode.COULD_NOT_RUN
) -> NoReturn:
    """Exit with an error message. Invalid workflows are reported fault by fault, with `diagnostics_exit_code`."""
    from raincheck.workflows.definition import InvalidWorkflow

    if not isinstance(error, InvalidWorkflow):
        fail(str(error), as_json=as_json)
    # One line for each fault, in the format that editors and other programs recognize.
    if as_json:
        faults = [asdict(fault) for fault in error.diagnostics]
        typer.echo(format_json({"error": str(error), "faults": faults}, indent=None))
    for fault in error.diagnostics:
        typer.echo(printable_lines(str(fault)), err=True)
    count = len(error.diagnostics)
    echo_err("1 fault: fix it, then try again" if count == 1 else f"{count} faults: fix them, then try again")
    raise typer.Exit(diagnostics_exit_code)
