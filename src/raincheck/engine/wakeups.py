"""One listener for the whole engine: hints from the store, passed on to whoever waits for that task."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from raincheck.core.records import TaskId
from raincheck.stores.feed import ANYTHING, Feed, Hint


class Wakeups:
    """Who waits for which task, and who wants to hear of all."""

    def __init__(self) -> None:
        self._waiting: dict[TaskId, set[asyncio.Event]] = {}
        self._hearing: list[Callable[[Hint], None]] = []

    @property
    def is_listening(self) -> bool:
        return bool(self._hearing)

    @contextmanager
    def hearing(self, hear: Callable[[Hint], None]) -> Generator[None]:
        """Tell somebody of every hint."""
        self._hearing.append(hear)
        try:
            yield
        finally:
            self._hearing.remove(hear)

    @contextmanager
    def waiting_for(self, task_id: TaskId) -> Generator[asyncio.Event]:
        """An event that is set whenever the task may have changed."""
        event = asyncio.Event()
        events = self._waiting.setdefault(task_id, set())
        events.add(event)
        try:
            yield event
        finally:
            events.discard(event)
            if not events and self._waiting.get(task_id) is events:
                del self._waiting[task_id]

    async def run(self, feed: Feed) -> None:
        """Pass on hints until the store is closed."""
        async for hint in feed:
            for hear in self._hearing:
                hear(hint)
            for task_id in list(self._waiting) if hint == ANYTHING else hint:
                for event in self._waiting.get(task_id, ()):
                    event.set()
