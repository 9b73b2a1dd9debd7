"""Show the progress of a task on stderr: a bar on a terminal, lines elsewhere."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from raincheck.cli.exit_codes import echo_err
from raincheck.client import TaskProgress
from raincheck.core.lifecycle import Status
from raincheck.operations.describe import format_id, printable
from raincheck.wire.fallback_text import clip_text

MAX_MESSAGE_LENGTH = 60

LOST, BACK = "connection lost, reconnecting", "reconnected"


class ProgressDisplay:
    """Shows the progress of a call: prints a line for each change, without a terminal."""

    def __init__(self) -> None:
        self._tool = self._last = ""

    def start(self, tool: str, task_id: str | None) -> None:
        """Show which tool is called, and as which task."""
        self._tool = printable(tool)
        if task_id is not None:
            echo_err(f"{self._tool} is task {printable(task_id)}")

    def show(self, progress: TaskProgress | None, message: str | None, status: str) -> None:
        # With its last progress, a task that has ended would look as if it had stopped early.
        is_live = status in (Status.WORKING, Status.INPUT_REQUIRED)
        amount = [format_progress(progress)] if progress is not None and is_live else []
        parts = [status.replace("_", " "), *amount, *([message] if message else [])]
        line = printable(clip_text(", ".join(dict.fromkeys(parts))))
        if line != self._last:
            echo_err(f"{self._tool}: {line}")
        self._last = line

    def on_disconnect(self) -> None:
        """Show that the server does not respond, and that the client is reconnecting."""
        echo_err(f"{self._tool}: {LOST}")

    def on_reconnect(self) -> None:
        """Show that the server responds again."""
        echo_err(f"{self._tool}: {BACK}")

    @contextmanager
    def suspend(self) -> Generator[None]:
        """Suspend the display while other text is printed."""
        yield

    def close(self) -> None:
        """Restore the terminal."""


class BarDisplay(ProgressDisplay):
    """Shows a progress bar on a terminal, and removes it at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._row = self._bar.add_task("", start=False, total=None, amount="")
        self._description = ""
        self._is_closed = False

    def start(self, tool: str, task_id: str | None) -> None:
        self._tool = printable(tool)
        self._bar.update(self._row, description=self._tool)
        self._bar.start_task(self._row)
        self._bar.start()
        if task_id is not None:
            self._bar.console.print(
                f"task {format_id(task_id)}", style="dim", markup=False, highlight=False, soft_wrap=True
            )

    def show(self, progress: TaskProgress | None, message: str | None, status: str) -> None:
        text = printable(clip_text(message or status.replace("_", " "), MAX_MESSAGE_LENGTH))
        self._description = f"{self._tool}: {text}"
        amount = "" if progress is None else format_progress(progress)
        self._bar.update(self._row, description=self._description, amount=amount)
        if progress is not None and progress.total:
            self._bar.update(self._row, completed=progress.done, total=progress.total)

    def on_disconnect(self) -> None:
        self._show_connection(f"{self._tool}: {LOST}", LOST)

    def on_reconnect(self) -> None:
        # The last progress stays on display until the next report, which may take a while.
        self._show_connection(f"{self._description or self._tool} ({BACK})", BACK)

    def _show_connection(self, description: str, message: str) -> None:
        if self._is_closed:
            # The bar is gone: the user has cancelled the call, and waits for the cancel.
            echo_err(message)
        self._bar.update(self._row, description=description)

    @contextmanager
    def suspend(self) -> Generator[None]:
        self._bar.stop()
        try:
            yield
        finally:
            # A prompt may end only after the display was closed.
            if not self._is_closed:
                self._bar.start()

    def close(self) -> None:
        self._is_closed = True
        self._bar.stop()


def format_progress(progress: TaskProgress) -> str:
    return f"{progress.done:g}" if progress.total is None else f"{progress.done:g} of {progress.total:g}"
