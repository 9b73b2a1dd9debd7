"""Ending in good order, whatever signal says so: bars are put away, and the cursor is shown again."""

import asyncio
import errno
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import typer

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
