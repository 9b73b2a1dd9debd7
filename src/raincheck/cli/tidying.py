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


def fatal_signals() -> list[signal.Signals]:
    """Those beside Ctrl-C that would end the program at once. Whoever has them ignored, as `nohup` does, means that."""
    return [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]


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
    """Run it to its end. Signals that end programs cancel it, as Ctrl-C does.

    Raises:
        typer.Exit: one did.
    """
    told: list[signal.Signals] = []

    async def main() -> T:
        loop, command = asyncio.get_running_loop(), asyncio.current_task()
        assert command is not None  # noqa: S101 - this is one

        def stop(number: signal.Signals) -> None:
            told.append(number)
            command.cancel()

        for number in fatal_signals():
            loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError as error:
        if not told:
            raise
        raise typer.Exit(BY_SIGNAL + told[0]) from error
