"""What is done inside a write transaction. Each returns its result and the tasks that others should hear of."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Generic, NamedTuple, TypeVar

from raincheck.core.change import Change, Creation
from raincheck.core.limits import Quota
from raincheck.core.payload import Payload
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import AlreadyRecorded, StaleChange
from raincheck.stores.requests import DUE_LIMIT, ClaimRequest, HeldAttempt, ids_touched, page_size
from raincheck.stores.sqlite import rows
from raincheck.stores.sqlite.errors import is_duplicate
from raincheck.stores.sqlite.queries import QUERIES

T = TypeVar("T")


class Written(NamedTuple, Generic[T]):
    """What a write gives back, and which tasks it touched."""

    result: T
    touched: tuple[TaskId, ...]


def create(connection: sqlite3.Connection, creation: Creation, quota: Quota, now: datetime) -> Written[Task]:
    new = creation.task
    if new.idempotency_key is not None:
        found = _task_with_key(connection, creation, now)
        if found is not None:
            return Written(found, ())
    _check_quota(connection, new, quota, now)
    _insert(connection, creation)
    return Written(new, (new.id,))


def commit(connection: sqlite3.Connection, changes: Sequence[Change]) -> Written[None]:
    touched = ids_touched(changes)
    for change in changes:
        _keep(connection, change)
    return Written(None, tuple(touched))


def claim(connection: sqlite3.Connection, request: ClaimRequest, now: datetime) -> Written[tuple[Task, ...]]:
    parameters = {
        "namespace": request.namespace,
        "tools": _tools_text(request.tools),
        "now": rows.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    woken = request.wake(_tasks(connection, "due_tasks", parameters), now)
    for change in woken:
        _keep(connection, change)
    begun = request.begin(_tasks(connection, "queued_tasks", parameters), now)
    for change in begun:
        _keep(connection, change)
    touched = tuple(change.after.id for change in (*woken, *begun))
    return Written(tuple(change.after for change in begun), touched)


def _tasks(connection: sqlite3.Connection, query: str, parameters: Mapping[str, rows.Value]) -> list[Task]:
    return list(map(rows.task_of, connection.execute(QUERIES[query], parameters).fetchall()))


def extend_leases(
    connection: sqlite3.Connection, held: Sequence[HeldAttempt], until: datetime
) -> Written[frozenset[TaskId]]:
    lost = frozenset(
        one.task_id
        for one in held
        if not connection.execute(
            QUERIES["extend_lease"], {"id": one.task_id, "fence": one.fence, "until": rows.to_micros(until)}
        ).fetchall()
    )
    return Written(lost, ())


def prune(connection: sqlite3.Connection, now: datetime, limit: int) -> Written[tuple[TaskId, ...]]:
    parameters = {"now": rows.to_micros(now), "limit": page_size(limit)}
    pruned = connection.execute(QUERIES["prune_tasks"], parameters).fetchall()
    ids = tuple(TaskId(row[0]) for row in pruned)
    return Written(ids, ids)


# A worker asks for the same tools again and again.
@lru_cache(64)
def _tools_text(tools: frozenset[Tool]) -> str:
    return json.dumps([[tool.name, tool.version] for tool in tools])


def _insert(connection: sqlite3.Connection, creation: Creation) -> None:
    row = rows.row_of_creation(creation)
    pk = _insert_once(connection, "insert_task", row, lambda: AlreadyRecorded(creation.task.id)).lastrowid
    assert pk is not None  # noqa: S101 - an insert has a row
    connection.execute(QUERIES["insert_entry"], rows.row_of_entry(pk, creation.entry))
    _put_payload(connection, pk, "arguments", creation.arguments)
    _put_payload(connection, pk, "caller", creation.caller)


def _keep(connection: sqlite3.Connection, change: Change) -> None:
    parameters = rows.row_of_task(change.after)
    parameters["expected_version"] = change.before.version
    parameters["lease_seen"] = None if change.lease_seen is None else rows.to_micros(change.lease_seen)
    updated = connection.execute(QUERIES["update_task"], parameters).fetchall()
    if not updated:
        raise StaleChange(change.before.id)
    pk: int = updated[0][0]
    if change.entry is not None:
        connection.execute(QUERIES["insert_entry"], rows.row_of_entry(pk, change.entry))
    _put_payload(connection, pk, "outcome", change.outcome)
    _put_payload(connection, pk, "variables", change.variables)
    if change.steps:
        _keep_steps(connection, pk, change)
    if change.inputs:
        _keep_inputs(connection, pk, change)
    for artifact in change.artifacts:
        row = (pk, artifact.name, artifact.content, rows.to_micros(artifact.kept_at))
        connection.execute(QUERIES["put_artifact"], row)
    for creation in change.spawned:
        _insert(connection, creation)


def _put_payload(connection: sqlite3.Connection, pk: int, kind: str, body: Payload | None) -> None:
    if body is not None:
        connection.execute(QUERIES["put_payload"], (pk, kind, body))


def _keep_steps(connection: sqlite3.Connection, pk: int, change: Change) -> None:
    for step in change.steps:
        finished_at = rows.to_micros(step.finished_at)
        row = (pk, step.name, step.occurrence, step.fingerprint, step.result, step.attempt, finished_at)
        duplicate = partial(AlreadyRecorded.step, change.before.id, step.name, step.occurrence)
        _insert_once(connection, "insert_step", row, duplicate)


def _keep_inputs(connection: sqlite3.Connection, pk: int, change: Change) -> None:
    for question in change.inputs:
        if question.answered_at is not None:
            answer = (question.answer, rows.to_micros(question.answered_at), pk, question.key)
            connection.execute(QUERIES["answer_input"], answer)
            continue
        asked_at = rows.to_micros(question.asked_at)
        row = (pk, question.key, str(question.kind), question.request, asked_at, question.attempt)
        duplicate = partial(AlreadyRecorded.question, change.before.id, question.key)
        _insert_once(connection, "insert_input", row, duplicate)


def _insert_once(
    connection: sqlite3.Connection,
    query: str,
    row: rows.Row | dict[str, rows.Value],
    duplicate: Callable[[], AlreadyRecorded],
) -> sqlite3.Cursor:
    try:
        return connection.execute(QUERIES[query], row)
    except sqlite3.IntegrityError as error:
        if is_duplicate(error):
            raise duplicate() from error
        raise


def _task_with_key(connection: sqlite3.Connection, creation: Creation, now: datetime) -> Task | None:
    new = creation.task
    parameters = {"namespace": new.namespace, "owner": new.owner.key, "key": new.idempotency_key}
    row = connection.execute(QUERIES["task_with_key"], parameters).fetchone()
    if row is None:
        return None
    task = rows.task_of(row)
    if creation.asks_for(task, rows.digest_of(row), now):
        return task
    # It has expired and would be pruned sooner or later; its key is free again from that moment.
    connection.execute(QUERIES["delete_task"], (task.id,))
    return None


def _check_quota(connection: sqlite3.Connection, new: Task, quota: Quota, now: datetime) -> None:
    whose = {"namespace": new.namespace, "owner": new.owner.key}
    if quota.live is not None:
        row = connection.execute(QUERIES["count_owner_live"], whose | {"limit": quota.live}).fetchone()
        quota.check_live(row[0])
    if quota.created is not None:
        row = connection.execute(QUERIES["nth_latest_creation"], whose | {"n": quota.created}).fetchone()
        quota.check_created(None if row is None else rows.to_moment(row[0]), now)
