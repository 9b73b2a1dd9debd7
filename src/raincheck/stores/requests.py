"""What a store is asked, and what it answers with. Whatever a store can't get wrong in its own way is decided here.

What no store takes, whatever it keeps things in; and secrets that are not there yet.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal, Self, TypeAlias

from raincheck.core.change import Change
from raincheck.core.commands import Claim, Command, Due
from raincheck.core.decide import decide
from raincheck.core.histogram import Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Journal, Task, TaskId, Tool
from raincheck.core.validation import check_name
from raincheck.errors import InvalidValue

PAGE_LIMIT = 1_000

LONGEST_LEASE = timedelta(days=1)

ANY_TIME = datetime.min.replace(tzinfo=UTC)
"""Says of something that it may be done now, whatever the time is: clocks are set back now and then."""

ListKind: TypeAlias = Literal[
    "list_of_parent", "list_of_state", "list_of_subject", "list_of_owner", "list_of_namespace", "list_all"
]

DUE_LIMIT = 1_000
"""How many parked tasks a claim lets through to the queue at most, so that no claim takes long."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Which tasks a worker can take, how many, and for how long."""

    namespace: str
    tools: frozenset[Tool]
    holder: str
    lease_for: timedelta
    limit: int
    told: Tool | None = None
    """The tool of the job that brought this about, where a dispatcher carries jobs (`stores.dispatcher`)."""
    withdraws: bool = False
    """No job brought this about: the jobs of what is begun are taken back."""
    journals: dict[TaskId, Journal] | None = field(default=None, compare=False, repr=False)
    """Where a store may put the journals of what it begins, if it has read them anyway."""

    def __post_init__(self) -> None:
        check_name(self.namespace, what="a namespace")
        check_name(self.holder, what="a worker's name")
        if not all(isinstance(tool, Tool) for tool in self.tools):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are type-checked
            raise InvalidValue(f"a claim names tools with their versions, as a frozenset of Tool, not {self.tools}")
        if not 1 <= self.limit <= PAGE_LIMIT:
            raise InvalidValue(f"a claim takes from 1 to {PAGE_LIMIT} tasks, not {self.limit}")
        if not timedelta(0) < self.lease_for <= LONGEST_LEASE:
            raise InvalidValue(f"a lease must be for more than 0 and at most {LONGEST_LEASE}, not {self.lease_for}")

    def can_run(self, task: Task) -> bool:
        return task.namespace == self.namespace and task.tool in self.tools

    def wake(self, tasks: Iterable[Task], now: datetime) -> list[Change]:
        """What takes those of the tasks to the queue whose moment has come, the first to be due first."""
        parked = [task for task in tasks if task.phase is Phase.PARKED and self.can_run(task)]
        due = [(task.due_at, task.id, task) for task in parked if task.due_at is not None and task.due_at <= now]
        return _decide_each([task for *_, task in sorted(due)[:DUE_LIMIT]], Due(), now) if due else []

    def begin(self, tasks: Iterable[Task], now: datetime) -> list[Change]:
        """What begins attempts on the first of the tasks, which come in the order of the line."""
        queued = (task for task in tasks if task.phase is Phase.QUEUED and self.can_run(task))
        return _decide_each(islice(queued, self.limit), Claim(self.holder, self.lease_for), now)

    def begin_new(self, new: Task, live: Iterable[Task], now: datetime) -> list[Change]:
        """What begins an attempt on a task that is being created, if that overtakes none of the live ones."""
        begun = self.begin([new], now)
        return begun if begun and self.has_nothing_else(next_moment(live, self.namespace, self.tools), now) else []

    def has_nothing_else(self, next_due: datetime | None, now: datetime) -> bool:
        """Whether a claim would find nothing, where `next_due` is what the store says of these tools."""
        return next_due is None or next_due > now


def _decide_each(tasks: Iterable[Task], command: Command, now: datetime) -> list[Change]:
    return [change for task in tasks if (change := decide(task, command, now)) is not None]


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that somebody believes to hold."""

    task_id: TaskId
    fence: int


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks to list. What is None does not narrow."""

    scope: Scope
    parent_id: TaskId | None = None
    tool: str | None = None
    phases: frozenset[Phase] | None = None
    state: str | None = None
    """Of the processes of one workflow: goes with `tool`."""
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.tool is None:
            raise InvalidValue(f"state {self.state!r} is a state of which workflow? Name it as the tool")
        by_process = self.state is not None or self.subject is not None
        if by_process and (self.scope.namespace is None or self.parent_id is not None):
            raise InvalidValue("processes are listed by state or subject within one namespace, whoever their parent is")

    @property
    def kind(self) -> ListKind:
        """By what the tasks are found; the rest narrows."""
        if self.parent_id is not None:
            return "list_of_parent"
        if self.state is not None:
            return "list_of_state"
        if self.subject is not None:
            return "list_of_subject"
        if self.scope.namespace is None:
            return "list_all"
        return "list_of_namespace" if self.scope.owner is None else "list_of_owner"

    def matches(self, task: Task, now: datetime) -> bool:
        return (
            self.scope.covers(task.namespace, task.owner)
            and not task.is_expired(now)
            and self.parent_id in (None, task.parent_id)
            and self.tool in (None, task.tool.name)
            and (self.phases is None or task.phase in self.phases)
            and self.state in (None, None if task.state is None else task.state.name)
            and self.subject in (None, task.subject)
        )


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a list: just past this task. It never moves, whatever else is created, ends or is pruned."""

    created_at: datetime
    task_id: TaskId

    @classmethod
    def of(cls, task: Task) -> Self:
        return cls(task.created_at, task.id)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, and where the next part begins; None at the end."""

    tasks: tuple[Task, ...]
    next: Position | None

    @classmethod
    def of(cls, found: Sequence[Task], limit: int) -> Self:
        """The page that begins with `found`, which must have one task more than the page if there are more."""
        shown = tuple(found[:limit])
        return cls(shown, Position.of(shown[-1]) if len(found) > limit else None)


def next_moment(tasks: Iterable[Task], namespace: str, tools: frozenset[Tool]) -> datetime | None:
    """When there is something to claim among these tasks."""
    theirs = [one for one in tasks if one.namespace == namespace and one.tool in tools]
    if any(one.phase is Phase.QUEUED for one in theirs):
        return ANY_TIME
    return min((one.due_at for one in theirs if one.phase is Phase.PARKED and one.due_at is not None), default=None)


def overdue_of(tasks: Iterable[Task], *, now: datetime, limit: int) -> tuple[Task, ...]:
    """Those of the tasks that are overdue, the longest overdue first."""
    overdue = sorted((task.overdue_at or now, task.id, task) for task in tasks if task.is_overdue(now))
    return tuple(task for *_, task in overdue[: page_size(limit)])


def page_size(limit: int) -> int:
    """A limit within bounds."""
    return max(1, min(limit, PAGE_LIMIT))


def page_of(tasks: Iterable[Task], query: TaskQuery, *, now: datetime, after: Position | None, limit: int) -> Page:
    """The page that is asked for, out of all tasks."""
    found = [
        task
        for task in tasks
        if query.scope.may_list and query.matches(task, now) and (after is None or Position.of(task) < after)
    ]
    return Page.of(sorted(found, key=Position.of, reverse=True), page_size(limit))


SECRET_SIZE = 32


def check_named_once(changes: Sequence[Change]) -> None:
    """Refuse a commit that names a task twice, changed or spawned.

    Raises:
        InvalidValue: it would not be clear what holds.
    """
    ids = [change.before.id for change in changes]
    ids += [creation.task.id for change in changes for creation in change.spawned]
    if len(set(ids)) < len(ids):
        raise InvalidValue(f"a commit may name a task only once, not {sorted(ids)}")


def check_secret_name(name: str) -> None:
    """Refuse a name that no secret can have.

    Raises:
        InvalidValue: it can't be kept exactly as it is.
    """
    check_name(name, what="a secret's name")


def check_definitions(namespace: str, definitions: Mapping[Tool, bytes]) -> None:
    """Refuse definitions that can't be kept.

    Raises:
        InvalidValue: the namespace, or the name or version of a tool, can't be kept exactly as it is.
    """
    check_name(namespace, what="a namespace")
    for tool in definitions:
        check_name(tool.name, what="a tool's name")
        check_name(tool.version, what="a tool's version")


def check_news(namespace: str, news: Mapping[str, Sketch]) -> None:
    """Refuse durations that can't be kept.

    Raises:
        InvalidValue: the namespace, or the name of a tool, can't be kept exactly as it is.
    """
    check_name(namespace, what="a namespace")
    for tool in news:
        check_name(tool, what="a tool's name")


def new_secret() -> bytes:
    """Random bytes for a secret that is not there yet. Of several that are made at once, the store keeps one."""
    return secrets.token_bytes(SECRET_SIZE)
