"""The places for attempts in one process: who waits in one, and whether somebody else needs it."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Room:
    """Shared by the worker, which gives out places, and the attempts, which may wait in theirs."""

    def __init__(self) -> None:
        self.needed = asyncio.Event()
        """A task could run if there were a place for it."""
        self.changed = asyncio.Event()
        """The worker should look again."""
        self.waiting = 0
        """How many attempts have nothing to do but to wait."""

    @contextmanager
    def wait_in(self) -> Generator[None]:
        self.waiting += 1
        self.changed.set()
        try:
            yield
        finally:
            self.waiting -= 1
