"""Read queries of the PostgreSQL store. Each sees one moment: several statements run in one snapshot."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from psycopg import AsyncConnection
from psycopg.errors import DataCorrupted

from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import InvalidValue, TaskNotFound
from raincheck.stores import sql as shared
from raincheck.stores.documents import check_states_scope
from raincheck.stores.postgres import rows
from raincheck.stores.requests import DUE_NOW, Page, PageCursor, TaskQuery, check_secret_name, clamp_limit, find_overdue
from raincheck.stores.sql import build_journal, load_queries

if TYPE_CHECKING:
    from raincheck.stores.postgres.connection import DatabaseClock


QUERIES = load_queries(files("raincheck.stores.postgres") / "queries.sql")


Connection: TypeAlias = AsyncConnection[rows.Row]

_LARGEST = (1 << 63) - 1

_LIST_START = (_LARGEST, "")
"""A list position before every task."""


async def load(connection: Connection, task_id: TaskId, scope: Scope, now: datetime) -> Task:
    return shared.task_from_row(await _row(connection, "load_task", task_id, scope, now))


async def view(connection: Connection, task_id: TaskId, scope: Scope, now: datetime) -> View:
    row = await _row(connection, "view", task_id, scope, now)
    task = shared.task_from_row(row)
    if task.is_terminal or not task.open_inputs:
        return View(task, row[-1], ())
    async with _snapshot(connection):
        row = await _row(connection, "view", task_id, scope, now)
        inputs = await _all(connection, "open_inputs", {"pk": shared.pk_of(row)})
    return View(shared.task_from_row(row), row[-1], tuple(map(shared.input_from_row, inputs)))


async def journal(connection: Connection, task_id: TaskId, scope: Scope, now: datetime) -> Journal:
    row = await _row(connection, "journal", task_id, scope, now)
    *_, has_more = row
    if not has_more:
        # Most tasks have none of it when they start, and one statement sees one moment.
        return build_journal(shared.task_from_row(row), row[-4:-1])
    async with _snapshot(connection):
        row = await _row(connection, "journal", task_id, scope, now)
        parameters = {"pk": shared.pk_of(row)}
        steps = await _all(connection, "all_steps", parameters)
        inputs = await _all(connection, "all_inputs", parameters)
        artifacts = await _all(connection, "artifact_names", parameters)
    return build_journal(shared.task_from_row(row), row[-4:-1], steps, inputs, artifacts)


async def artifact(connection: Connection, task_id: TaskId, name: str, scope: Scope, now: datetime) -> Artifact | None:
    async with _snapshot(connection):
        pk = shared.pk_of(await _row(connection, "load_task", task_id, scope, now))
        found = await _all(connection, "artifact", {"pk": pk, "name": rows.sanitize_text(name)})
    return shared.artifact_from_row(found[0]) if found else None


async def history(
    connection: Connection, task_id: TaskId, scope: Scope, now: datetime, after: int, limit: int
) -> tuple[HistoryEntry, ...]:
    async with _snapshot(connection):
        pk = shared.pk_of(await _row(connection, "load_task", task_id, scope, now))
        parameters = {"pk": pk, "after": max(0, min(after, _LARGEST)), "limit": clamp_limit(limit)}
        found = await _all(connection, "history", parameters)
    return tuple(map(shared.entry_from_row, found))


async def list_tasks(
    connection: Connection, query: TaskQuery, now: datetime, after: PageCursor | None, limit: int
) -> Page:
    scope = query.scope
    limit = clamp_limit(limit)
    created_at, task_id = _LIST_START if after is None else (shared.to_micros(after.created_at), after.task_id)
    parameters = _scope_parameters(scope) | {
        "parent_id": None if query.parent_id is None else rows.sanitize_text(query.parent_id),
        "tool": None if query.tool is None else rows.sanitize_text(query.tool),
        "state": None if query.state is None else rows.sanitize_text(query.state),
        "subject": None if query.subject is None else rows.sanitize_text(query.subject),
        "phases": None if query.phases is None else sorted(map(str, query.phases)),
        "created_at": created_at,
        "id": rows.sanitize_text(task_id),
        "now": shared.to_micros(now),
        "limit": limit + 1,
    }
    return Page.of(list(map(shared.task_from_row, await _all(connection, query.kind, parameters))), limit)


async def count_live(connection: Connection, scope: Scope) -> dict[Phase, int]:
    found = await _all(connection, "count_live", _scope_parameters(scope))
    return {Phase(phase): count for phase, count in found}


async def count_states(connection: Connection, scope: Scope, now: datetime) -> dict[tuple[str, str], int]:
    check_states_scope(scope)
    parameters = _scope_parameters(scope) | {"now": shared.to_micros(now)}
    return {(tool, state): count for tool, state, count in await _all(connection, "count_states", parameters)}


async def list_overdue(connection: Connection, now: datetime, limit: int, clock: "DatabaseClock") -> tuple[Task, ...]:
    sent_at = clock.monotonic()
    found = await _all(connection, "overdue", {"now": shared.to_micros(now), "limit": clamp_limit(limit)})
    # This is called regularly, so it also keeps the clock accurate.
    clock.add_reading(shared.to_datetime(found[0][0]), sent_at, clock.monotonic())
    overdue = [shared.task_from_row(row[1:]) for row in found if row[1] is not None]
    return find_overdue(overdue, now=now, limit=limit)


async def next_due(connection: Connection, namespace: str, tools: frozenset[Tool]) -> datetime | None:
    ((is_queued, due_at),) = await _all(connection, "next_due", tools_parameters(namespace, tools))
    return DUE_NOW if is_queued else rows.to_optional_datetime(due_at)


async def first_due(connection: Connection) -> datetime | None:
    found = await _all(connection, "first_due")
    return shared.to_datetime(found[0][0]) if found else None


async def find_secret(connection: Connection, name: str) -> bytes | None:
    check_secret_name(name)
    found = await _all(connection, "secret", {"name": name})
    return found[0][0] if found else None


async def durations(connection: Connection, namespace: str) -> dict[str, DurationHistogram]:
    found = await _all(connection, "durations", {"namespace": namespace})
    try:
        return dict(map(shared.histogram_from_row, found))
    except InvalidValue as error:
        raise DataCorrupted(str(error)) from error


async def database_time(connection: Connection) -> datetime:
    """Return the time of the database's clock."""
    ((micros,),) = await _all(connection, "clock")
    return shared.to_datetime(micros)


def tools_parameters(namespace: str, tools: frozenset[Tool]) -> rows.Parameters:
    names = sorted((tool.name, tool.version) for tool in tools)
    return {
        "namespace": rows.sanitize_text(namespace),
        "tools": [rows.sanitize_text(name) for name, _ in names],
        "versions": [rows.sanitize_text(version) for _, version in names],
    }


async def _row(connection: Connection, query: str, task_id: TaskId, scope: Scope, now: datetime) -> rows.Row:
    parameters = _scope_parameters(scope) | {"id": rows.sanitize_text(task_id), "now": shared.to_micros(now)}
    found = await _all(connection, query, parameters)
    if not found:
        raise TaskNotFound(task_id)
    return found[0]


async def _all(connection: Connection, query: str, parameters: rows.Parameters | None = None) -> Sequence[Any]:
    return await (await connection.execute(cast("Any", QUERIES[query]), parameters)).fetchall()


def _scope_parameters(scope: Scope) -> rows.Parameters:
    namespace = None if scope.namespace is None else rows.sanitize_text(scope.namespace)
    return {"namespace": namespace, "owner": None if scope.owner is None else scope.owner.key}


@asynccontextmanager
async def _snapshot(connection: Connection) -> AsyncGenerator[None]:
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    finally:
        await connection.execute("COMMIT")
