"""Feeds: how those who wait learn that something may have changed.

A feed is a hint, never the truth: whoever gets one reads the store again. That makes it safe to merge hints, to
give one too many, and to give up on naming tasks when there are too many, so a reader who is slow or gone costs
a bounded set and nothing else.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeAlias

from raincheck.core.records import TaskId

LIMIT = 10_000

ANYTHING: frozenset[TaskId] = frozenset()
"""Too many to name, or some may have been missed: read again whatever you wait for."""

Hint: TypeAlias = frozenset[TaskId]


class Feed:
    """Hints for one listener. Iterate over it, or have `each` of them told; it ends when the store is closed."""

    def __init__(self) -> None:
        self._pending: set[TaskId] = set()
        self._has_missed = False
        self._closed = False
        self._ready = asyncio.Event()
        self._hear: Callable[[Hint], None] | None = None
        self._error: Exception | None = None

    def publish(self, hint: Hint) -> None:
        if self._hear is not None:
            self._tell(self._hear, hint)
            return
        if hint == ANYTHING:
            self._has_missed = True
        elif len(self._pending) + len(hint) > LIMIT:
            self._has_missed = True
            self._pending.clear()
        else:
            self._pending |= hint
        self._ready.set()

    def close(self) -> None:
        self._closed = True
        self._ready.set()

    async def each(self, hear: Callable[[Hint], None]) -> None:
        """Have every hint told at once, by whoever publishes it, until the store is closed.

        For those who only take note of hints: they need no turn of the event loop for each. What `hear` raises is
        raised here, and not where something was written.
        """
        self._hear = hear
        try:
            while (hint := self._take()) is not None:
                self._tell(hear, hint)
            while self._error is None and not self._closed:
                self._ready.clear()
                await self._ready.wait()
            if self._error is not None:
                raise self._error
        finally:
            self._hear = self._error = None

    def _tell(self, hear: Callable[[Hint], None], hint: Hint) -> None:
        try:
            hear(hint)
        except Exception as error:  # noqa: BLE001 - the listener's, whatever it is
            self._error = error
            self._ready.set()

    def __aiter__(self) -> "Feed":
        return self

    async def __anext__(self) -> Hint:
        while True:
            await self._ready.wait()
            hint = self._take()
            if hint is None and self._closed:
                raise StopAsyncIteration
            if not (self._pending or self._closed):
                self._ready.clear()
            if hint is not None:
                return hint
            # Another waiter on the same feed was quicker.

    def _take(self) -> Hint | None:
        """What has not been told yet; None if there is nothing."""
        if self._has_missed:
            self._has_missed = False
            return ANYTHING
        hint = frozenset(self._pending)
        self._pending.clear()
        return hint or None


class Feeds:
    """All feeds of one store handle. Used on its event loop only."""

    def __init__(self) -> None:
        self._feeds: set[Feed] = set()

    def __len__(self) -> int:
        return len(self._feeds)

    @contextmanager
    def listen(self) -> Generator[Feed]:
        feed = Feed()
        self._feeds.add(feed)
        try:
            yield feed
        finally:
            self._feeds.discard(feed)

    def publish(self, task_ids: Iterable[TaskId]) -> None:
        """Tell everybody. An empty hint means that anything may have changed, so it is not sent by accident."""
        hint = frozenset(task_ids) if self._feeds else None
        if hint:
            self._send(hint)

    def publish_anything(self) -> None:
        self._send(ANYTHING)

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()

    def _send(self, hint: Hint) -> None:
        for feed in self._feeds:
            feed.publish(hint)
