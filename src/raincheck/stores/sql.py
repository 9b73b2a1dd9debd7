"""Shared code of the SQL stores: conversion between records and rows.

Times become whole microseconds, so they
round-trip exactly. Journals are built from rows, whether read for that purpose or already fetched by a claim.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from raincheck.core.change import Creation
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import (
    Artifact,
    Attempt,
    HistoryEntry,
    InputKind,
    InputRequest,
    InstanceState,
    Journal,
    Lease,
    Progress,
    Step,
    Task,
    TaskId,
    Tool,
)
from raincheck.errors import InvalidValue

Row: TypeAlias = tuple[Any, ...]
Value: TypeAlias = "int | float | str | bytes | None"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def to_datetime(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def sanitize_text(text: str) -> str:
    """Replace text that a database can't store by an empty string, which is never a stored name."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return "" if "\0" in text else text


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)


# Enum members and booleans are bound as their underlying values: the driver has a slow path for subclasses.
def task_to_row(task: Task) -> dict[str, Value]:
    """Return the columns that a change may set, by name."""
    attempt, progress, state = task.attempt, task.progress, task.state
    return {
        "id": task.id,
        "updated_at": to_micros(task.updated_at),
        "phase": str(task.phase),
        "due_at": _micros(task.due_at),
        "version": task.version,
        "fence": task.attempt_number,
        "failures": task.failures,
        "attempt_started_at": None if attempt is None else to_micros(attempt.started_at),
        "lease_holder": None if attempt is None else attempt.lease.holder,
        "lease_expires_at": None if attempt is None else to_micros(attempt.lease.expires_at),
        "pausing": int(task.pausing),
        "signals": task.signals,
        "open_inputs": task.open_inputs,
        "entries": task.entries,
        "progress_done": None if progress is None else progress.done,
        "progress_total": None if progress is None else progress.total,
        "status_message": task.status_message,
        "is_error": int(task.is_error),
        "finished_at": _micros(task.finished_at),
        "expires_at": _micros(task.expires_at),
        "state": None if state is None else state.name,
        "state_since": None if state is None else to_micros(state.since),
        "state_number": None if state is None else state.number,
    }


def creation_to_row(creation: Creation) -> dict[str, Value]:
    """Return all columns of a new task, by name."""
    task = creation.task
    ttl = task.retention.ttl
    return task_to_row(task) | {
        "namespace": task.namespace,
        "owner": task.owner.key,
        "tool": task.tool.name,
        "tool_version": task.tool.version,
        "created_at": to_micros(task.created_at),
        "parent_id": task.parent_id,
        "idempotency_key": task.idempotency_key,
        "request_digest": creation.request_digest,
        "priority": task.priority,
        "deadline_at": _micros(task.deadline_at),
        "retry": _retry_text(task.retry),
        "keep": task.retention.keep // _MICROSECOND,
        "ttl": None if ttl is None else ttl // _MICROSECOND,
        "subject": task.subject,
    }


def task_from_row(row: Row) -> Task:
    """Build the task of a row that starts with the columns of `tasks`. A store or query may append further columns."""
    (
        _, task_id, namespace, owner, tool, tool_version, created_at, parent_id, idempotency_key, _, priority,
        deadline_at, retry, keep, ttl, updated_at, phase, due_at, version, fence, failures, attempt_started_at,
        lease_holder, lease_expires_at, pausing, signals, open_inputs, entries, progress_done, progress_total,
        status_message, is_error, finished_at, expires_at, _, state, state_since, state_number, subject,
    ) = row[:39]  # fmt: skip
    attempt = None
    if lease_holder is not None:
        lease = Lease(lease_holder, to_datetime(lease_expires_at))
        attempt = Attempt(fence, to_datetime(attempt_started_at), lease)
    return Task(
        task_id,
        namespace,
        _owner(owner),
        Tool(tool, tool_version),
        to_datetime(created_at),
        to_datetime(updated_at),
        _PHASES[phase],
        parent_id,
        idempotency_key,
        priority,
        _moment(due_at),
        _moment(deadline_at),
        _retry(retry),
        _retention(keep, ttl),
        version,
        fence,
        failures,
        attempt,
        bool(pausing),
        signals,
        open_inputs,
        entries,
        None if progress_done is None else Progress(progress_done, progress_total),
        status_message,
        bool(is_error),
        _moment(finished_at),
        _moment(expires_at),
        None if state is None else InstanceState(state, to_datetime(state_since), state_number),
        subject,
    )


def pk_of(row: Row) -> int:
    return row[0]


def id_of(row: Row) -> TaskId:
    return row[1]


def digest_of(row: Row) -> str | None:
    return row[9]


def entry_to_row(pk: int, entry: HistoryEntry) -> Row:
    before = None if entry.before is None else str(entry.before)
    return (
        pk, entry.seq, to_micros(entry.at), str(entry.event), before, str(entry.after), entry.attempt, entry.actor,
        entry.note, entry.detail,
    )  # fmt: skip


def entry_from_row(row: Row) -> HistoryEntry:
    seq, at, event, before, after, attempt, actor, note, detail = row
    phase_before = None if before is None else Phase(before)
    return HistoryEntry(seq, to_datetime(at), Event(event), phase_before, Phase(after), attempt, actor, note, detail)


def step_from_row(row: Row) -> Step:
    name, occurrence, fingerprint, result, attempt, finished_at = row
    return Step(name, occurrence, fingerprint, result, attempt, to_datetime(finished_at))


def input_from_row(row: Row) -> InputRequest:
    key, kind, request, asked_at, attempt, answer, answered_at = row
    return InputRequest(key, InputKind(kind), request, to_datetime(asked_at), attempt, answer, _moment(answered_at))


def artifact_from_row(row: Row) -> Artifact:
    name, content, kept_at = row
    return Artifact(name, content, to_datetime(kept_at))


def histogram_from_row(row: Row) -> tuple[str, DurationHistogram]:
    tool, counts = row
    try:
        return tool, DurationHistogram.load(counts)
    except InvalidValue as error:
        raise InvalidValue(f"the stored durations of tool {tool!r} are invalid: {error}") from error


_PHASES: Mapping[str, Phase] = {phase.value: phase for phase in Phase}


# Few of these exist and every task has one, so each is created once.
_owner = lru_cache(1_024)(Owner.from_key)


@lru_cache(256)
def _retention(keep: int, ttl: int | None) -> Retention:
    return Retention(timedelta(microseconds=keep), None if ttl is None else timedelta(microseconds=ttl))


@lru_cache(256)
def _retry_text(retry: RetryPolicy) -> str:
    return json.dumps(
        {
            "attempts": retry.attempts,
            "first": retry.first_wait // _MICROSECOND,
            "factor": retry.factor,
            "most": retry.max_wait // _MICROSECOND,
            "jitter": retry.jitter,
            "on_interrupt": retry.on_interrupt,
        }
    )


@lru_cache(256)
def _retry(text: str) -> RetryPolicy:
    fields = json.loads(text)
    return RetryPolicy(
        fields["attempts"],
        timedelta(microseconds=fields["first"]),
        fields["factor"],
        timedelta(microseconds=fields["most"]),
        fields["jitter"],
        OnInterrupt(fields["on_interrupt"]),
    )


def build_journal(
    task: Task,
    payloads: Sequence[Any],
    steps: Sequence[Row] = (),
    inputs: Sequence[Row] = (),
    artifacts: Sequence[Row] = (),
) -> Journal:
    """Build a journal. `payloads` are the task's arguments, caller and variables."""
    arguments, caller, variables = payloads
    names = tuple(name for (name,) in artifacts)
    finished_steps, input_requests = tuple(map(step_from_row, steps)), tuple(map(input_from_row, inputs))
    return Journal(task, arguments, caller, variables, finished_steps, input_requests, names)


def collect_journals(journals: dict[TaskId, Journal], tasks: Iterable[Task], rows: Iterable[Row]) -> None:
    """Add the journals of tasks that have just been started, if the row of the task contains the whole journal.

    A row ends with the payloads, and whether there is more.
    """
    whole = {id_of(row): row for row in rows if not row[-1]}
    journals.update((task.id, build_journal(task, whole[task.id][-4:-1])) for task in tasks if task.id in whole)
