"""Requests to a store and their results.

Includes the decisions and checks that are the same for every store, and the generation of new secrets.
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
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Journal, Task, TaskId, Tool
from raincheck.core.values import check_name
from raincheck.errors import InvalidValue

PAGE_LIMIT = 1_000
"""The maximum number of entries in one page of a list."""

MAX_LEASE = timedelta(days=1)

DUE_NOW = datetime.min.replace(tzinfo=UTC)
"""Marks work as due now, independent of the clock, since clocks are occasionally set back."""

ListKind: TypeAlias = Literal[
    "list_of_parent", "list_of_state", "list_of_subject", "list_of_owner", "list_of_namespace", "list_all"
]

DUE_LIMIT = 1_000
"""The maximum number of parked tasks that one claim moves to the queue, so that no claim takes long."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The tasks a worker can take, how many, and for how long."""

    namespace: str
    tools: frozenset[Tool]
    holder: str
    lease_for: timedelta
    limit: int
    job_tool: Tool | None = None
    """The tool of the job that triggered this claim, where a dispatcher delivers jobs (`stores.dispatcher`)."""
    withdraw_job: bool = False
    """No job triggered this claim: withdraw the jobs of the tasks that it starts."""
    journals: dict[TaskId, Journal] | None = field(default=None, compare=False, repr=False)
    """Filled by the store with the journals of the tasks it starts, if it has read them anyway."""

    def __post_init__(self) -> None:
        check_name(self.namespace, what="a namespace")
        check_name(self.holder, what="a worker's name")
        if not all(isinstance(tool, Tool) for tool in self.tools):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are type-checked
            raise InvalidValue(f"a claim's tools must be a frozenset of Tool, not {self.tools}")
        if not 1 <= self.limit <= PAGE_LIMIT:
            raise InvalidValue(f"a claim takes from 1 to {PAGE_LIMIT} tasks, not {self.limit}")
        if not timedelta(0) < self.lease_for <= MAX_LEASE:
            raise InvalidValue(f"a lease must be for more than 0 and at most {MAX_LEASE}, not {self.lease_for}")

    def can_run(self, task: Task) -> bool:
        return task.namespace == self.namespace and task.tool in self.tools

    def decide_wakeups(self, tasks: Iterable[Task], now: datetime) -> list[Change]:
        """Return the changes that move due parked tasks to the queue, the first to be due first."""
        parked = [task for task in tasks if task.phase is Phase.PARKED and self.can_run(task)]
        due = [(task.due_at, task.id, task) for task in parked if task.due_at is not None and task.due_at <= now]
        return _decide_each([task for *_, task in sorted(due)[:DUE_LIMIT]], Due(), now) if due else []

    def decide_claims(self, tasks: Iterable[Task], now: datetime) -> list[Change]:
        """Return the changes that start attempts on the first of the tasks, which are given in claim order."""
        queued = (task for task in tasks if task.phase is Phase.QUEUED and self.can_run(task))
        return _decide_each(islice(queued, self.limit), Claim(self.holder, self.lease_for), now)

    def decide_direct_start(self, new: Task, live: Iterable[Task], now: datetime) -> list[Change]:
        """Return the changes that start an attempt on a task being created, if that overtakes no live task."""
        started = self.decide_claims([new], now)
        if not started:
            return []
        return started if self.has_no_other_work(find_next_due(live, self.namespace, self.tools), now) else []

    def has_no_other_work(self, next_due: datetime | None, now: datetime) -> bool:
        """Return whether a claim would find no work, where `next_due` is the store's value for these tools."""
        return next_due is None or next_due > now


def _decide_each(tasks: Iterable[Task], command: Command, now: datetime) -> list[Change]:
    return [change for task in tasks if (change := decide(task, command, now)) is not None]


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that its worker believes it still holds."""

    task_id: TaskId
    fence: int


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A filter for listing tasks. Fields that are None do not filter."""

    scope: Scope
    parent_id: TaskId | None = None
    tool: str | None = None
    phases: frozenset[Phase] | None = None
    state: str | None = None
    """A state of one workflow's instances: requires `tool`."""
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.tool is None:
            raise InvalidValue(f"a filter by state {self.state!r} needs the name of its workflow: set tool")
        by_instance = self.state is not None or self.subject is not None
        if by_instance and (self.scope.namespace is None or self.parent_id is not None):
            raise InvalidValue("a filter by state or subject needs a namespace and no parent_id: change the query")

    @property
    def kind(self) -> ListKind:
        """The index by which the tasks are found; the other fields filter the result."""
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
class PageCursor:
    """A position in a list: just after this task. It is stable while other tasks are created, end or are pruned."""

    created_at: datetime
    task_id: TaskId

    @classmethod
    def of(cls, task: Task) -> Self:
        return cls(task.created_at, task.id)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, and the position of the next part; None at the end."""

    tasks: tuple[Task, ...]
    next: PageCursor | None

    @classmethod
    def of(cls, found: Sequence[Task], limit: int) -> Self:
        """Return the page that starts with `found`, which must hold one task more than the page if there are more."""
        shown = tuple(found[:limit])
        return cls(shown, PageCursor.of(shown[-1]) if len(found) > limit else None)


def find_next_due(tasks: Iterable[Task], namespace: str, tools: frozenset[Tool]) -> datetime | None:
    """Return the time from which one of these tasks can be claimed."""
    runnable = [task for task in tasks if task.namespace == namespace and task.tool in tools]
    if any(task.phase is Phase.QUEUED for task in runnable):
        return DUE_NOW
    due = (task.due_at for task in runnable if task.phase is Phase.PARKED and task.due_at is not None)
    return min(due, default=None)


def find_overdue(tasks: Iterable[Task], *, now: datetime, limit: int) -> tuple[Task, ...]:
    """Return the overdue tasks, the longest overdue first."""
    overdue = sorted((task.overdue_at or now, task.id, task) for task in tasks if task.is_overdue(now))
    return tuple(task for *_, task in overdue[: clamp_limit(limit)])


def clamp_limit(limit: int) -> int:
    """Clamp a limit to 1 to `PAGE_LIMIT`."""
    return max(1, min(limit, PAGE_LIMIT))


def build_page(tasks: Iterable[Task], query: TaskQuery, *, now: datetime, after: PageCursor | None, limit: int) -> Page:
    """Return the requested page out of all tasks."""
    found = [
        task
        for task in tasks
        if query.scope.may_list and query.matches(task, now) and (after is None or PageCursor.of(task) < after)
    ]
    return Page.of(sorted(found, key=PageCursor.of, reverse=True), clamp_limit(limit))


SECRET_BYTES = 32


def check_distinct_tasks(changes: Sequence[Change]) -> None:
    """Check that a commit names each task only once, changed or spawned.

    Raises:
        InvalidValue: a task is named twice, so the result would be ambiguous.
    """
    ids = [change.before.id for change in changes]
    ids += [creation.task.id for change in changes for creation in change.spawned]
    if len(set(ids)) < len(ids):
        raise InvalidValue(f"a commit may name a task only once, not {sorted(ids)}")


def check_secret_name(name: str) -> None:
    """Check the name of a secret.

    Raises:
        InvalidValue: it can't be stored unchanged.
    """
    check_name(name, what="a secret's name")


def check_definitions(namespace: str, definitions: Mapping[Tool, bytes]) -> None:
    """Check that definitions can be stored.

    Raises:
        InvalidValue: the namespace, or the name or version of a tool, can't be stored unchanged.
    """
    check_name(namespace, what="a namespace")
    for tool in definitions:
        check_name(tool.name, what="a tool's name")
        check_name(tool.version, what="a tool's version")


def check_durations(namespace: str, durations: Mapping[str, DurationHistogram]) -> None:
    """Check that durations can be stored.

    Raises:
        InvalidValue: the namespace, or the name of a tool, can't be stored unchanged.
    """
    check_name(namespace, what="a namespace")
    for tool in durations:
        check_name(tool, what="a tool's name")


def check_states_scope(scope: Scope) -> None:
    """Check that states are counted in one namespace: workflows of different namespaces are unrelated.

    Raises:
        InvalidValue: there is no namespace.
    """
    if scope.namespace is None:
        raise InvalidValue("instances are counted within one namespace: name it in the scope")


def generate_secret() -> bytes:
    """Return random bytes for a new secret. If several are created at once, the store keeps one."""
    return secrets.token_bytes(SECRET_BYTES)
