"""Select a store's tasks by filters, or find one by its id or a prefix of it."""

import difflib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from raincheck.core.lifecycle import LIVE_PHASES, Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task, TaskId
from raincheck.errors import ConfigurationError, TaskError, TaskNotFound
from raincheck.operations.describe import format_id, format_owner, printable
from raincheck.stores.base import Store, iterate_tasks
from raincheck.stores.requests import PAGE_LIMIT, PageCursor, TaskQuery

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

MAX_DURATION = timedelta(days=36_500)

ERROR_PHASES = frozenset({Phase.FAILED, Phase.COMPLETED})
"""The phases of tasks that failed, or whose result may report an error."""


class StatusChoice(StrEnum):
    """A task's status on the wire or, for more precision, its phase."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    QUEUED = "queued"
    RUNNING = "running"
    PARKED = "parked"
    PAUSED = "paused"

    @property
    def phases(self) -> frozenset[Phase]:
        """Return the phases of the tasks with this status."""
        return LIVE_PHASES if self in (StatusChoice.WORKING, StatusChoice.INPUT_REQUIRED) else frozenset({Phase(self)})

    def matches(self, task: Task) -> bool:
        return str(self) in (task.phase, task.status)


class EndStatusChoice(StrEnum):
    """The status of a task that has ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of tasks. A filter that is None or empty matches every task."""

    namespace: str | None = None
    owner: str | None = None
    tool: str | None = None
    statuses: tuple[StatusChoice, ...] = ()
    state: str | None = None
    subject: str | None = None
    errors: bool = False

    @property
    def is_empty(self) -> bool:
        return self == Filters()

    @property
    def query(self) -> TaskQuery:
        """The part of the filters that a store evaluates itself."""
        scope = Scope.everything() if self.namespace is None else Scope.for_namespace(self.namespace)
        phases = frozenset[Phase]().union(*(status.phases for status in self.statuses))
        if self.errors and not phases:
            phases = ERROR_PHASES
        return TaskQuery(scope, tool=self.tool, phases=phases or None)

    def matches(self, task: Task) -> bool:
        """Return whether a task matches the filters, including those that a store does not evaluate."""
        has_status = not self.statuses or any(status.matches(task) for status in self.statuses)
        has_state = self.state in (None, None if task.state is None else task.state.name)
        has_subject = self.subject in (None, task.subject)
        has_error = not self.errors or task.is_error or task.phase is Phase.FAILED
        return (
            has_status
            and has_error
            and has_state
            and has_subject
            and (self.owner is None or owner_matches(task.owner, self.owner))
        )


def owner_matches(owner: Owner, name: str) -> bool:
    """Return whether the name is one of the owner's names, its kind, its full form, or its key in the store."""
    return name in (*owner.names, owner.kind, format_owner(owner), owner.key)


async def select_tasks(
    store: Store, filters: Filters, *, now: datetime, page_size: int = PAGE_LIMIT
) -> AsyncGenerator[Task]:
    """Yield the matching tasks, newest first. Pages of `page_size` tasks are read on demand."""
    async for task in iterate_tasks(store, filters.query, now=now, page_size=page_size):
        if filters.matches(task):
            yield task


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as 90s, 12h, 7d or 2w.

    Raises:
        ConfigurationError: the text has another form.
    """
    match = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip())
    seconds = None if match is None else int(match[1]) * UNITS[match[2]]
    if seconds is None or seconds > MAX_DURATION.total_seconds():
        raise ConfigurationError(
            f"{text!r} is not a duration: write a number and a unit, such as 90s, 30m, 12h, 7d or 2w"
        )
    return timedelta(seconds=seconds)


def with_end_statuses(filters: Filters, statuses: list[EndStatusChoice] | None) -> Filters:
    """Return the same filters, restricted to tasks that have ended with one of these statuses."""
    choices = tuple(StatusChoice(status) for status in (statuses or EndStatusChoice))
    return replace(filters, statuses=choices)


EVERYTHING = Scope.everything()

TIME_DIGITS = 12
"""The leading hexadecimal digits of an id that are the milliseconds of its creation, see `clock.new_task_id`."""

MAX_IDS_SHOWN = 5

MILLISECOND = timedelta(milliseconds=1)


class NoSuchTask(TaskError):
    """An id matches no task, or more than one."""


async def find_task(store: Store, id_prefix: str, *, now: datetime) -> Task:
    """Return the task with this id, or with an id that starts with it.

    Raises:
        NoSuchTask: no task matches, or several do.
    """
    # Logs shorten ids with an ellipsis.
    start = id_prefix.strip().removesuffix("...").removesuffix("…")
    try:
        return await store.load(TaskId(start), EVERYTHING, now=now)
    except TaskNotFound:
        pass
    found = await _tasks_with_prefix(store, start, now) if start else []
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(format_id(task.id) for task in found[:MAX_IDS_SHOWN])
        more = f" and {len(found) - MAX_IDS_SHOWN} more" if len(found) > MAX_IDS_SHOWN else ""
        raise NoSuchTask(
            id_prefix, f"{len(found)} ids start with {printable(id_prefix)!r} ({ids}{more}): write more of the id"
        )
    raise NoSuchTask(id_prefix, f"there is no task {printable(id_prefix)!r}: {await _suggest_task(store, start, now)}")


async def _tasks_with_prefix(store: Store, start: str, now: datetime) -> list[Task]:
    moment = _creation_time(start)
    if moment is not None:
        # Nearly every id contains the time of its task's creation, so the other tasks need not be read.
        matching = [task async for task in _created_at(store, moment, now) if task.id.startswith(start)]
        if matching:
            return matching
    tasks = iterate_tasks(store, TaskQuery(EVERYTHING), now=now)
    return [task async for task in tasks if task.id.startswith(start)]


async def _created_at(store: Store, moment: datetime, now: datetime) -> AsyncGenerator[Task]:
    """Yield the tasks that were created within a millisecond."""
    after = PageCursor(moment + MILLISECOND, TaskId(""))
    async with aclosing(iterate_tasks(store, TaskQuery(EVERYTHING), now=now, after=after)) as tasks:
        async for task in tasks:
            if task.created_at < moment:
                return
            yield task


def _creation_time(start: str) -> datetime | None:
    if not re.fullmatch(rf"[0-9a-f]{{{TIME_DIGITS},}}", start):
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(start[:TIME_DIGITS], 16))
    except OverflowError:
        return None


async def _suggest_task(store: Store, start: str, now: datetime) -> str:
    """Suggest one of the latest tasks with a similar id."""
    page = await store.list_tasks(TaskQuery(EVERYTHING), now=now, limit=PAGE_LIMIT)
    ids = {task.id[: max(len(start), 1)]: task.id for task in reversed(page.tasks)}
    near = difflib.get_close_matches(start, ids, n=1)
    if near:
        return f"did you mean {format_id(ids[near[0]])}?"
    return "run raincheck tasks ls to list the tasks of this store" if page.tasks else "this store has no tasks"
