"""Durations of each tool's tasks, measured in this process and merged with other processes through the store."""

import asyncio
from collections.abc import Mapping

from raincheck.core.histogram import MAX_DURATIONS, DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.engine.tool import EngineDeps

MEASURED_PHASES = frozenset({Phase.COMPLETED, Phase.FAILED})
"""Phases that count. A cancelled task would have taken longer than it did."""

RECOUNT_FACTOR = 16
"""Recent durations are not merged while there are at most 1/16 as many as merged ones."""

EMPTY = DurationHistogram()


class Durations:
    """Duration histograms of one namespace.

    Durations measured in this process count at once. They are saved to the store at intervals.
    """

    def __init__(self, deps: EngineDeps) -> None:
        self._deps = deps
        self._stored: Mapping[str, DurationHistogram] = {}
        # The merged histogram of each requested tool, until one of its parts changes.
        self._merged: dict[str, DurationHistogram] = {}
        # Not stored yet: unsaved, or being saved. The recent durations are merged into a histogram when it is read, and
        # not at the end of every task.
        self._recent: list[tuple[str, float]] = []
        self._unsaved: dict[str, DurationHistogram] = {}
        self._in_flight: Mapping[str, DurationHistogram] = {}
        self._saving: asyncio.Future[None] | None = None

    def record(self, task: Task) -> None:
        """Record a task that a body in this process has ended. Called once for each."""
        if task.phase in MEASURED_PHASES and task.finished_at is not None:
            self._recent.append((task.tool.name, (task.finished_at - task.created_at).total_seconds()))
            if len(self._recent) >= MAX_DURATIONS:
                self._count()

    def histogram(self, tool: str) -> DurationHistogram:
        """Return the durations of a tool's tasks. The more are merged, the larger the next batch to merge."""
        merged = self._merged.get(tool)
        if merged is not None and len(self._recent) * RECOUNT_FACTOR <= merged.total:
            return merged
        self._count()
        merged = self._stored.get(tool, EMPTY)
        for more in (self._in_flight.get(tool), self._unsaved.get(tool)):
            merged = merged if more is None else merged.merged(more)
        self._merged[tool] = merged
        return merged

    @property
    def has_unsaved(self) -> bool:
        """Return whether there are durations that the store does not have."""
        return bool(self._recent or self._unsaved or self._in_flight)

    async def refresh(self) -> None:
        """Save new durations to the store, and load those of other processes.

        Raises:
            StoreError: the store is unavailable. The new durations stay unsaved.
        """
        while self._saving is not None:
            await asyncio.wait([self._saving])
        # In a separate background task: if the waiter is cancelled, it must stay clear what was saved.
        self._saving = asyncio.ensure_future(self._save())
        await asyncio.shield(self._saving)

    def _count(self) -> None:
        latest: dict[str, list[float]] = {}
        for tool, duration in self._recent:
            latest.setdefault(tool, []).append(duration)
        self._recent.clear()
        self._merged.clear()
        for tool, durations in latest.items():
            self._unsaved[tool] = self._unsaved.get(tool, EMPTY).with_durations(durations)

    async def _save(self) -> None:
        self._count()
        self._in_flight, self._unsaved = self._unsaved, {}
        try:
            self._stored = await self._deps.store.merge_durations(self._deps.namespace, self._in_flight)
        except BaseException:
            for tool, histogram in self._in_flight.items():
                self._unsaved[tool] = histogram.merged(self._unsaved.get(tool, EMPTY))
            raise
        finally:
            self._in_flight, self._saving = {}, None
            self._merged.clear()
