"""Read queries of the SQLite store. Each sees one moment: several statements run in one read transaction."""

import json
import re
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from importlib.resources import files

from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Artifact, HistoryEntry, Journal, Task, TaskId, Tool, View
from raincheck.errors import InvalidValue, TaskNotFound
from raincheck.stores import sql
from raincheck.stores.documents import check_states_scope
from raincheck.stores.requests import DUE_NOW, Page, PageCursor, TaskQuery, check_secret_name, clamp_limit, find_overdue
from raincheck.stores.sql import build_journal, load_queries
from raincheck.stores.sqlite.connection import CorruptData

QUERIES = load_queries(files("raincheck.stores.sqlite") / "queries.sql")


_LARGEST = (1 << 63) - 1
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_LIST_START = (_LARGEST, "")
"""A list position before every task."""


def load(connection: sqlite3.Connection, task_id: TaskId, scope: Scope, now: datetime) -> Task:
    return sql.task_from_row(_row(connection, task_id, scope, now))


def view(connection: sqlite3.Connection, task_id: TaskId, scope: Scope, now: datetime) -> View:
    # Polls are most of the load, and most need no more than this.
    row = _row(connection, task_id, scope, now, "view_task")
    task = sql.task_from_row(row)
    if task.is_terminal or not task.open_inputs:
        return View(task, row[-1], ())
    with _snapshot(connection):
        # Read again, since the task may have changed in between.
        row = _row(connection, task_id, scope, now, "view_task")
        task = sql.task_from_row(row)
        inputs = () if task.is_terminal else connection.execute(QUERIES["open_inputs"], (sql.pk_of(row),)).fetchall()
    return View(task, row[-1], tuple(map(sql.input_from_row, inputs)))


def journal(connection: sqlite3.Connection, task_id: TaskId, scope: Scope, now: datetime) -> Journal:
    with _snapshot(connection):
        row = _row(connection, task_id, scope, now)
        pk = (sql.pk_of(row),)
        payloads = dict(connection.execute(QUERIES["payloads"], pk).fetchall())
        steps = connection.execute(QUERIES["all_steps"], pk).fetchall()
        inputs = connection.execute(QUERIES["all_inputs"], pk).fetchall()
        artifacts = connection.execute(QUERIES["artifact_names"], pk).fetchall()
    bodies = (payloads["arguments"], payloads.get("caller"), payloads.get("variables"))
    return build_journal(sql.task_from_row(row), bodies, steps, inputs, artifacts)


def artifact(
    connection: sqlite3.Connection, task_id: TaskId, name: str, scope: Scope, now: datetime
) -> Artifact | None:
    with _snapshot(connection):
        pk = sql.pk_of(_row(connection, task_id, scope, now))
        row = connection.execute(QUERIES["artifact"], (pk, sanitize_text(name))).fetchone()
    return None if row is None else sql.artifact_from_row(row)


def history(
    connection: sqlite3.Connection, task_id: TaskId, scope: Scope, now: datetime, after: int, limit: int
) -> tuple[HistoryEntry, ...]:
    with _snapshot(connection):
        pk = sql.pk_of(_row(connection, task_id, scope, now))
        found = connection.execute(
            QUERIES["history"], {"pk": pk, "after": max(0, min(after, _LARGEST)), "limit": clamp_limit(limit)}
        ).fetchall()
    return tuple(map(sql.entry_from_row, found))


def list_tasks(
    connection: sqlite3.Connection, query: TaskQuery, now: datetime, after: PageCursor | None, limit: int
) -> Page:
    scope = query.scope
    limit = clamp_limit(limit)
    created_at, task_id = _LIST_START if after is None else (sql.to_micros(after.created_at), after.task_id)
    parameters = _scope_parameters(scope) | {
        "parent_id": None if query.parent_id is None else sanitize_text(query.parent_id),
        "tool": None if query.tool is None else sanitize_text(query.tool),
        "state": None if query.state is None else sanitize_text(query.state),
        "subject": None if query.subject is None else sanitize_text(query.subject),
        "phases": None if query.phases is None else json.dumps(sorted(query.phases)),
        "created_at": created_at,
        "id": sanitize_text(task_id),
        "now": sql.to_micros(now),
        "limit": limit + 1,
    }
    found = connection.execute(QUERIES[query.kind], parameters).fetchall()
    return Page.of(list(map(sql.task_from_row, found)), limit)


def count_live(connection: sqlite3.Connection, scope: Scope) -> dict[Phase, int]:
    found = connection.execute(QUERIES["count_live"], _scope_parameters(scope)).fetchall()
    return {Phase(phase): count for phase, count in found}


def count_states(connection: sqlite3.Connection, scope: Scope, now: datetime) -> dict[tuple[str, str], int]:
    check_states_scope(scope)
    found = connection.execute(QUERIES["count_states"], _scope_parameters(scope) | {"now": sql.to_micros(now)})
    return {(tool, state): count for tool, state, count in found.fetchall()}


def list_overdue(connection: sqlite3.Connection, now: datetime, limit: int) -> tuple[Task, ...]:
    parameters = {"now": sql.to_micros(now), "limit": clamp_limit(limit)}
    with _snapshot(connection):
        found = [
            *connection.execute(QUERIES["tasks_past_lease"], parameters),
            *connection.execute(QUERIES["tasks_past_deadline"], parameters),
        ]
    # A task may be both, and is then found twice.
    return find_overdue({sql.pk_of(row): sql.task_from_row(row) for row in found}.values(), now=now, limit=limit)


def next_due(connection: sqlite3.Connection, namespace: str, tools: frozenset[Tool]) -> datetime | None:
    parameters = {"namespace": sanitize_text(namespace), "tools": tools_text(tools)}
    is_queued, due_at = connection.execute(QUERIES["next_due"], parameters).fetchone()
    if is_queued:
        return DUE_NOW
    return None if due_at is None else sql.to_datetime(due_at)


def find_secret(connection: sqlite3.Connection, name: str) -> bytes | None:
    check_secret_name(name)
    row = connection.execute(QUERIES["secret"], (name,)).fetchone()
    return None if row is None else row[0]


def durations(connection: sqlite3.Connection, namespace: str) -> dict[str, DurationHistogram]:
    found = connection.execute(QUERIES["durations"], (namespace,)).fetchall()
    try:
        return dict(map(sql.histogram_from_row, found))
    except InvalidValue as error:
        raise CorruptData(str(error)) from error


def _row(
    connection: sqlite3.Connection, task_id: TaskId, scope: Scope, now: datetime, query: str = "load_task"
) -> sql.Row:
    parameters = _scope_parameters(scope) | {"id": sanitize_text(task_id), "now": sql.to_micros(now)}
    row: sql.Row | None = connection.execute(QUERIES[query], parameters).fetchone()
    if row is None:
        raise TaskNotFound(task_id)
    return row


def _scope_parameters(scope: Scope) -> dict[str, sql.Value]:
    namespace = None if scope.namespace is None else sanitize_text(scope.namespace)
    return {"namespace": namespace, "owner": None if scope.owner is None else scope.owner.key}


# A worker queries the same tools again and again.
@lru_cache(64)
def tools_text(tools: frozenset[Tool]) -> str:
    return json.dumps([[tool.name, tool.version] for tool in tools])


def sanitize_text(text: str) -> str:
    """Replace characters that SQLite can't store by NUL, which no stored name contains."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\0", text)


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        # SQLite may have rolled the transaction back itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
