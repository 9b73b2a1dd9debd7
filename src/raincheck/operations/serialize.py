"""What is known of a task, as JSON with names that stay. Times are in UTC, and what there is not is null."""

import json
from collections.abc import Mapping
from datetime import datetime

from raincheck.core.owner import Scope
from raincheck.core.payload import Json, Payload, decode
from raincheck.core.records import HistoryEntry, InputRequest, Journal, Step, Task, TaskId
from raincheck.errors import NotJson, PayloadSealed
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT

EVERYTHING = Scope.everything()

TRIES = 10
"""How often to read a task that changes while it is read."""


def facts_of(task: Task) -> dict[str, Json]:
    """The record of a task."""
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
        "state_since": None if task.state is None else said_moment(task.state.since),
        "subject": task.subject,
        "is_error": task.is_error,
        "progress": None if progress is None else {"done": progress.done, "total": progress.total},
        "attempt": task.fence,
        "failures": task.failures,
        "running": None
        if attempt is None
        else {
            "holder": attempt.lease.holder,
            "started_at": said_moment(attempt.started_at),
            "lease_expires_at": said_moment(attempt.lease.expires_at),
        },
        "pausing": task.pausing,
        "open_inputs": task.open_inputs,
        "priority": task.priority,
        "parent_id": task.parent_id,
        "idempotency_key": task.idempotency_key,
        "created_at": said_moment(task.created_at),
        "updated_at": said_moment(task.updated_at),
        "due_at": said_moment(task.due_at),
        "deadline_at": said_moment(task.deadline_at),
        "finished_at": said_moment(task.finished_at),
        "expires_at": said_moment(task.expires_at),
    }


def said_moment(moment: datetime | None) -> str | None:
    """A moment as JSON has it."""
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


async def document_of(store: Store, task: Task, *, now: datetime) -> dict[str, Json]:
    """Everything that is kept of a task, but for what its artifacts have in them and who called.

    Raises:
        TaskNotFound: it is gone by now.
    """
    journal, outcome = await _read(store, task.id, now)
    payloads = {"arguments": journal.arguments, "variables": journal.variables, "outcome": outcome}
    history = [_entry(entry) for entry in await _history(store, journal, now)]
    return (
        facts_of(journal.task)
        | _opened(payloads)
        | {
            "steps": [_step(step) for step in journal.steps],
            "inputs": [_input(question) for question in journal.inputs],
            "artifacts": list(journal.artifacts),
            "history": history,
        }
    )


async def _read(store: Store, task_id: TaskId, now: datetime) -> tuple[Journal, Payload | None]:
    """What a task has, and what came of it: as of one moment, unless it changes all the time."""
    journal = await store.journal(task_id, EVERYTHING, now=now)
    view = await store.view(task_id, EVERYTHING, now=now)
    for _ in range(TRIES):
        if view.task.version == journal.task.version:
            break
        journal = await store.journal(task_id, EVERYTHING, now=now)
        view = await store.view(task_id, EVERYTHING, now=now)
    return journal, view.outcome


async def _history(store: Store, journal: Journal, now: datetime) -> list[HistoryEntry]:
    """The history as long as it was when the journal was read."""
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
        "at": said_moment(entry.at),
        "event": str(entry.event),
        "before": None if entry.before is None else str(entry.before),
        "after": str(entry.after),
        "attempt": entry.attempt,
        "actor": entry.actor,
        "note": entry.note,
    } | _opened({"detail": entry.detail})


def _step(step: Step) -> dict[str, Json]:
    return {
        "name": step.name,
        "occurrence": step.occurrence,
        "attempt": step.attempt,
        "finished_at": said_moment(step.finished_at),
    } | _opened({"result": step.result})


def _input(question: InputRequest) -> dict[str, Json]:
    return {
        "key": question.key,
        "kind": str(question.kind),
        "asked_at": said_moment(question.asked_at),
        "answered_at": said_moment(question.answered_at),
    } | _opened({"request": question.request, "answer": question.answer})


def _opened(payloads: Mapping[str, Payload | None]) -> dict[str, Json]:
    """Payloads as JSON. One that can't be read is null, and `unreadable` says why."""
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
