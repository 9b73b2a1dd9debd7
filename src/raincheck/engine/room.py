"""The places for attempts in one process: who waits in one, and whether somebody else needs it."""

import asyncio
from collections import Counter
from collections.abc import Collection, Generator
from contextlib import contextmanager


class Room:
    """Shared by the worker, which gives out places, and the attempts, which may wait in theirs.

    By tool, since a tool may have a bound of its own: then only its own attempts can make room for it.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """The worker should look again."""
        self.waiting: Counter[str] = Counter()
        """How many attempts of each tool have nothing to do but to wait."""
        self._needed: dict[str, asyncio.Event] = {}

    def needed(self, tool: str) -> asyncio.Event:
        """Set while another task could run in the place of an attempt of this tool."""
        return self._needed.get(tool) or self._needed.setdefault(tool, asyncio.Event())

    def ask_for_places(self, tools: Collection[str]) -> None:
        """Have the attempts of these tools give way if they only wait, and those of no others."""
        for tool, event in self._needed.items():
            if tool in tools:
                event.set()
            else:
                event.clear()

    def ask_for_all_places(self) -> None:
        self.ask_for_places(self._needed)

    @contextmanager
    def wait_in(self, tool: str) -> Generator[None]:
        self.waiting[tool] += 1
        self.changed.set()
        try:
            yield
        finally:
            self.waiting[tool] -= 1
