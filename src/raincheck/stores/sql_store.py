"""What the SQL stores share: the methods of the store interface, and the transactions that need no dialect.

A **plan** is a generator that yields statements, by the names of their queries, and receives the rows of each. It does
no I/O, so the same plan runs on SQLite's threads and on PostgreSQL's event loop; each store has a runner of a few
lines, and the queries in its own dialect. A plan is made again for each try.

A store has its own transaction where its database has a better way: one statement instead of several, row locks, jobs.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from raincheck._async import shield, spawn_background
from raincheck.core.change import Change, Creation
from raincheck.core.histogram import DurationHistogram, merge_histograms
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, InputRequest, Journal, Step, Task, TaskId, Tool, View
from raincheck.errors import AlreadyRecorded, InvalidValue, TaskNotFound
from raincheck.stores.change_feed import ChangeBroadcaster
from raincheck.stores.requests import (
    DUE_NOW,
    PAGE_LIMIT,
    Page,
    PageCursor,
    TaskQuery,
    check_definitions,
    check_durations,
    check_secret_name,
    check_states_scope,
    clamp_limit,
    generate_secret,
)
from raincheck.stores.sql import (
    Row,
    artifact_from_row,
    build_journal,
    digest_of,
    entry_from_row,
    histogram_from_row,
    input_from_row,
    pk_of,
    sanitize_text,
    task_from_row,
    to_datetime,
    to_micros,
)

T = TypeVar("T")

Parameters: TypeAlias = "Mapping[str, Any] | Sequence[Any]"


class Statement(NamedTuple):
    """A query to execute, by its name."""

    query: str
    parameters: Parameters = ()
    duplicate: Callable[[], AlreadyRecorded] | None = None
    """Makes the error to raise if it inserts a key that exists."""


Plan: TypeAlias = Generator[Statement, "Sequence[Row]", T]
"""A transaction, or part of one: yields statements, receives their rows, and returns its result."""

LARGEST_INTEGER = (1 << 63) - 1

_LIST_START = (LARGEST_INTEGER, "")
"""A list position before every task."""


# Reads. Each sees one moment: several statements run in one snapshot.


def load(task_id: TaskId, scope: Scope, now: datetime) -> Plan[Task]:
    return task_from_row((yield from _find("load_task", task_id, scope, now)))


def view(task_id: TaskId, scope: Scope, now: datetime) -> Plan[View]:
    # Polls are most of the load, and most need no more than this.
    row = yield from _find("view", task_id, scope, now)
    task = task_from_row(row)
    if task.is_terminal or not task.open_inputs:
        return View(task, row[-1], ())
    return (yield from _in_snapshot(_view_with_inputs(task_id, scope, now)))


def _view_with_inputs(task_id: TaskId, scope: Scope, now: datetime) -> Plan[View]:
    # Read again, since the task may have changed in between.
    row = yield from _find("view", task_id, scope, now)
    task = task_from_row(row)
    inputs = () if task.is_terminal else (yield Statement("open_inputs", {"pk": pk_of(row)}))
    return View(task, row[-1], tuple(map(input_from_row, inputs)))


def journal(task_id: TaskId, scope: Scope, now: datetime) -> Plan[Journal]:
    row = yield from _find("journal", task_id, scope, now)
    *_, has_more = row
    if not has_more:
        # Most tasks have none of it when they start, and one statement sees one moment.
        return build_journal(task_from_row(row), row[-4:-1])
    return (yield from _in_snapshot(_whole_journal(task_id, scope, now)))


def _whole_journal(task_id: TaskId, scope: Scope, now: datetime) -> Plan[Journal]:
    row = yield from _find("journal", task_id, scope, now)
    parameters = {"pk": pk_of(row)}
    steps = yield Statement("all_steps", parameters)
    inputs = yield Statement("all_inputs", parameters)
    artifacts = yield Statement("artifact_names", parameters)
    return build_journal(task_from_row(row), row[-4:-1], steps, inputs, artifacts)


def artifact(task_id: TaskId, name: str, scope: Scope, now: datetime) -> Plan[Artifact | None]:
    parameters = {"name": sanitize_text(name)}
    found = yield from _in_snapshot(_read_of_task("artifact", task_id, scope, now, parameters))
    return artifact_from_row(found[0]) if found else None


def history(task_id: TaskId, scope: Scope, now: datetime, after: int, limit: int) -> Plan[tuple[HistoryEntry, ...]]:
    parameters = {"after": max(0, min(after, LARGEST_INTEGER)), "limit": clamp_limit(limit)}
    found = yield from _in_snapshot(_read_of_task("history", task_id, scope, now, parameters))
    return tuple(map(entry_from_row, found))


def list_tasks(query: TaskQuery, phases: object, now: datetime, after: PageCursor | None, limit: int) -> Plan[Page]:
    limit = clamp_limit(limit)
    created_at, task_id = _LIST_START if after is None else (to_micros(after.created_at), after.task_id)
    parameters = _scope_parameters(query.scope) | {
        "parent_id": _sanitize_optional(query.parent_id),
        "tool": _sanitize_optional(query.tool),
        "state": _sanitize_optional(query.state),
        "subject": _sanitize_optional(query.subject),
        "phases": phases,
        "created_at": created_at,
        "id": sanitize_text(task_id),
        "now": to_micros(now),
        "limit": limit + 1,
    }
    return Page.of(list(map(task_from_row, (yield Statement(query.kind, parameters)))), limit)


def count_live(scope: Scope) -> Plan[dict[Phase, int]]:
    return {Phase(phase): count for phase, count in (yield Statement("count_live", _scope_parameters(scope)))}


def count_states(scope: Scope, now: datetime) -> Plan[dict[tuple[str, str], int]]:
    check_states_scope(scope)
    found = yield Statement("count_states", _scope_parameters(scope) | {"now": to_micros(now)})
    return {(tool, state): count for tool, state, count in found}


def next_due(namespace: str, tools: Mapping[str, object]) -> Plan[datetime | None]:
    ((is_queued, due_at),) = yield Statement("next_due", {"namespace": sanitize_text(namespace), **tools})
    if is_queued:
        return DUE_NOW
    return None if due_at is None else to_datetime(due_at)


def find_secret(name: str) -> Plan[bytes | None]:
    check_secret_name(name)
    found = yield Statement("secret", {"name": name})
    return found[0][0] if found else None


def read_durations(namespace: str, damaged: type[Exception]) -> Plan[dict[str, DurationHistogram]]:
    found = yield Statement("durations", {"namespace": namespace})
    try:
        return dict(map(histogram_from_row, found))
    except InvalidValue as error:
        raise damaged(str(error)) from error


def task_with_key(creation: Creation, now: datetime) -> Plan[Task | None]:
    """Return the task that a request with this idempotency key created."""
    new = creation.task
    parameters = {"namespace": new.namespace, "owner": new.owner.key, "key": new.idempotency_key}
    found = yield Statement("task_with_key", parameters)
    if not found:
        return None
    task = task_from_row(found[0])
    if creation.matches(task, digest_of(found[0]), now):
        return task
    # It has expired and will be pruned later; its key has been free since it expired.
    yield Statement("delete_task", {"id": task.id})
    return None


def _find(query: str, task_id: TaskId, scope: Scope, now: datetime) -> Plan[Row]:
    parameters = _scope_parameters(scope) | {"id": sanitize_text(task_id), "now": to_micros(now)}
    found = yield Statement(query, parameters)
    if not found:
        raise TaskNotFound(task_id)
    return found[0]


def _read_of_task(
    query: str, task_id: TaskId, scope: Scope, now: datetime, parameters: Mapping[str, object]
) -> Plan[Sequence[Row]]:
    pk = pk_of((yield from _find("load_task", task_id, scope, now)))
    return (yield Statement(query, {"pk": pk, **parameters}))


def _in_snapshot(plan: Plan[T]) -> Plan[T]:
    yield Statement("begin_snapshot")
    result = yield from plan
    yield Statement("end_snapshot")
    return result


def _scope_parameters(scope: Scope) -> dict[str, Any]:
    return {
        "namespace": _sanitize_optional(scope.namespace),
        "owner": None if scope.owner is None else scope.owner.key,
    }


def _sanitize_optional(text: str | None) -> str | None:
    return None if text is None else sanitize_text(text)


# Writes, each within a transaction.


def write_contents(pk: int, change: Change) -> Plan[None]:
    """Write what a change brings besides the record and its payloads."""
    if change.leaves_state:
        yield Statement("delete_steps", {"pk": pk})
        yield Statement("delete_answered_inputs", {"pk": pk})
    for step in change.steps:
        yield _insert_step(pk, change, step)
    for question in change.inputs:
        yield _write_input(pk, change, question)
    for kept in change.artifacts:
        yield Statement("put_artifact", (pk, kept.name, kept.content, to_micros(kept.kept_at)))


def _insert_step(pk: int, change: Change, step: Step) -> Statement:
    finished_at = to_micros(step.finished_at)
    row = (pk, step.name, step.occurrence, step.fingerprint, step.result, step.attempt, finished_at)
    duplicate = partial(AlreadyRecorded.step, change.before.id, step.name, step.occurrence)
    return Statement("insert_step", row, duplicate)


def _write_input(pk: int, change: Change, question: InputRequest) -> Statement:
    if question.answered_at is not None:
        return Statement("answer_input", (question.answer, to_micros(question.answered_at), pk, question.key))
    asked_at = to_micros(question.asked_at)
    row = (pk, question.key, str(question.kind), question.request, asked_at, question.attempt)
    return Statement("insert_input", row, partial(AlreadyRecorded.input_request, change.before.id, question.key))


def release_key(task_id: TaskId, key: str) -> Plan[None]:
    yield Statement("release_key", {"id": sanitize_text(task_id), "key": sanitize_text(key)})


def create_secret(name: str) -> Plan[bytes]:
    yield Statement("insert_secret", {"name": name, "bytes": generate_secret()})
    # Another handle may have created it first.
    return (yield Statement("secret", {"name": name}))[0][0]


def save_definitions(namespace: str, definitions: Mapping[Tool, bytes]) -> Plan[dict[Tool, bytes]]:
    check_definitions(namespace, definitions)
    for tool, body in definitions.items():
        parameters = {"namespace": namespace, "tool": tool.name, "tool_version": tool.version, "body": body}
        yield Statement("put_definition", parameters)
    found = yield Statement("needed_definitions", {"namespace": namespace})
    return {Tool(name, version): body for name, version, body in found}


def merge_durations(
    namespace: str, new: Mapping[str, DurationHistogram], damaged: type[Exception], *, needs_lock: bool
) -> Plan[dict[str, DurationHistogram]]:
    if needs_lock:
        yield Statement("lock_durations", {"namespace": namespace})
    stored = yield from read_durations(namespace, damaged)
    changed = merge_histograms(stored, new)
    for tool, histogram in changed.items():
        yield Statement("put_durations", {"namespace": namespace, "tool": tool, "counts": histogram.dump()})
    return stored | changed


class SqlStore(ABC):
    """The methods that need no dialect. A subclass opens connections, runs plans, and starts, ends and claims tasks."""

    needs_row_locks: ClassVar[bool]
    """Several transactions write at once, so those that read first must lock what they read."""
    damaged: ClassVar[type[Exception]]
    """The driver's error for data that raincheck can't have written."""

    def __init__(self) -> None:
        # Distinguishes this handle's changes, which reach its listeners directly, from those of other handles.
        self._origin = secrets.token_hex(8)
        self._feeds = ChangeBroadcaster()
        self._watch_task: asyncio.Task[None] | None = None
        self._open_close_lock = asyncio.Lock()
        self._must_exist = False

    async def close(self) -> None:
        self._feeds.close()
        # In the background, so that cancelling the caller does not leak a thread or a connection.
        await shield(spawn_background(self._close()))

    async def _close(self) -> None:
        async with self._open_close_lock:
            if self._watch_task is not None:
                self._watch_task.cancel()
                await asyncio.gather(self._watch_task, return_exceptions=True)
            await self._disconnect()

    async def release_key(self, task_id: TaskId, key: str) -> None:
        await self._write(partial(release_key, task_id, key))

    async def next_due(self, namespace: str, tools: frozenset[Tool]) -> datetime | None:
        return await self._read(partial(next_due, namespace, self.encode_tools(tools)))

    async def load(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Task:
        return await self._read(partial(load, task_id, scope, now))

    async def view(self, task_id: TaskId, scope: Scope, *, now: datetime) -> View:
        return await self._read(partial(view, task_id, scope, now))

    async def journal(self, task_id: TaskId, scope: Scope, *, now: datetime) -> Journal:
        return await self._read(partial(journal, task_id, scope, now))

    async def artifact(self, task_id: TaskId, name: str, scope: Scope, *, now: datetime) -> Artifact | None:
        return await self._read(partial(artifact, task_id, name, scope, now))

    async def history(
        self, task_id: TaskId, scope: Scope, *, now: datetime, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        return await self._read(partial(history, task_id, scope, now, after, limit))

    async def list_tasks(
        self, query: TaskQuery, *, now: datetime, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        if not query.scope.may_list:
            return Page((), None)
        phases = None if query.phases is None else self.encode_texts(sorted(query.phases))
        return await self._read(partial(list_tasks, query, phases, now, after, limit))

    async def count_states(self, scope: Scope, *, now: datetime) -> dict[tuple[str, str], int]:
        return await self._read(partial(count_states, scope, now)) if scope.may_list else {}

    async def count_live(self, scope: Scope) -> dict[Phase, int]:
        return await self._read(partial(count_live, scope)) if scope.may_list else {}

    async def get_or_create_secret(self, name: str) -> bytes:
        found = await self._read(partial(find_secret, name))
        return await self._write(partial(create_secret, name)) if found is None else found

    async def save_definitions(self, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
        return await self._write(partial(save_definitions, namespace, definitions))

    async def merge_durations(
        self, namespace: str, durations: Mapping[str, DurationHistogram]
    ) -> dict[str, DurationHistogram]:
        check_durations(namespace, durations)
        if not durations:
            return await self._read(partial(read_durations, namespace, self.damaged))
        lock = self.needs_row_locks
        return await self._write(partial(merge_durations, namespace, durations, self.damaged, needs_lock=lock))

    @staticmethod
    @abstractmethod
    def encode_tools(tools: frozenset[Tool]) -> Mapping[str, object]:
        """Return the parameters of a query for these tools."""

    @staticmethod
    @abstractmethod
    def encode_texts(texts: Sequence[str]) -> object:
        """Return the value of a parameter that is a list of texts."""

    @abstractmethod
    async def _read(self, plan: Callable[[], Plan[T]]) -> T:
        """Run a plan that only reads."""

    @abstractmethod
    async def _write(self, plan: Callable[[], Plan[T]]) -> T:
        """Run a plan in a write transaction. It changes no task in a way that feeds report."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close all connections, if the store is open."""
