"""Change feeds: notify waiting readers that tasks may have changed.

A feed is a hint, never the truth: a listener that receives a hint reads the store again. That makes it safe to merge
hints, to send one too many, and to stop naming tasks when there are too many, so a slow or dead listener costs a
bounded set and nothing else.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeAlias

from raincheck.core.records import TaskId

MAX_NAMED_TASKS = 10_000

ANY_TASK: frozenset[TaskId] = frozenset()
"""Too many tasks to name, or some may have been missed: read every awaited task again."""

ChangeHint: TypeAlias = frozenset[TaskId]
"""The tasks that changed, or `ANY_TASK`."""


class ChangeFeed:
    """Hints for one listener. Iterate over it, or pass a callback to `for_each`; it ends when the store closes."""

    def __init__(self) -> None:
        self._pending: set[TaskId] = set()
        self._has_missed = False
        self._closed = False
        self._ready = asyncio.Event()
        self._callback: Callable[[ChangeHint], None] | None = None
        self._error: Exception | None = None

    def publish(self, hint: ChangeHint) -> None:
        if self._callback is not None:
            self._call(self._callback, hint)
            return
        if hint == ANY_TASK:
            self._has_missed = True
        elif len(self._pending) + len(hint) > MAX_NAMED_TASKS:
            self._has_missed = True
            self._pending.clear()
        else:
            self._pending |= hint
        self._ready.set()

    def close(self) -> None:
        self._closed = True
        self._ready.set()

    async def for_each(self, callback: Callable[[ChangeHint], None]) -> None:
        """Call `callback` with every hint immediately, from the code that publishes it, until the store is closed.

        For listeners that only record hints: they need no iteration of the event loop for each. An exception of the
        callback is raised here, and not where the task was written.
        """
        self._callback = callback
        try:
            while (hint := self._next_hint()) is not None:
                self._call(callback, hint)
            while self._error is None and not self._closed:
                self._ready.clear()
                await self._ready.wait()
            if self._error is not None:
                raise self._error
        finally:
            self._callback = self._error = None

    def _call(self, callback: Callable[[ChangeHint], None], hint: ChangeHint) -> None:
        try:
            callback(hint)
        except Exception as error:  # noqa: BLE001 - any error of the listener
            self._error = error
            self._ready.set()

    def __aiter__(self) -> "ChangeFeed":
        return self

    async def __anext__(self) -> ChangeHint:
        while True:
            await self._ready.wait()
            hint = self._next_hint()
            if hint is None and self._closed:
                raise StopAsyncIteration
            if not (self._pending or self._closed):
                self._ready.clear()
            if hint is not None:
                return hint
            # Another waiter on the same feed took the hint first.

    def _next_hint(self) -> ChangeHint | None:
        """Return the pending hint; None if there is none."""
        if self._has_missed:
            self._has_missed = False
            return ANY_TASK
        hint = frozenset(self._pending)
        self._pending.clear()
        return hint or None


class ChangeBroadcaster:
    """All feeds of one store handle. Used on its event loop only."""

    def __init__(self) -> None:
        self._feeds: set[ChangeFeed] = set()

    def __len__(self) -> int:
        return len(self._feeds)

    @contextmanager
    def listen(self) -> Generator[ChangeFeed]:
        feed = ChangeFeed()
        self._feeds.add(feed)
        try:
            yield feed
        finally:
            self._feeds.discard(feed)

    def publish(self, task_ids: Iterable[TaskId]) -> None:
        """Notify all feeds. An empty set is not sent, since as a hint it would mean that any task may have changed."""
        hint = frozenset(task_ids) if self._feeds else None
        if hint:
            self._send(hint)

    def publish_any_task(self) -> None:
        self._send(ANY_TASK)

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()

    def _send(self, hint: ChangeHint) -> None:
        for feed in self._feeds:
            feed.publish(hint)
