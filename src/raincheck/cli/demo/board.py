"""What is seen of the demo: a line for each caller, and above them what has happened."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
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
