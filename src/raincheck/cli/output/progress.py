"""A task while it works: a bar on a terminal, lines elsewhere. Both go to stderr."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from raincheck.cli.exit_codes import tell
from raincheck.client.updates import Progress as Amount
from raincheck.client.updates import Update
from raincheck.core.lifecycle import Status
from raincheck.operations.describe import printable, told_id
from raincheck.wire.fallback_text import clipped

LONGEST_MESSAGE = 60

LOST, BACK = "connection lost, trying again", "connected again"

ENDS = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


class Shown(Protocol):
    """Where the work is shown."""

    def begin(self, tool: str, task_id: str | None) -> None:
        """What is called, and as which task."""
        ...

    def show(self, amount: Amount | None, message: str | None, status: str) -> None:
        """How far it is."""
        ...

    def lost(self) -> None:
        """The server does not answer, and is tried again."""
        ...

    def back(self) -> None:
        """It answers again."""
        ...

    @contextmanager
    def aside(self) -> Generator[None]:
        """Make room for something else meanwhile."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def show_update(shown: Shown, update: Update) -> None:
    shown.show(update.progress, update.message, str(update.status))


class Bar:
    """On a terminal. Nothing of it stays there."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._line = self._bar.add_task("", start=False, total=None, amount="")
        self._tool = self._said = ""
        self._is_closed = False

    def begin(self, tool: str, task_id: str | None) -> None:
        self._tool = printable(tool)
        self._bar.update(self._line, description=self._tool)
        self._bar.start_task(self._line)
        self._bar.start()
        if task_id is not None:
            self._bar.console.print(
                f"task {told_id(task_id)}", style="dim", markup=False, highlight=False, soft_wrap=True
            )

    def show(self, amount: Amount | None, message: str | None, status: str) -> None:
        said = printable(clipped(message or status.replace("_", " "), LONGEST_MESSAGE))
        self._said = f"{self._tool}: {said}"
        self._bar.update(self._line, description=self._said, amount="" if amount is None else words(amount))
        if amount is not None and amount.total:
            self._bar.update(self._line, completed=amount.done, total=amount.total)

    def lost(self) -> None:
        self._tell_of_server(f"{self._tool}: {LOST}", LOST)

    def back(self) -> None:
        # How far it was stays right until it is told anew, which may take a while.
        self._tell_of_server(f"{self._said or self._tool} ({BACK})", BACK)

    def _tell_of_server(self, description: str, words: str) -> None:
        if self._is_closed:
            # Somebody cancels it, and waits for that.
            tell(words)
        self._bar.update(self._line, description=description)

    @contextmanager
    def aside(self) -> Generator[None]:
        self._bar.stop()
        try:
            yield
        finally:
            # Somebody who was being asked may be let go only when all is over.
            if not self._is_closed:
                self._bar.start()

    def close(self) -> None:
        self._is_closed = True
        self._bar.stop()


class Lines:
    """Elsewhere: a line for each change."""

    def __init__(self) -> None:
        self._tool = self._last = ""

    def begin(self, tool: str, task_id: str | None) -> None:
        self._tool = printable(tool)
        if task_id is not None:
            tell(f"{self._tool} is task {printable(task_id)}")

    def show(self, amount: Amount | None, message: str | None, status: str) -> None:
        # How far it was when it ended looks as if it had stopped short.
        far = [] if amount is None or status in ENDS else [words(amount)]
        said = [status.replace("_", " "), *far, *([message] if message else [])]
        line = printable(clipped(", ".join(dict.fromkeys(said))))
        if line != self._last:
            tell(f"{self._tool}: {line}")
        self._last = line

    def lost(self) -> None:
        tell(f"{self._tool}: {LOST}")

    def back(self) -> None:
        tell(f"{self._tool}: {BACK}")

    @contextmanager
    def aside(self) -> Generator[None]:
        yield

    def close(self) -> None:
        """Nothing stays open."""


def words(amount: Amount) -> str:
    return f"{amount.done:g}" if amount.total is None else f"{amount.done:g} of {amount.total:g}"
