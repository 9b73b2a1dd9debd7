"""Queries of the PostgreSQL store, the runner of the plans that it shares (`stores.sql_store`), and their parameters.

Rows are those of `stores.sql`, with the task's job at the end.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar, cast

from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import UniqueViolation

from raincheck.core.change import Change, Creation
from raincheck.core.effects import enters_queue
from raincheck.core.lifecycle import Phase
from raincheck.core.records import HistoryEntry, Task, Tool
from raincheck.sql_files import load_queries
from raincheck.stores import sql
from raincheck.stores.sql_store import Plan, Statement

QUERIES = load_queries(files("raincheck.stores.postgres") / "queries.sql")

_TEXTS = QUERIES | {"begin_snapshot": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "end_snapshot": "COMMIT"}

Connection: TypeAlias = AsyncConnection[sql.Row]
Parameters: TypeAlias = dict[str, Any]

T = TypeVar("T")


async def run(connection: Connection, plan: Plan[T]) -> T:
    """Run a plan, within a transaction or as one statement."""
    try:
        statement = next(plan)
        while True:
            cursor = await execute(connection, statement)
            statement = plan.send([] if cursor.rownumber is None else await cursor.fetchall())
    except StopIteration as end:
        return end.value


async def execute(connection: Connection, statement: Statement, text: str | None = None) -> AsyncCursor[sql.Row]:
    """Execute a statement, whose query was completed to `text` if that is given."""
    try:
        return await connection.execute(cast("Any", text or _TEXTS[statement.query]), statement.parameters or None)
    except UniqueViolation as error:
        # If another create with the same key committed first, a retry finds its task.
        if statement.duplicate is None or error.diag.constraint_name == "tasks_by_key":
            raise
        raise statement.duplicate() from error


def encode_tools(tools: frozenset[Tool]) -> Parameters:
    names = sorted((tool.name, tool.version) for tool in tools)
    return {
        "tools": [sql.sanitize_text(name) for name, _ in names],
        "versions": [sql.sanitize_text(version) for _, version in names],
    }


def tools_parameters(namespace: str, tools: frozenset[Tool]) -> Parameters:
    return {"namespace": sql.sanitize_text(namespace), **encode_tools(tools)}


_UNSET_WHEN_NEW = frozenset(
    {"finished_at", "expires_at", "failures", "pausing", "signals", "open_inputs", "progress_done", "progress_total"}
    | {"is_error"}
)
"""Columns that a new task leaves unset. They are omitted: long parameter lists are parsed again every time."""
_UNSET_WHEN_QUEUED = _UNSET_WHEN_NEW | {"attempt_started_at", "lease_holder", "lease_expires_at"}
"""Columns that a new task that is not started does not set."""
_UNSET_WHEN_STARTED = _UNSET_WHEN_NEW | {"due_at"}
"""Columns that a new task that is started at once does not set."""


def creation_parameters(creation: Creation) -> Parameters:
    """Return the parameters of `insert_task`, except quota bounds and notification. The statement creates any job."""
    row = sql.creation_to_row(creation)
    return {
        **_without(_UNSET_WHEN_QUEUED, row),
        **_entry(creation.entry),
        "arguments": creation.arguments,
        "caller": creation.caller,
        "enters": enters_queue(None, creation.task),
        "job_id": None,
    }


def _without(names: frozenset[str], row: Mapping[str, sql.Value]) -> Parameters:
    return {name: value for name, value in row.items() if name not in names}


_QUEUED_COLUMNS = ("updated_at", "version", "fence", "entries")
"""Columns that a claim changes, with their values for a task that has to wait. The statement sets the phase."""


def direct_start_parameters(creation: Creation, start: Change) -> Parameters:
    """Return the parameters of `insert_started` except claim, bounds and notification: started, or else queued."""
    row = sql.creation_to_row(creation)
    entries = [_as_json(entry) for entry in (creation.entry, start.entry) if entry is not None]
    return {
        **_without(_UNSET_WHEN_STARTED, row | sql.task_to_row(start.after)),
        **{f"queued_{name}": row[name] for name in _QUEUED_COLUMNS},
        # In a database with encoding SQL_ASCII, jsonb accepts no escapes of non-ASCII characters.
        "entry": json.dumps(entries[:1], ensure_ascii=False),
        "both_entries": json.dumps(entries, ensure_ascii=False),
        "arguments": creation.arguments,
        "caller": creation.caller,
        "job_id": None,
    }


def change_parameters(change: Change, job_id: int | None) -> Parameters:
    """Return the parameters of `update_task`, except the notification."""
    return {
        **sql.task_to_row(change.after),
        **_entry(change.entry),
        "outcome": change.outcome,
        "variables": change.variables,
        "expected_version": change.before.version,
        "lease_seen": None if change.lease_seen is None else sql.to_micros(change.lease_seen),
        "enters": enters_queue(change.before, change.after),
        "serves": change.before.phase is Phase.QUEUED and change.after.phase is Phase.RUNNING,
        "job_id": job_id,
        "withdrawal": None,
    }


_ENTRY = ("seq", "at", "event", "before", "after", "attempt", "actor", "note", "detail")
_NO_ENTRY: Parameters = {f"entry_{name}": None for name in _ENTRY}


def _entry(entry: HistoryEntry | None) -> Parameters:
    if entry is None:
        return _NO_ENTRY
    _, *values = sql.entry_to_row(0, entry)
    return {f"entry_{name}": value for name, value in zip(_ENTRY, values, strict=True)}


def _as_json(entry: HistoryEntry) -> Parameters:
    _, *values, detail = sql.entry_to_row(0, entry)
    return dict(zip(_ENTRY, (*values, None if detail is None else detail.hex()), strict=True))


def needs_job(before: Task | None, after: Task) -> bool:
    """Return whether a change makes the task runnable now: it enters the queue, or is parked until a past time."""
    is_due = after.phase is Phase.PARKED and after.due_at is not None and after.due_at <= after.updated_at
    return is_due or enters_queue(before, after)
