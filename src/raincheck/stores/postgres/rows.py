"""Rows of PostgreSQL: those of `stores.sql`, with the job of a task at the end."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from raincheck.core.change import Change, Creation
from raincheck.core.fair_queue import enters_queue
from raincheck.core.lifecycle import Phase
from raincheck.core.records import HistoryEntry, Task
from raincheck.stores import sql

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = dict[str, Any]


_NOT_AT_FIRST = frozenset(
    {"finished_at", "expires_at", "failures", "pausing", "signals", "open_inputs", "progress_done", "progress_total"}
    | {"is_error"}
)
"""What a new task has nothing of. Not spelled out: statements with many parameters are parsed anew every time."""
_NOT_IN_THE_QUEUE = _NOT_AT_FIRST | {"attempt_started_at", "lease_holder", "lease_expires_at"}
"""Nor has one that is not begun."""
_NOT_AT_WORK = _NOT_AT_FIRST | {"due_at"}
"""Nor has one that is."""


def parameters_of_creation(creation: Creation) -> Parameters:
    """All that `insert_task` takes, but for bounds and news. If it gets a job, that is made by the statement."""
    row = sql.row_of_creation(creation)
    return {
        **_without(_NOT_IN_THE_QUEUE, row),
        **_entry(creation.entry),
        "arguments": creation.arguments,
        "caller": creation.caller,
        "enters": enters_queue(None, creation.task),
        "job_id": None,
    }


def _without(names: frozenset[str], row: Mapping[str, sql.Value]) -> Parameters:
    return {name: value for name, value in row.items() if name not in names}


_WHEN_QUEUED = ("updated_at", "version", "fence", "entries")
"""What a claim changes, and a task has otherwise if it has to wait. Its phase is what the statement says."""


def parameters_of_offer(creation: Creation, begun: Change) -> Parameters:
    """All that `insert_offered` takes, but for the offer, bounds and news: the task as it is then, or else queued."""
    row = sql.row_of_creation(creation)
    entries = [_as_json(entry) for entry in (creation.entry, begun.entry) if entry is not None]
    return {
        **_without(_NOT_AT_WORK, row | sql.row_of_task(begun.after)),
        **{f"queued_{name}": row[name] for name in _WHEN_QUEUED},
        # In a database of encoding SQL_ASCII, jsonb takes no escapes of other characters.
        "entry": json.dumps(entries[:1], ensure_ascii=False),
        "both_entries": json.dumps(entries, ensure_ascii=False),
        "arguments": creation.arguments,
        "caller": creation.caller,
        "job_id": None,
    }


def parameters_of_change(change: Change, job_id: int | None) -> Parameters:
    """All that `update_task` takes, but for the news."""
    return {
        **sql.row_of_task(change.after),
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
    _, *values = sql.row_of_entry(0, entry)
    return {f"entry_{name}": value for name, value in zip(_ENTRY, values, strict=True)}


def _as_json(entry: HistoryEntry) -> Parameters:
    _, *values, detail = sql.row_of_entry(0, entry)
    return dict(zip(_ENTRY, (*values, None if detail is None else detail.hex()), strict=True))


def wants_job(before: Task | None, after: Task) -> bool:
    """Whether a change lets the task run now: it enters the queue, or is parked till a moment that is past."""
    is_due = after.phase is Phase.PARKED and after.due_at is not None and after.due_at <= after.updated_at
    return is_due or enters_queue(before, after)


def moment(micros: int | None) -> datetime | None:
    return None if micros is None else sql.to_moment(micros)


def bindable(text: str) -> str:
    """What a caller sent, in a form that PostgreSQL takes: else it becomes empty, which no stored name is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return "" if "\0" in text else text
