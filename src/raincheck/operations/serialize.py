"""Tasks as JSON with stable field names. Times are in UTC, and missing values are null."""

import json
from collections.abc import Mapping
from datetime import datetime

from raincheck.core.owner import Scope
from raincheck.core.records import HistoryEntry, InputRequest, Journal, Step, Task, TaskId
from raincheck.core.values import Json, Payload, decode
from raincheck.errors import NotJson, PayloadSealed
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT

EVERYTHING = Scope.everything()

TRIES = 10
"""The maximum number of times to read a task that changes while it is read."""


def serialize_task(task: Task) -> dict[str, Json]:
    """Return the record of a task as JSON."""
    progress, attempt = task.progress, task.attempt
    return {
        "id": task.id,
        "namespace": task.namespace,
        "owner": json.loads(task.owner.key),
        "tool": task.tool.name,
        "tool_version": task.tool.version,
        "status": str(task.status),
        "phase": str(task.phase),
        "status_message": task.status_message,
        "state": None if task.state is None else task.state.name,
        "state_since": None if task.state is None else format_timestamp(task.state.since),
        "subject": task.subject,
        "is_error": task.is_error,
        "progress": None if progress is None else {"done": progress.done, "total": progress.total},
        "attempt": task.attempt_number,
        "failures": task.failures,
        "running": None
        if attempt is None
        else {
            "holder": attempt.lease.holder,
            "started_at": format_timestamp(attempt.started_at),
            "lease_expires_at": format_timestamp(attempt.lease.expires_at),
        },
        "pausing": task.pausing,
        "open_inputs": task.open_inputs,
        "priority": task.priority,
        "parent_id": task.parent_id,
        "idempotency_key": task.idempotency_key,
        "created_at": format_timestamp(task.created_at),
        "updated_at": format_timestamp(task.updated_at),
        "due_at": format_timestamp(task.due_at),
        "deadline_at": format_timestamp(task.deadline_at),
        "finished_at": format_timestamp(task.finished_at),
        "expires_at": format_timestamp(task.expires_at),
    }


def format_timestamp(moment: datetime | None) -> str | None:
    """Format a moment for JSON."""
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


async def load_task_document(store: Store, task: Task, *, now: datetime) -> dict[str, Json]:
    """Return everything that is stored about a task, except the content of its artifacts and its caller.

    Raises:
        TaskNotFound: the task no longer exists.
    """
    journal, outcome = await _read(store, task.id, now)
    payloads = {"arguments": journal.arguments, "variables": journal.variables, "outcome": outcome}
    history = [_entry(entry) for entry in await _history(store, journal, now)]
    return (
        serialize_task(journal.task)
        | _decode_all(payloads)
        | {
            "steps": [_step(step) for step in journal.steps],
            "inputs": [_input(input_request) for input_request in journal.inputs],
            "artifacts": list(journal.artifacts),
            "history": history,
        }
    )


async def _read(store: Store, task_id: TaskId, now: datetime) -> tuple[Journal, Payload | None]:
    """Read a task's journal and its outcome as of one moment, unless the task changes all the time."""
    journal = await store.journal(task_id, EVERYTHING, now=now)
    view = await store.view(task_id, EVERYTHING, now=now)
    for _ in range(TRIES):
        if view.task.version == journal.task.version:
            break
        journal = await store.journal(task_id, EVERYTHING, now=now)
        view = await store.view(task_id, EVERYTHING, now=now)
    return journal, view.outcome


async def _history(store: Store, journal: Journal, now: datetime) -> list[HistoryEntry]:
    """Read the history up to the moment when the journal was read."""
    entries: list[HistoryEntry] = []
    while True:
        last = entries[-1].seq if entries else 0
        page = await store.history(journal.task.id, EVERYTHING, now=now, after=last, limit=PAGE_LIMIT)
        entries += [entry for entry in page if entry.seq <= journal.task.entries]
        if len(page) < PAGE_LIMIT or entries[-1].seq < page[-1].seq:
            return entries


def _entry(entry: HistoryEntry) -> dict[str, Json]:
    return {
        "seq": entry.seq,
        "at": format_timestamp(entry.at),
        "event": str(entry.event),
        "before": None if entry.before is None else str(entry.before),
        "after": str(entry.after),
        "attempt": entry.attempt,
        "actor": entry.actor,
        "note": entry.note,
    } | _decode_all({"detail": entry.detail})


def _step(step: Step) -> dict[str, Json]:
    return {
        "name": step.name,
        "occurrence": step.occurrence,
        "attempt": step.attempt,
        "finished_at": format_timestamp(step.finished_at),
    } | _decode_all({"result": step.result})


def _input(input_request: InputRequest) -> dict[str, Json]:
    return {
        "key": input_request.key,
        "kind": str(input_request.kind),
        "asked_at": format_timestamp(input_request.asked_at),
        "answered_at": format_timestamp(input_request.answered_at),
    } | _decode_all({"request": input_request.request, "answer": input_request.answer})


def _decode_all(payloads: Mapping[str, Payload | None]) -> dict[str, Json]:
    """Decode payloads to JSON. A payload that can't be read is null, and `unreadable` gives the reason."""
    values: dict[str, Json] = {}
    unreadable: dict[str, Json] = {}
    for name, payload in payloads.items():
        values[name] = None
        try:
            values[name] = None if payload is None else decode(payload)
        except PayloadSealed:
            unreadable[name] = "sealed"
        except NotJson:
            unreadable[name] = "damaged"
    return {**values, "unreadable": unreadable}
