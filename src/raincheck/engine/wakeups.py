"""One listener for the whole engine: hints from the store, passed on to whoever waits for that task."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from raincheck.core.records import TaskId
from raincheck.stores.feed import ANYTHING, Feed, Hint


class Woken:
    """Which of the tasks that somebody waits for may have changed."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._changed: set[TaskId] = set()

    def tell(self, task_id: TaskId) -> None:
        self._changed.add(task_id)
        self.event.set()

    def take(self) -> set[TaskId]:
        """Those since the last time."""
        changed, self._changed = self._changed, set()
        self.event.clear()
        return changed


class Wakeups:
    """Who waits for which task, and who wants to hear of all."""

    def __init__(self) -> None:
        self._waiting: dict[TaskId, set[Woken]] = {}
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
    def waiting_for(self, task_ids: Iterable[TaskId]) -> Generator[Woken]:
        """What is told whenever one of the tasks may have changed."""
        woken, ids = Woken(), list(task_ids)
        for task_id in ids:
            self._waiting.setdefault(task_id, set()).add(woken)
        try:
            yield woken
        finally:
            for task_id in ids:
                waiting = self._waiting.get(task_id, set())
                waiting.discard(woken)
                if not waiting:
                    self._waiting.pop(task_id, None)

    def wake_all(self) -> None:
        """Tell everybody: what they hear of has ended."""
        self._tell(list(self._waiting))

    async def run(self, feed: Feed) -> None:
        """Pass on hints until the store is closed."""
        async for hint in feed:
            for hear in self._hearing:
                hear(hint)
            self._tell(list(self._waiting) if hint == ANYTHING else hint)

    def _tell(self, task_ids: Iterable[TaskId]) -> None:
        for task_id in task_ids:
            for woken in self._waiting.get(task_id, ()):
                woken.tell(task_id)
