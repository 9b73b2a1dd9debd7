"""What is seen of the demo: a line for each caller, and above them what has happened.

The server's process: started, killed without warning, and started again.
"""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

GOOD, BAD, QUIET = "green", "red", "dim"


@dataclass(slots=True)
class Line:
    """One caller."""

    name: str
    speaks: str
    status: str = "waits"
    done: float = 0.0
    total: float = 0.0
    says: str = ""
    has_task: bool = False
    """Whether it could find its call again."""


Show: TypeAlias = Literal["alive", "lines", "moments"]
"""Callers as they change, in place; a line for each change; or only how they are at some moments, for a picture."""


class Board:
    """Shows it."""

    def __init__(self, console: Console, show: Show) -> None:
        self.console = console
        self._show: Show = show
        self.lines: list[Line] = []
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)
        self._told: dict[str, str] = {}
        self._changed = asyncio.Event()

    def begin(self) -> None:
        if self._show == "alive":
            self._live.start()

    def pause(self) -> None:
        """Leave the terminal to somebody else for a while."""
        self._live.stop()

    def end(self) -> None:
        """Leave the callers as they are now."""
        self._live.stop()
        if self._show != "lines":
            self.console.print(self._render())

    def snapshot(self) -> None:
        """Keep a picture of how they are, where they are not seen change."""
        if self._show == "moments":
            self.console.print(self._render(), "")

    def tell(self, what: str, style: str | None = None) -> None:
        """Something that happened."""
        passed = f"{time.monotonic() - self._began:5.1f} s  "
        self.console.print(Text.assemble((passed, QUIET), (what, style or "")), soft_wrap=True)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the callers are as they should be."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    def see(self, line: Line, *, status: str, says: str | None = None, done: float | None = None) -> None:
        """What has become of a caller."""
        self._changed.set()
        line.status = status
        line.says = line.says if says is None else says
        line.done = line.done if done is None else done
        summary = f"{line.name} ({line.speaks}): {status}{f', {line.says}' if line.says else ''}"
        if self._show == "lines" and self._told.get(line.name) != summary:
            self._told[line.name] = summary
            self.tell(summary)

    def _render(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2), show_header=False)
        for line in self.lines:
            style = GOOD if line.status == "completed" else "cyan"
            bar = ProgressBar(
                total=line.total or 1, completed=line.done, width=24, complete_style=style, finished_style=GOOD
            )
            status = Text(line.status, GOOD if line.status == "completed" else "yellow")
            table.add_row(Text(line.name, "bold"), Text(line.speaks, QUIET), bar, status, Text(line.says, QUIET))
        return Group(Text(), table)


READY_WITHIN = 30.0


class Stage:
    """One server on one port of this machine, with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def store(self) -> Path:
        return self.folder / "tasks.db"

    @property
    def printed_twice(self) -> int:
        """How many chapters were printed more than once."""
        printed = (self.folder / "printed.txt").read_text().splitlines()
        return len(printed) - len(set(printed))

    async def start(self) -> None:
        """Start the server, and wait until it listens."""
        command = (sys.executable, "-m", "raincheck.cli.demo.server", str(self.port), str(self.folder))
        with (self.folder / "server.log").open("ab") as log:
            # It ends when its stdin does, so that it does not outlive whoever plays with it.
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log
            )
        async with asyncio.timeout(READY_WITHIN):
            while not await _listens(self.port):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the server did not start: see {self.folder / 'server.log'}")
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """End it as a crash would: nothing in it gets to tidy up."""
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
