"""The demo's display and its server process.

The display has a row for each caller, and the events above the rows. The server is started, killed without warning,
and started again.
"""

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

GOOD, BAD, QUIET = "green", "red", "dim"


@dataclass(slots=True)
class CallerRow:
    """The state of one caller."""

    name: str
    protocol: str
    status: str = "waits"
    done: float = 0.0
    total: float = 0.0
    message: str = ""
    task_id: str = ""
    """The task that the caller has received."""
    result: Mapping[str, Any] = field(default_factory=dict[str, Any])


DisplayMode: TypeAlias = Literal["live", "lines", "moments"]
"""Rows that are updated in place; a line for each change; or only snapshots at some moments, for a picture."""


class DemoScreen:
    """Displays the demo."""

    def __init__(self, console: Console, show: DisplayMode) -> None:
        self.console = console
        self._show: DisplayMode = show
        self.rows: list[CallerRow] = []
        self._started_at = time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)
        self._printed: dict[str, str] = {}
        self._changed = asyncio.Event()

    def start(self) -> None:
        if self._show == "live":
            self._live.start()

    def pause(self) -> None:
        """Release the terminal for other output."""
        self._live.stop()

    def finish(self) -> None:
        """Print the callers' final state."""
        self._live.stop()
        if self._show != "lines":
            self.console.print(self._render())

    def snapshot(self) -> None:
        """Print the callers' current state, unless their changes are shown anyway."""
        if self._show == "moments":
            self.console.print(self._render(), "")

    def print_event(self, text: str, style: str | None = None) -> None:
        elapsed = f"{time.monotonic() - self._started_at:5.1f} s  "
        self.console.print(Text.assemble((elapsed, QUIET), (text, style or "")), soft_wrap=True)

    async def wait_until(self, predicate: Callable[[], bool]) -> None:
        """Wait until the callers satisfy the predicate."""
        while not predicate():
            self._changed.clear()
            await self._changed.wait()

    def update(self, row: CallerRow, *, status: str, message: str | None = None, done: float | None = None) -> None:
        self._changed.set()
        row.status = status
        row.message = row.message if message is None else message
        row.done = row.done if done is None else done
        summary = f"{row.name} ({row.protocol}): {status}{f', {row.message}' if row.message else ''}"
        if self._show == "lines" and self._printed.get(row.name) != summary:
            self._printed[row.name] = summary
            self.print_event(summary)

    def _render(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2), show_header=False)
        for row in self.rows:
            style = GOOD if row.status == "completed" else "cyan"
            bar = ProgressBar(
                total=row.total or 1, completed=row.done, width=24, complete_style=style, finished_style=GOOD
            )
            status = Text(row.status, GOOD if row.status == "completed" else "yellow")
            table.add_row(Text(row.name, "bold"), Text(row.protocol, QUIET), bar, status, Text(row.message, QUIET))
        return Group(Text(), table)


START_TIMEOUT = 30.0


class DemoServer:
    """One server on one port of this machine, with its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def printed_twice(self) -> int:
        """The number of chapters that were printed more than once."""
        printed = (self.folder / "printed.txt").read_text().splitlines()
        return len(printed) - len(set(printed))

    async def start(self) -> None:
        """Start the server, and wait until it listens."""
        command = (sys.executable, "-m", "raincheck.cli.demo.server", str(self.port), str(self.folder))
        with (self.folder / "server.log").open("ab") as log:
            # The server exits when its stdin closes, so that it does not outlive the demo.
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log
            )
        async with asyncio.timeout(START_TIMEOUT):
            while not await _listens(self.port):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the server did not start: see {self.folder / 'server.log'}")
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Kill the server without cleanup, as a crash would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
