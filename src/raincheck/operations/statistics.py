"""Statistics of a store's tasks: durations, counts and failure rates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.operations.select import Filters, select_tasks
from raincheck.stores.base import Store

HOURS = 24
HOUR = timedelta(hours=1)

NO_DURATIONS = DurationHistogram()


@dataclass(slots=True)
class ToolStats:
    """One tool of one server. Durations cover the latest tasks, stored or not; counts cover the stored tasks."""

    namespace: str
    tool: str
    durations: DurationHistogram = NO_DURATIONS
    live: int = 0
    completed: int = 0
    errors: int = 0
    """Tasks that completed with a result that reports an error."""
    failed: int = 0
    cancelled: int = 0

    @property
    def tasks(self) -> int:
        return self.live + self.completed + self.errors + self.failed + self.cancelled

    @property
    def failure_share(self) -> float | None:
        """The share of failures and error results among the completed and failed tasks; None if there are none."""
        ended = self.completed + self.errors + self.failed
        return (self.errors + self.failed) / ended if ended else None

    def count(self, task: Task) -> None:
        match task.phase:
            case Phase.COMPLETED:
                self.errors += task.is_error
                self.completed += not task.is_error
            case Phase.FAILED:
                self.failed += 1
            case Phase.CANCELLED:
                self.cancelled += 1
            case _:
                self.live += 1

    def histogram(self, max_columns: int) -> list[float]:
        """Return the number of tasks per range of durations, shortest first."""
        counts = self.durations.counts
        if not counts:
            return []
        return merge_columns([counts.get(bucket, 0) for bucket in range(min(counts), max(counts) + 1)], max_columns)


@dataclass(slots=True)
class Stats:
    """Statistics of a store at one moment. The lists are by hour, latest last."""

    now: datetime
    tools: dict[tuple[str, str], ToolStats] = field(default_factory=dict[tuple[str, str], ToolStats])
    created: list[int] = field(default_factory=lambda: [0] * HOURS)
    ended: list[int] = field(default_factory=lambda: [0] * HOURS)
    failed: list[int] = field(default_factory=lambda: [0] * HOURS)

    def count(self, task: Task) -> None:
        self.tool(task.namespace, task.tool.name).count(task)
        self._count_hour(self.created, task.created_at)
        self._count_hour(self.ended, task.finished_at)
        if task.phase is Phase.FAILED or task.is_error:
            self._count_hour(self.failed, task.finished_at)

    def tool(self, namespace: str, name: str) -> ToolStats:
        return self.tools.setdefault((namespace, name), ToolStats(namespace, name))

    def _count_hour(self, hours: list[int], moment: datetime | None) -> None:
        ago = None if moment is None else (self.now - moment) // HOUR
        if ago is not None and ago < HOURS:
            # A time in the future counts as now.
            hours[HOURS - 1 - max(0, ago)] += 1


async def collect_stats(store: Store, filters: Filters, *, now: datetime) -> Stats:
    """Count the matching tasks, and load the durations of their servers.

    A server without any stored tasks is found only by its name.
    """
    stats = Stats(now)
    async for task in select_tasks(store, filters, now=now):
        stats.count(task)
    namespaces = {namespace for namespace, _ in stats.tools}
    if filters.namespace is not None:
        namespaces.add(filters.namespace)
    for namespace in sorted(namespaces):
        for name, histogram in (await store.merge_durations(namespace, {})).items():
            if filters.tool in (None, name):
                stats.tool(namespace, name).durations = histogram
    return stats


def merge_columns(values: Sequence[float], max_columns: int) -> list[float]:
    """Merge the values into at most `max_columns` columns by summing neighbours."""
    if len(values) <= max_columns:
        return list(values)
    size = -(-len(values) // max_columns)
    return [sum(values[first : first + size]) for first in range(0, len(values), size)]
