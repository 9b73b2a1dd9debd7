"""Durations of each tool's tasks, measured in this process and merged with other processes through the store."""

import asyncio
from collections.abc import Mapping

from raincheck.core.histogram import MAX_DURATIONS, DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.engine.submit import EngineDeps

MEASURED_PHASES = frozenset({Phase.COMPLETED, Phase.FAILED})
"""Phases that count. A cancelled task would have taken longer than it did."""

RECOUNT_FACTOR = 16
"""Recent durations are not merged while they number at most 1/16 of those already known."""

EMPTY = DurationHistogram()


class Durations:
    """Duration histograms of one namespace.

    Durations of this process count at once; the store gets them now and then.
    """

    def __init__(self, deps: EngineDeps, namespace: str) -> None:
        self._deps = deps
        self._namespace = namespace
        self._stored: Mapping[str, DurationHistogram] = {}
        # The merged histogram of each requested tool, until one of its parts changes.
        self._merged: dict[str, DurationHistogram] = {}
        # Not stored yet: unsaved, or being saved. The latest are not merged into a histogram yet: this happens on a
        # read, not at the end of every task.
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
        """Return the durations of a tool's tasks. The more are known, the more recent ones it takes to merge again."""
        known = self._merged.get(tool)
        if known is not None and len(self._recent) * RECOUNT_FACTOR <= known.total:
            return known
        self._count()
        known = self._stored.get(tool, EMPTY)
        for more in (self._in_flight.get(tool), self._unsaved.get(tool)):
            known = known if more is None else known.merged(more)
        self._merged[tool] = known
        return known

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
        for tool, took in self._recent:
            latest.setdefault(tool, []).append(took)
        self._recent.clear()
        self._merged.clear()
        for tool, seconds in latest.items():
            self._unsaved[tool] = self._unsaved.get(tool, EMPTY).with_durations(seconds)

    async def _save(self) -> None:
        self._count()
        self._in_flight, self._unsaved = self._unsaved, {}
        try:
            self._stored = await self._deps.store.merge_durations(self._namespace, self._in_flight)
        except BaseException:
            for tool, sketch in self._in_flight.items():
                self._unsaved[tool] = sketch.merged(self._unsaved.get(tool, EMPTY))
            raise
        finally:
            self._in_flight, self._saving = {}, None
            self._merged.clear()
