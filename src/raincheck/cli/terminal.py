"""The person at the terminal: lines that they type, while everything else goes on.

The terminal stays in its usual mode, in which it edits and echoes lines by itself. So there is nothing to put back,
however the program ends.
"""

import asyncio
import os
import sys

from rich.console import Console

from raincheck.cli.plain import printable
from raincheck.cli.tidying import let_go_of_dead_terminals


class Gone(Exception):
    """Whoever was asked has left: the input is at its end."""


class Aborted(Exception):
    """Ctrl-C instead of a line."""


class Terminal:
    """Asks for lines, one at a time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.turn = asyncio.Lock()
        """Held by whoever asks: one question is asked to its end before the next."""
        self.free = asyncio.Event()
        """Set unless somebody who pressed Ctrl-C is to be asked first what to do."""
        self.free.set()
        self._typed = b""
        self._line: asyncio.Future[str] | None = None

    @staticmethod
    def is_there() -> bool:
        """Whether there is somebody who sees what is asked, and can type."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def say(self, text: str = "", style: str | None = None) -> None:
        """A line of ours, or of others: nothing in it moves the cursor."""
        indent = text[: len(text) - len(text.lstrip(" "))]
        shown = f"{indent}{printable(text)}"
        self.console.print(shown, style=style, markup=False, highlight=False, soft_wrap=True)

    async def ask(self, prompt: str) -> str:
        """The line that is typed, without the blanks around it.

        Raises:
            Gone: there is nobody any more.
            Aborted: it was not typed to its end.
        """
        self.console.print(f"{printable(prompt)} ", end="", style="bold", markup=False, highlight=False, soft_wrap=True)
        loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
        self._line = loop.create_future()
        loop.add_reader(stdin, self._read, stdin)
        try:
            return (await self._line).strip()
        finally:
            loop.remove_reader(stdin)
            self._line = None

    def abort(self) -> None:
        """Give up the line that is being typed, if there is one. The next is for whoever sets `free` again."""
        self.free.clear()
        self._typed = b""
        if self._line is not None and not self._line.done():
            self.console.print()
            self._line.set_exception(Aborted())

    def _read(self, stdin: int) -> None:
        assert self._line is not None  # noqa: S101 - as long as it is read
        if self._line.done():
            return
        try:
            piece = os.read(stdin, 4_096)
        except OSError:
            let_go_of_dead_terminals()
            piece = b""
        self._typed += piece
        line, end, rest = self._typed.partition(b"\n")
        if end:
            self._typed = rest
            self._line.set_result(line.decode(errors="replace"))
        elif not piece:
            self.console.print()
            self._line.set_exception(Gone())
