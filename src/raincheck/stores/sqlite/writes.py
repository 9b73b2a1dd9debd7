"""Write operations of the SQLite store, each run inside a write transaction.

`SqliteTables` applies new tasks and changes to the tables. Each operation returns its result and the tasks that feeds
are notified of.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

from raincheck.core.change import Change, Creation
from raincheck.core.fair_queue import enters_queue
from raincheck.core.family import write_with_relatives
from raincheck.core.histogram import DurationHistogram, merge_histograms
from raincheck.core.limits import Quota
from raincheck.core.payload import Payload
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import AlreadyRecorded, StaleChange
from raincheck.stores import sql
from raincheck.stores.requests import (
    DUE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    check_definitions,
    check_distinct_tasks,
    clamp_limit,
    generate_secret,
)
from raincheck.stores.sql import collect_journals
from raincheck.stores.sqlite import reads
from raincheck.stores.sqlite.connection import is_duplicate
from raincheck.stores.sqlite.reads import QUERIES

_NEVER = (1 << 63) - 1
"""Later than any creation time."""


class SqliteTables:
    """The tables within a transaction. It records the tasks it touched, for the feeds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.touched: list[TaskId] = []

    def find(self, task_id: TaskId) -> Task | None:
        row = self._connection.execute(QUERIES["find_task"], (task_id,)).fetchone()
        return None if row is None else sql.task_from_row(row)

    def live_children(self, parent_id: TaskId) -> list[Task]:
        return list(map(sql.task_from_row, self._connection.execute(QUERIES["live_children"], (parent_id,)).fetchall()))

    def insert(self, creation: Creation, quota: Quota, now: datetime, start: Change | None = None) -> None:
        """Insert a new task, if its owner's quota allows it.

        A task whose attempt starts with it is written once, already running: the queue's indexes need not see it.
        """
        new = creation.task
        self._check_quota(new, quota, now)
        turn, has_waiting = self._next_turn(new) if enters_queue(None, new) else (0, False)
        row = sql.creation_to_row(creation) | {"turn": turn}
        if start is not None:
            row |= sql.task_to_row(start.after)
        pk = self._insert_once("insert_task", row, lambda: AlreadyRecorded(new.id)).lastrowid
        assert pk is not None  # noqa: S101 - an insert has a row
        for entry in (creation.entry, None if start is None else start.entry):
            if entry is not None:
                self._connection.execute(QUERIES["insert_entry"], sql.entry_to_row(pk, entry))
        self._put_payload(pk, "arguments", creation.arguments)
        self._put_payload(pk, "caller", creation.caller)
        if start is not None and has_waiting:
            # The served turn of a queue matters only to tasks that wait in it.
            self.advance_served_turns([new.id])
        self.touched.append(new.id)

    def write(self, change: Change) -> None:
        """Apply the change, if it is still valid, and insert the tasks that it spawns."""
        pk = self._update(change)
        if change.entry is not None:
            self._connection.execute(QUERIES["insert_entry"], sql.entry_to_row(pk, change.entry))
        self._put_payload(pk, "outcome", change.outcome)
        self._put_payload(pk, "variables", change.variables)
        if change.leaves_state:
            self._connection.execute(QUERIES["delete_steps"], (pk,))
            self._connection.execute(QUERIES["delete_answered_inputs"], (pk,))
        if change.steps:
            self._write_steps(pk, change)
        if change.inputs:
            self._write_inputs(pk, change)
        for artifact in change.artifacts:
            row = (pk, artifact.name, artifact.content, sql.to_micros(artifact.kept_at))
            self._connection.execute(QUERIES["put_artifact"], row)
        self.touched.append(change.after.id)
        for creation in change.spawned:
            self.insert(creation, change.quota, creation.task.created_at)

    def advance_served_turns(self, claimed: Iterable[TaskId]) -> None:
        """Store how far a claim of these tasks served their queues."""
        self._connection.execute(QUERIES["advance_served_turns"], (json.dumps([*claimed]),))

    def _update(self, change: Change) -> int:
        parameters = sql.task_to_row(change.after)
        parameters["expected_version"] = change.before.version
        parameters["lease_seen"] = None if change.lease_seen is None else sql.to_micros(change.lease_seen)
        # If the change is valid, the stored task has the phase from before.
        enters = enters_queue(change.before, change.after)
        parameters["turn"] = self._next_turn(change.after)[0] if enters else None
        updated = self._connection.execute(QUERIES["update_task"], parameters).fetchall()
        if not updated:
            raise StaleChange(change.before.id)
        return updated[0][0]

    def _next_turn(self, new: Task) -> tuple[int, bool]:
        """Return the turn of a task, and whether other tasks wait in its queue."""
        parameters = {
            "namespace": new.namespace,
            "owner": new.owner.key,
            "priority": new.priority,
            "fence": new.attempt_number,
            "tool": new.tool.name,
            "tool_version": new.tool.version,
        }
        return self._connection.execute(QUERIES["next_turn"], parameters).fetchone()

    def _put_payload(self, pk: int, kind: str, body: Payload | None) -> None:
        if body is not None:
            self._connection.execute(QUERIES["put_payload"], (pk, kind, body))

    def _write_steps(self, pk: int, change: Change) -> None:
        for step in change.steps:
            finished_at = sql.to_micros(step.finished_at)
            row = (pk, step.name, step.occurrence, step.fingerprint, step.result, step.attempt, finished_at)
            duplicate = partial(AlreadyRecorded.step, change.before.id, step.name, step.occurrence)
            self._insert_once("insert_step", row, duplicate)

    def _write_inputs(self, pk: int, change: Change) -> None:
        for question in change.inputs:
            if question.answered_at is not None:
                answer = (question.answer, sql.to_micros(question.answered_at), pk, question.key)
                self._connection.execute(QUERIES["answer_input"], answer)
                continue
            asked_at = sql.to_micros(question.asked_at)
            row = (pk, question.key, str(question.kind), question.request, asked_at, question.attempt)
            duplicate = partial(AlreadyRecorded.input_request, change.before.id, question.key)
            self._insert_once("insert_input", row, duplicate)

    def _insert_once(
        self, query: str, row: sql.Row | dict[str, sql.Value], duplicate: Callable[[], AlreadyRecorded]
    ) -> sqlite3.Cursor:
        try:
            return self._connection.execute(QUERIES[query], row)
        except sqlite3.IntegrityError as error:
            if is_duplicate(error):
                raise duplicate() from error
            raise

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        if quota.live is None and quota.created is None:
            return
        bounds = {
            "most_live": quota.live or 0,
            "most_created": quota.created or 1,
            "since": _NEVER if quota.created is None else sql.to_micros(now - quota.window),
        }
        owner = {"namespace": new.namespace, "owner": new.owner.key}
        live, latest = self._connection.execute(QUERIES["count_of_owner"], owner | bounds).fetchone()
        quota.check_live(live)
        if quota.created is not None:
            quota.check_created(None if latest is None else sql.to_datetime(latest), now)


T = TypeVar("T")


class WriteResult(NamedTuple, Generic[T]):
    """The result of a write, and the tasks it touched."""

    result: T
    touched: tuple[TaskId, ...]


def create(
    connection: sqlite3.Connection, creation: Creation, quota: Quota, now: datetime, claim: ClaimRequest | None
) -> WriteResult[Task]:
    if creation.task.idempotency_key is not None:
        found = _task_with_key(connection, creation, now)
        if found is not None:
            return WriteResult(found, ())
    tables = SqliteTables(connection)
    start = None if claim is None else _decide_direct_start(connection, creation.task, claim, now)
    tables.insert(creation, quota, now, start)
    return WriteResult(creation.task if start is None else start.after, tuple(tables.touched))


def _decide_direct_start(
    connection: sqlite3.Connection, new: Task, claim: ClaimRequest, now: datetime
) -> Change | None:
    """Return the change that starts a new task; None if the creator can't run it, or other work waits for it."""
    started = claim.decide_claims([new], now)
    if started and claim.has_no_other_work(reads.next_due(connection, claim.namespace, claim.tools), now):
        return started[0]
    return None


def commit(connection: sqlite3.Connection, changes: Sequence[Change]) -> WriteResult[None]:
    check_distinct_tasks(changes)
    tables = SqliteTables(connection)
    for change in changes:
        write_with_relatives(change, tables)
    return WriteResult(None, tuple(dict.fromkeys(tables.touched)))


def claim(connection: sqlite3.Connection, request: ClaimRequest, now: datetime) -> WriteResult[tuple[Task, ...]]:
    parameters = {
        "namespace": request.namespace,
        "tools": reads.tools_text(request.tools),
        "now": sql.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    tables = SqliteTables(connection)
    for change in request.decide_wakeups(_tasks(connection, "due_tasks", parameters), now):
        tables.write(change)
    found = connection.execute(QUERIES["queued_tasks"], parameters).fetchall()
    started = request.decide_claims(map(sql.task_from_row, found), now)
    for change in started:
        tables.write(change)
    if started:
        tables.advance_served_turns(change.after.id for change in started)
    if request.journals is not None:
        collect_journals(request.journals, [change.after for change in started], found)
    return WriteResult(tuple(change.after for change in started), tuple(dict.fromkeys(tables.touched)))


def _tasks(connection: sqlite3.Connection, query: str, parameters: Mapping[str, sql.Value]) -> list[Task]:
    return list(map(sql.task_from_row, connection.execute(QUERIES[query], parameters).fetchall()))


def extend_leases(
    connection: sqlite3.Connection, held: Sequence[HeldAttempt], until: datetime
) -> WriteResult[frozenset[TaskId]]:
    lost = frozenset(
        attempt.task_id
        for attempt in held
        if not connection.execute(
            QUERIES["extend_lease"], {"id": attempt.task_id, "fence": attempt.fence, "until": sql.to_micros(until)}
        ).fetchall()
    )
    return WriteResult(lost, ())


def release_key(connection: sqlite3.Connection, task_id: TaskId, key: str) -> WriteResult[None]:
    connection.execute(QUERIES["release_key"], (reads.sanitize_text(task_id), reads.sanitize_text(key)))
    return WriteResult(None, ())


def prune(
    connection: sqlite3.Connection, now: datetime, limit: int, only: Sequence[TaskId] | None
) -> WriteResult[tuple[TaskId, ...]]:
    if only is None:
        parameters = {"now": sql.to_micros(now), "limit": clamp_limit(limit)}
        pruned = connection.execute(QUERIES["prune_tasks"], parameters).fetchall()
    else:
        each = (connection.execute(QUERIES["prune_task"], (reads.sanitize_text(named),)).fetchall() for named in only)
        pruned = list(islice(chain.from_iterable(each), clamp_limit(limit)))
    ids = tuple(TaskId(row[0]) for row in pruned)
    return WriteResult(ids, ids)


def create_secret(connection: sqlite3.Connection, name: str) -> WriteResult[bytes]:
    connection.execute(QUERIES["insert_secret"], (name, generate_secret()))
    # Another handle may have created it first.
    return WriteResult(connection.execute(QUERIES["secret"], (name,)).fetchone()[0], ())


def save_definitions(
    connection: sqlite3.Connection, namespace: str, definitions: Mapping[Tool, bytes]
) -> WriteResult[dict[Tool, bytes]]:
    check_definitions(namespace, definitions)
    rows = [(namespace, tool.name, tool.version, body) for tool, body in definitions.items()]
    connection.executemany(QUERIES["put_definition"], rows)
    found = connection.execute(QUERIES["needed_definitions"], {"namespace": namespace}).fetchall()
    return WriteResult({Tool(name, version): body for name, version, body in found}, ())


def merge_durations(
    connection: sqlite3.Connection, namespace: str, durations: Mapping[str, DurationHistogram]
) -> WriteResult[dict[str, DurationHistogram]]:
    stored = reads.durations(connection, namespace)
    changed = merge_histograms(stored, durations)
    for tool, histogram in changed.items():
        connection.execute(QUERIES["put_durations"], (namespace, tool, histogram.dump()))
    return WriteResult(stored | changed, ())


def _task_with_key(connection: sqlite3.Connection, creation: Creation, now: datetime) -> Task | None:
    new = creation.task
    parameters = {"namespace": new.namespace, "owner": new.owner.key, "key": new.idempotency_key}
    row = connection.execute(QUERIES["task_with_key"], parameters).fetchone()
    if row is None:
        return None
    task = sql.task_from_row(row)
    if creation.matches(task, sql.digest_of(row), now):
        return task
    # It has expired and will be pruned later; its key has been free since it expired.
    connection.execute(QUERIES["delete_task"], (task.id,))
    return None
