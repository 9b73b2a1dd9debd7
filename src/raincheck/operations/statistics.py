"""What a store's tasks add up to: how long they take, how many there are, how many go wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from raincheck.core.histogram import Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.operations.select import Filters, select
from raincheck.stores.base import Store

HOURS = 24
HOUR = timedelta(hours=1)

NOTHING = Sketch()


@dataclass(slots=True)
class ToolStats:
    """One tool of one server. Durations are of the latest tasks, gone or not; the counts of those that are kept."""

    namespace: str
    tool: str
    durations: Sketch = NOTHING
    live: int = 0
    completed: int = 0
    errors: int = 0
    """Completed, with a result that reports an error."""
    failed: int = 0
    cancelled: int = 0

    @property
    def tasks(self) -> int:
        return self.live + self.completed + self.errors + self.failed + self.cancelled

    @property
    def failure_share(self) -> float | None:
        """Which part of those that ran to their end went wrong; None if there are none."""
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

    def columns(self, most: int) -> list[float]:
        """How many took about how long, the shortest first."""
        counts = self.durations.counts
        if not counts:
            return []
        return gathered([counts.get(bucket, 0) for bucket in range(min(counts), max(counts) + 1)], most)


@dataclass(slots=True)
class Stats:
    """What is known of a store at one moment. The lists are by hour, the latest last."""

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

    def learn(self, namespace: str, durations: Mapping[str, Sketch], tool: str | None) -> None:
        for name, sketch in durations.items():
            if tool in (None, name):
                self.tool(namespace, name).durations = sketch

    def tool(self, namespace: str, name: str) -> ToolStats:
        return self.tools.setdefault((namespace, name), ToolStats(namespace, name))

    def _count_hour(self, hours: list[int], moment: datetime | None) -> None:
        ago = None if moment is None else (self.now - moment) // HOUR
        if ago is not None and ago < HOURS:
            # What is from the future counts as of now.
            hours[HOURS - 1 - max(0, ago)] += 1


async def measure(store: Store, filters: Filters, *, now: datetime) -> Stats:
    """Count the tasks that are asked for, and look up how long those of their servers take.

    A server none of whose tasks is kept any longer is found by its name only.
    """
    stats = Stats(now)
    async for task in select(store, filters, now=now):
        stats.count(task)
    namespaces = {namespace for namespace, _ in stats.tools}
    if filters.namespace is not None:
        namespaces.add(filters.namespace)
    for namespace in sorted(namespaces):
        stats.learn(namespace, await store.learn(namespace, {}), filters.tool)
    return stats


def gathered(values: Sequence[float], most: int) -> list[float]:
    """The values in at most so many columns, neighbours added up."""
    if len(values) <= most:
        return list(values)
    size = -(-len(values) // most)
    return [sum(values[first : first + size]) for first in range(0, len(values), size)]
