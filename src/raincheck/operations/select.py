"""Which of a store's tasks a command is about, by what can be said of them.

Finding the task that somebody means by an id, or by the beginning of one.
"""

import difflib
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from raincheck.core.lifecycle import LIVE, Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task, TaskId
from raincheck.errors import ConfigurationError, TaskError, TaskNotFound
from raincheck.operations.describe import printable, told_id, told_owner
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT, Position, TaskQuery

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

LONGEST = timedelta(days=36_500)

WITH_ERRORS = frozenset({Phase.FAILED, Phase.COMPLETED})
"""The phases of tasks that failed, or whose result may report an error."""


class StatusWord(StrEnum):
    """What a task can be, in the wire's words and, where these say too little, in ours."""

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
        """The phases of the tasks that are so."""
        return LIVE if self in (StatusWord.WORKING, StatusWord.INPUT_REQUIRED) else frozenset({Phase(self)})

    def fits(self, task: Task) -> bool:
        return str(self) in (task.phase, task.status)


class EndedWord(StrEnum):
    """How a task can have ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


NamespaceOption = Annotated[str | None, typer.Option(metavar="NAME", help="Only tasks of this server.")]
OwnerOption = Annotated[
    str | None, typer.Option(metavar="OWNER", help="Only tasks of owners with this name, or of this kind.")
]
ToolOption = Annotated[str | None, typer.Option(metavar="TOOL", help="Only tasks of this tool.")]
StateOption = Annotated[str | None, typer.Option(metavar="STATE", help="Only processes in this state.")]
SubjectOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Only tasks of workflows that are about this.")]
StatusOption = Annotated[
    list[StatusWord] | None,
    typer.Option(metavar="STATUS", help=f"Only tasks that are so: {', '.join(StatusWord)}. Repeatable."),
]
ErrorsOption = Annotated[
    bool, typer.Option("--errors", help="Only tasks that failed, or whose result reports an error.")
]


@dataclass(frozen=True, slots=True)
class Filters:
    """What is asked for. What is None or empty does not narrow."""

    namespace: str | None = None
    owner: str | None = None
    tool: str | None = None
    statuses: tuple[StatusWord, ...] = ()
    state: str | None = None
    subject: str | None = None
    errors: bool = False

    @property
    def is_anything(self) -> bool:
        return self == Filters()

    @property
    def query(self) -> TaskQuery:
        """What a store can find by itself."""
        scope = Scope.everything() if self.namespace is None else Scope.within(self.namespace)
        phases = frozenset[Phase]().union(*(word.phases for word in self.statuses))
        if self.errors and not phases:
            phases = WITH_ERRORS
        return TaskQuery(scope, tool=self.tool, phases=phases or None)

    def matches(self, task: Task) -> bool:
        """The rest."""
        is_so = not self.statuses or any(word.fits(task) for word in self.statuses)
        is_there = self.state in (None, None if task.state is None else task.state.name)
        is_about = self.subject in (None, task.subject)
        is_bad = not self.errors or task.is_error or task.phase is Phase.FAILED
        return is_so and is_bad and is_there and is_about and (self.owner is None or is_named(task.owner, self.owner))


def is_named(owner: Owner, name: str) -> bool:
    """Whether that means this owner: one of its names, its kind, all of it, or its key in the store."""
    return name in (*owner.names, owner.kind, told_owner(owner), owner.key)


async def select(store: Store, filters: Filters, *, now: datetime, page_size: int = PAGE_LIMIT) -> AsyncGenerator[Task]:
    """The tasks that are asked for, newest first, read as they are wanted, so many at a time."""
    after = None
    while True:
        page = await store.list_tasks(filters.query, now=now, after=after, limit=page_size)
        for task in page.tasks:
            if filters.matches(task):
                yield task
        after = page.next
        if after is None:
            return


def parse_duration(text: str) -> timedelta:
    """A time such as 90s, 12h, 7d or 2w.

    Raises:
        ConfigurationError: it is not said so.
    """
    match = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip())
    seconds = None if match is None else int(match[1]) * UNITS[match[2]]
    if seconds is None or seconds > LONGEST.total_seconds():
        raise ConfigurationError(f"{text!r} is no time: write a number and a unit, such as 90s, 30m, 12h, 7d or 2w")
    return timedelta(seconds=seconds)


def ended_filters(filters: Filters, statuses: list[EndedWord] | None) -> Filters:
    """The same, for tasks that have ended, and so."""
    words = tuple(StatusWord(word) for word in (statuses or EndedWord))
    return Filters(filters.namespace, filters.owner, filters.tool, words)


EVERYTHING = Scope.everything()

TIME_DIGITS = 12
"""So many hexadecimal digits of an id are the milliseconds of its creation, see `clock.new_task_id`."""

MOST_NAMED = 5

MILLISECOND = timedelta(milliseconds=1)


class NoSuchTask(TaskError):
    """An id that means no task, or more than one."""


async def find_task(store: Store, given: str, *, now: datetime) -> Task:
    """The task whose id this is, or begins with this.

    Raises:
        NoSuchTask: there is none, or there are several.
    """
    # Logs shorten an id like that.
    start = given.strip().removesuffix("...").removesuffix("…")
    try:
        return await store.load(TaskId(start), EVERYTHING, now=now)
    except TaskNotFound:
        pass
    found = [task async for task in _beginning_with(store, start, now)] if start else []
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(told_id(task.id) for task in found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise NoSuchTask(given, f"{len(found)} ids begin with {printable(given)!r} ({named}{more}): write more of it")
    raise NoSuchTask(given, f"there is no task {printable(given)!r}: {await _what_to_do(store, start, now)}")


async def _beginning_with(store: Store, start: str, now: datetime) -> AsyncGenerator[Task]:
    moment = _time_in(start)
    if moment is not None:
        # Nearly every id tells when its task was created, so the others need not be read.
        found = [task async for task in _all(store, now, before=moment + MILLISECOND, since=moment)]
        same = [task for task in found if task.id.startswith(start)]
        if same:
            for task in same:
                yield task
            return
    async for task in _all(store, now):
        if task.id.startswith(start):
            yield task


async def _all(
    store: Store, now: datetime, *, before: datetime | None = None, since: datetime | None = None
) -> AsyncGenerator[Task]:
    """All tasks, or those that were created between two moments."""
    after = None if before is None else Position(before, TaskId(""))
    while True:
        page = await store.list_tasks(TaskQuery(EVERYTHING), now=now, after=after, limit=PAGE_LIMIT)
        for task in page.tasks:
            if since is not None and task.created_at < since:
                return
            yield task
        after = page.next
        if after is None:
            return


def _time_in(start: str) -> datetime | None:
    if not re.fullmatch(rf"[0-9a-f]{{{TIME_DIGITS},}}", start):
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(start[:TIME_DIGITS], 16))
    except OverflowError:
        return None


async def _what_to_do(store: Store, start: str, now: datetime) -> str:
    """Tasks that have a similar id, of the latest ones."""
    page = await store.list_tasks(TaskQuery(EVERYTHING), now=now, limit=PAGE_LIMIT)
    ids = {task.id[: max(len(start), 1)]: task.id for task in reversed(page.tasks)}
    near = difflib.get_close_matches(start, ids, n=1)
    if near:
        return f"did you mean {told_id(ids[near[0]])}?"
    return "tasks ls shows those that there are in this store" if page.tasks else "this store has none at all"
