"""A checkup of the tasks in a store: what is held up, and why, as far as that can be known without asking anybody.

What a checkup finds: a line for each thing that was looked at, and what to do about it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, Tool
from raincheck.operations.describe import printable, told_id, told_tool
from raincheck.operations.select import EVERYTHING, Filters, StatusWord, select
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.wire.fallback_text import in_words


class Verdict(StrEnum):
    """How something is."""

    OK = "ok"
    WARN = "warn"
    """It may become a problem, or may be one: as far as can be known from here."""
    BAD = "bad"
    """Tasks are held up, or will be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    said: str
    do: str | None = None
    """What to do about it; None where it is fine."""

    @classmethod
    def ok(cls, name: str, said: str) -> "Finding":
        return cls(name, Verdict.OK, said)

    @classmethod
    def warn(cls, name: str, said: str, do: str) -> "Finding":
        return cls(name, Verdict.WARN, said, do)

    @classmethod
    def bad(cls, name: str, said: str, do: str) -> "Finding":
        return cls(name, Verdict.BAD, said, do)


def worst_of(findings: list[Finding]) -> Verdict:
    """How it is on the whole."""
    found = {finding.verdict for finding in findings}
    return next((one for one in (Verdict.BAD, Verdict.WARN) if one in found), Verdict.OK)


LIVING = Filters(statuses=(StatusWord.WORKING, StatusWord.INPUT_REQUIRED))

STUCK = timedelta(minutes=1)
"""A server looks for leases that ran out every few seconds. What is overdue for so long, nobody looks for."""

SLOW = timedelta(minutes=5)
"""How long a task may wait in the queue before it is worth a word."""

LATELY = timedelta(minutes=10)
"""A worker that has run a task of a tool since then may still be there."""

SKEW = timedelta(seconds=2)
"""How far clocks may differ before it is worth a word."""

MOST_TOLD = 5


async def check_tasks(store: Store, *, now: datetime) -> list[Finding]:
    """What is found of the tasks."""
    live = [task async for task in select(store, LIVING, now=now)]
    latest = (await store.list_tasks(TaskQuery(EVERYTHING), now=now, limit=PAGE_LIMIT)).tasks
    overdue = await store.overdue(now=now - STUCK, limit=PAGE_LIMIT)
    return [
        _check_counts(live),
        _check_overdue(overdue, now),
        *_check_tools(live, latest, now),
        _check_queue(live, now),
        _check_clock([*live, *latest], now),
    ]


def _check_counts(live: list[Task]) -> Finding:
    phases = [(phase, sum(task.phase is phase for task in live)) for phase in Phase]
    counts = ", ".join(f"{count} {phase}" for phase, count in phases if count)
    return Finding.ok("tasks", counts or "none lives")


def _check_overdue(overdue: tuple[Task, ...], now: datetime) -> Finding:
    if not overdue:
        return Finding.ok("leases", "none is overdue")
    ids = ", ".join(told_id(task.id) for task in overdue[:MOST_TOLD])
    more = f" and {len(overdue) - MOST_TOLD} more" if len(overdue) > MOST_TOLD else ""
    longest = max(now - (task.overdue_at or now) for task in overdue)
    said = f"{_tasks(len(overdue))} overdue for up to {_words(longest)}, and taken back by nobody: {ids}{more}"
    return Finding.bad("leases", said, "start a server on this store: any takes back what dead ones held")


def _check_tools(live: list[Task], latest: Iterable[Task], now: datetime) -> Iterator[Finding]:
    """Tasks that wait for a tool, or a version of it, that nobody seems to have."""
    shown = {(task.namespace, task.tool) for task in (*live, *latest) if _shows_worker(task, now)}
    waiting: defaultdict[tuple[str, Tool], list[timedelta]] = defaultdict(list)
    for task in live:
        waited = _waited(task, now)
        if waited > STUCK and (task.namespace, task.tool) not in shown:
            waiting[task.namespace, task.tool].append(waited)
    if not waiting:
        yield Finding.ok("workers", "no task waits for a tool that nobody has been seen to have")
    for (namespace, tool), waits in sorted(waiting.items()):
        others = sorted(other.version for where, other in shown if where == namespace and other.name == tool.name)
        runs = f"; version {printable(', '.join(others))} of it is run" if others else ""
        name = f"{printable(tool.name)} (version {printable(tool.version)})"
        said = f"{_tasks(len(waits))} waited up to {_words(max(waits))} for {name}"
        yield Finding.warn(
            "workers",
            f"{said} of {printable(namespace)!r}, and nobody was seen to run it in the last {_words(LATELY)}{runs}",
            f"start a server or worker named {printable(namespace)!r} that has that version of the tool",
        )


def _shows_worker(task: Task, now: datetime) -> bool:
    """Whether a task tells that somebody has its tool: it runs, or did so lately."""
    if task.attempt is not None:
        return task.attempt.lease.expires_at > now
    return task.fence > 0 and task.updated_at > now - LATELY


def _waited(task: Task, now: datetime) -> timedelta:
    """How long a task could have been run, and was not."""
    if task.phase is Phase.QUEUED:
        return now - task.updated_at
    is_due = task.phase is Phase.PARKED and task.due_at is not None
    return now - task.due_at if is_due and task.due_at is not None else timedelta(0)


def _check_queue(live: list[Task], now: datetime) -> Finding:
    waits = [(now - task.updated_at, task) for task in live if task.phase is Phase.QUEUED]
    if not waits:
        return Finding.ok("queue", "nothing waits for a worker")
    longest, oldest = max(waits, key=lambda pair: pair[0])
    said = f"{told_id(oldest.id)} ({told_tool(oldest.tool)}) has waited longest, for {_words(longest)}"
    if longest <= SLOW:
        return Finding.ok("queue", said)
    return Finding.warn(
        "queue", said, "if there are workers, they are too few or hang: start more, or look at their logs"
    )


def _check_clock(tasks: Iterable[Task], now: datetime) -> Finding:
    ahead = max((max(task.created_at, task.updated_at) - now for task in tasks), default=timedelta(0))
    if ahead <= SKEW:
        return Finding.ok("clock", "no task is from the future")
    said = f"a task is from {_words(ahead)} in the future: this clock is behind another, or was set back"
    return Finding.warn("clock", said, "let all machines that use the store take their time from the same place (NTP)")


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _words(duration: timedelta) -> str:
    return in_words(duration.total_seconds())
