"""What `raincheck doctor` finds: the health of the tasks, and of the SQLite file that stores them."""

import os
import shutil
import sqlite3
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task, Tool
from raincheck.errors import StoreCorrupt
from raincheck.operations.describe import format_id, format_tool, printable
from raincheck.operations.select import EVERYTHING, Filters, StatusChoice, select_tasks
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.stores.sqlite.connection import connect, open_reader, translate_error
from raincheck.stores.sqlite.migrate import schema_version as file_version
from raincheck.stores.sqlite.migrate import shipped_migrations
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
    message: str
    """The observation. The field names are those of `doctor --json`."""
    remedy: str | None = None
    """The remedy; None if nothing is wrong."""

    @classmethod
    def ok(cls, name: str, message: str) -> "HealthFinding":
        return cls(name, Severity.OK, message)

    @classmethod
    def warn(cls, name: str, message: str, remedy: str) -> "HealthFinding":
        return cls(name, Severity.WARN, message, remedy)

    @classmethod
    def bad(cls, name: str, message: str, remedy: str) -> "HealthFinding":
        return cls(name, Severity.BAD, message, remedy)

    @classmethod
    def graded(cls, name: str, message: str, remedy: str, *, is_warning: bool, is_bad: bool = False) -> "HealthFinding":
        """Return a finding whose message is the same for each severity. Its remedy is left out if it is ok."""
        if is_bad:
            return cls.bad(name, message, remedy)
        return cls.warn(name, message, remedy) if is_warning else cls.ok(name, message)


def worst_severity(findings: list[HealthFinding]) -> Severity:
    """Return the worst severity among the findings."""
    severities = {finding.verdict for finding in findings}
    return next((severity for severity in (Severity.BAD, Severity.WARN) if severity in severities), Severity.OK)


LIVE_TASKS = Filters(statuses=(StatusChoice.WORKING, StatusChoice.INPUT_REQUIRED))

STUCK = timedelta(minutes=1)
"""Servers sweep expired leases every few seconds. If a task is overdue for this long, no server is sweeping."""

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
    return HealthFinding.ok("tasks", counts or "no live tasks")


def _check_overdue(overdue: tuple[Task, ...], now: datetime) -> HealthFinding:
    if not overdue:
        return HealthFinding.ok("leases", "no task is overdue")
    ids = ", ".join(format_id(task.id) for task in overdue[:MAX_IDS_SHOWN])
    more = f" and {len(overdue) - MAX_IDS_SHOWN} more" if len(overdue) > MAX_IDS_SHOWN else ""
    longest = max(now - (task.overdue_at or now) for task in overdue)
    overdue_for = f"{_tasks(len(overdue))} overdue for up to {_format_timedelta(longest)}"
    message = f"{overdue_for}, and not recovered by any server: {ids}{more}"
    return HealthFinding.bad(
        "leases", message, "start a server on this store: every server recovers the tasks of dead ones"
    )


def _check_tools(live: list[Task], latest: Iterable[Task], now: datetime) -> Iterator[HealthFinding]:
    """Report tasks that wait for a tool, or a version of it, that no worker seems to have."""
    served = {(task.namespace, task.tool) for task in (*live, *latest) if _proves_worker(task, now)}
    waiting: defaultdict[tuple[str, Tool], list[timedelta]] = defaultdict(list)
    for task in live:
        waited = _waited(task, now)
        if waited > STUCK and (task.namespace, task.tool) not in served:
            waiting[task.namespace, task.tool].append(waited)
    if not waiting:
        yield HealthFinding.ok("workers", "no task waits for a tool without a known worker")
    for (namespace, tool), waits in sorted(waiting.items()):
        other_versions = sorted(
            other.version
            for other_namespace, other in served
            if other_namespace == namespace and other.name == tool.name
        )
        note = f"; workers run version {printable(', '.join(other_versions))}" if other_versions else ""
        name = f"{printable(tool.name)} (version {printable(tool.version)})"
        message = (
            f"{_tasks(len(waits))} waited up to {_format_timedelta(max(waits))} for {name} of {printable(namespace)!r}"
        )
        yield HealthFinding.warn(
            "workers",
            f"{message}, and no worker ran it in the last {_format_timedelta(RECENT)}{note}",
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
        return HealthFinding.ok("queue", "no task waits for a worker")
    longest, oldest = max(waits, key=lambda pair: pair[0])
    message = (
        f"{format_id(oldest.id)} ({format_tool(oldest.tool)}) has waited longest, for {_format_timedelta(longest)}"
    )
    do = "if workers are running, they are too few or hang: start more, or check their logs"
    return HealthFinding.graded("queue", message, do, is_warning=longest > SLOW)


def _check_clock(tasks: Iterable[Task], now: datetime) -> HealthFinding:
    ahead = max((max(task.created_at, task.updated_at) - now for task in tasks), default=timedelta(0))
    if ahead <= MAX_CLOCK_SKEW:
        return HealthFinding.ok("clock", "no task is dated in the future")
    message = f"a task is dated {_format_timedelta(ahead)} in the future: this clock is behind another, or was set back"
    return HealthFinding.warn("clock", message, "synchronize the clocks of all machines that use the store with NTP")


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _format_timedelta(duration: timedelta) -> str:
    return format_duration(duration.total_seconds())


MIB = 1_024 * 1_024

LOCK_TIMEOUT = 10.0
LOW_DISK = 1_024 * MIB
CRITICAL_DISK = 100 * MIB
LARGE_WAL = 64 * MIB
"""A checkpoint empties the write-ahead log long before it reaches this size, unless another process blocks it."""

RESTORE = "stop all processes that use it, then restore a backup or try SQLite's '.recover'"


def check_file(path: Path) -> list[HealthFinding]:
    """Check a store's file.

    Raises:
        NotAStore, SchemaMismatch: this version of raincheck can't read the file.
        StoreError: the check failed.
    """
    path = path.resolve()
    findings = [*_check_file_rights(path), _check_disk(path), _check_log(path)]
    try:
        with closing(open_reader(connect, path, LOCK_TIMEOUT)) as connection:
            findings += _check_database(connection, path)
    except sqlite3.Error as error:
        translated = translate_error(error, str(path))
        if not isinstance(translated, StoreCorrupt):
            raise translated from error
        findings.append(HealthFinding.bad("integrity", f"the file is damaged ({error})", RESTORE))
    return findings


def _check_file_rights(path: Path) -> Iterator[HealthFinding]:
    paths = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
    files = [file for file in paths if file.exists()]
    locked = [str(file) for file in (path.parent, *files) if not os.access(file, os.R_OK | os.W_OK)]
    if locked:
        yield HealthFinding.bad(
            "rights",
            f"this user can't read and write {', '.join(locked)}",
            "grant this user access, or run this command as the user that the server runs as",
        )
        return
    readable = [str(file) for file in files if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)]
    if readable:
        message = "other users of this machine can read the arguments and results of tasks"
        yield HealthFinding.warn("rights", message, f"chmod 600 {' '.join(readable)}")
        return
    yield HealthFinding.ok("rights", "only its owner can read and write it")


def _check_disk(path: Path) -> HealthFinding:
    free, size = shutil.disk_usage(path.parent).free, path.stat().st_size
    message = f"{_in_mib(free)} free, the store has {_in_mib(size)}"
    do = "free disk space, or delete tasks that have ended: raincheck tasks purge"
    return HealthFinding.graded("disk", message, do, is_warning=free < LOW_DISK, is_bad=free < CRITICAL_DISK)


def _check_log(path: Path) -> HealthFinding:
    try:
        size = path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        size = 0
    message = f"the write-ahead log has {_in_mib(size)}"
    do = "find the process that keeps reading the file, and stop it: it blocks the checkpoint of the log"
    return HealthFinding.graded("log", message, do, is_warning=size >= LARGE_WAL)


def _check_database(connection: sqlite3.Connection, path: Path) -> Iterator[HealthFinding]:
    newest = shipped_migrations()[-1].version
    version = file_version(connection, str(path), newest)
    if version < newest:
        message = f"version {version}, and this raincheck has version {newest}"
        yield HealthFinding.warn("schema", message, "start a server on it, which migrates it")
    else:
        yield HealthFinding.ok("schema", f"version {version}, the newest")
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        yield HealthFinding.ok("journal", "wal")
    else:
        do = "start a server on it, which turns on the write-ahead log"
        yield HealthFinding.warn("journal", f"{mode}, so readers wait for writers", do)
    wrong = [row[0] for row in connection.execute("PRAGMA quick_check(3)").fetchall()]
    if wrong == ["ok"]:
        yield HealthFinding.ok("integrity", "the file is intact")
    else:
        yield HealthFinding.bad("integrity", f"the file is damaged ({'; '.join(map(str, wrong))})", RESTORE)


def _in_mib(size: int) -> str:
    return f"{size / MIB / 1_024:.1f} GiB" if size >= 1_024 * MIB else f"{size / MIB:.1f} MiB"
