"""Health checks of a store's tasks: which are held up, and why, as far as the records show.

Each check returns findings. A finding describes one checked item, and says what to do about it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, Tool
from raincheck.operations.describe import format_id, format_tool, printable
from raincheck.operations.select import EVERYTHING, Filters, StatusChoice, select_tasks
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.wire.fallback_text import format_duration


class Severity(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    """It may be a problem, or become one, as far as the records show."""
    BAD = "bad"
    """Tasks are held up, or will be."""


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """The result of one check."""

    name: str
    verdict: Severity
    said: str
    do: str | None = None
    """The remedy; None if nothing is wrong."""

    @classmethod
    def ok(cls, name: str, said: str) -> "HealthFinding":
        return cls(name, Severity.OK, said)

    @classmethod
    def warn(cls, name: str, said: str, do: str) -> "HealthFinding":
        return cls(name, Severity.WARN, said, do)

    @classmethod
    def bad(cls, name: str, said: str, do: str) -> "HealthFinding":
        return cls(name, Severity.BAD, said, do)


def worst_severity(findings: list[HealthFinding]) -> Severity:
    """Return the worst severity among the findings."""
    found = {finding.verdict for finding in findings}
    return next((one for one in (Severity.BAD, Severity.WARN) if one in found), Severity.OK)


LIVE_TASKS = Filters(statuses=(StatusChoice.WORKING, StatusChoice.INPUT_REQUIRED))

STUCK = timedelta(minutes=1)
"""Servers look for expired leases every few seconds. If a task is overdue for this long, no server is looking."""

SLOW = timedelta(minutes=5)
"""The time that a task may wait in the queue before it is reported."""

RECENT = timedelta(minutes=10)
"""A worker that has run a task of a tool within this time may still be running."""

MAX_CLOCK_SKEW = timedelta(seconds=2)
"""The clock difference above which a finding warns."""

MAX_IDS_SHOWN = 5


async def check_tasks(store: Store, *, now: datetime) -> list[HealthFinding]:
    """Check the tasks of a store."""
    live = [task async for task in select_tasks(store, LIVE_TASKS, now=now)]
    latest = (await store.list_tasks(TaskQuery(EVERYTHING), now=now, limit=PAGE_LIMIT)).tasks
    overdue = await store.list_overdue(now=now - STUCK, limit=PAGE_LIMIT)
    return [
        _check_counts(live),
        _check_overdue(overdue, now),
        *_check_tools(live, latest, now),
        _check_queue(live, now),
        _check_clock([*live, *latest], now),
    ]


def _check_counts(live: list[Task]) -> HealthFinding:
    phases = [(phase, sum(task.phase is phase for task in live)) for phase in Phase]
    counts = ", ".join(f"{count} {phase}" for phase, count in phases if count)
    return HealthFinding.ok("tasks", counts or "none lives")


def _check_overdue(overdue: tuple[Task, ...], now: datetime) -> HealthFinding:
    if not overdue:
        return HealthFinding.ok("leases", "none is overdue")
    ids = ", ".join(format_id(task.id) for task in overdue[:MAX_IDS_SHOWN])
    more = f" and {len(overdue) - MAX_IDS_SHOWN} more" if len(overdue) > MAX_IDS_SHOWN else ""
    longest = max(now - (task.overdue_at or now) for task in overdue)
    said = f"{_tasks(len(overdue))} overdue for up to {_words(longest)}, and taken back by nobody: {ids}{more}"
    return HealthFinding.bad("leases", said, "start a server on this store: any takes back what dead ones held")


def _check_tools(live: list[Task], latest: Iterable[Task], now: datetime) -> Iterator[HealthFinding]:
    """Report tasks that wait for a tool, or a version of it, that no worker seems to have."""
    shown = {(task.namespace, task.tool) for task in (*live, *latest) if _proves_worker(task, now)}
    waiting: defaultdict[tuple[str, Tool], list[timedelta]] = defaultdict(list)
    for task in live:
        waited = _waited(task, now)
        if waited > STUCK and (task.namespace, task.tool) not in shown:
            waiting[task.namespace, task.tool].append(waited)
    if not waiting:
        yield HealthFinding.ok("workers", "no task waits for a tool that nobody has been seen to have")
    for (namespace, tool), waits in sorted(waiting.items()):
        others = sorted(other.version for where, other in shown if where == namespace and other.name == tool.name)
        runs = f"; version {printable(', '.join(others))} of it is run" if others else ""
        name = f"{printable(tool.name)} (version {printable(tool.version)})"
        said = f"{_tasks(len(waits))} waited up to {_words(max(waits))} for {name}"
        yield HealthFinding.warn(
            "workers",
            f"{said} of {printable(namespace)!r}, and nobody was seen to run it in the last {_words(RECENT)}{runs}",
            f"start a server or worker named {printable(namespace)!r} that has that version of the tool",
        )


def _proves_worker(task: Task, now: datetime) -> bool:
    """Return whether a task proves that a worker has its tool: it is running, or ran recently."""
    if task.attempt is not None:
        return task.attempt.lease.expires_at > now
    return task.attempt_number > 0 and task.updated_at > now - RECENT


def _waited(task: Task, now: datetime) -> timedelta:
    """Return how long a task has been ready to run without running."""
    if task.phase is Phase.QUEUED:
        return now - task.updated_at
    is_due = task.phase is Phase.PARKED and task.due_at is not None
    return now - task.due_at if is_due and task.due_at is not None else timedelta(0)


def _check_queue(live: list[Task], now: datetime) -> HealthFinding:
    waits = [(now - task.updated_at, task) for task in live if task.phase is Phase.QUEUED]
    if not waits:
        return HealthFinding.ok("queue", "nothing waits for a worker")
    longest, oldest = max(waits, key=lambda pair: pair[0])
    said = f"{format_id(oldest.id)} ({format_tool(oldest.tool)}) has waited longest, for {_words(longest)}"
    if longest <= SLOW:
        return HealthFinding.ok("queue", said)
    return HealthFinding.warn(
        "queue", said, "if there are workers, they are too few or hang: start more, or look at their logs"
    )


def _check_clock(tasks: Iterable[Task], now: datetime) -> HealthFinding:
    ahead = max((max(task.created_at, task.updated_at) - now for task in tasks), default=timedelta(0))
    if ahead <= MAX_CLOCK_SKEW:
        return HealthFinding.ok("clock", "no task is from the future")
    said = f"a task is from {_words(ahead)} in the future: this clock is behind another, or was set back"
    return HealthFinding.warn(
        "clock", said, "let all machines that use the store take their time from the same place (NTP)"
    )


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _words(duration: timedelta) -> str:
    return format_duration(duration.total_seconds())
