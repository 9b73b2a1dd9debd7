"""What is done inside a write transaction. Each returns its result and the tasks that others should hear of.

What new tasks and changes become in the tables, inside of a write transaction.
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
from raincheck.core.family import keep_in_family
from raincheck.core.histogram import Sketch, merge_news
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
    check_named_once,
    new_secret,
    page_size,
)
from raincheck.stores.sql import note_journals
from raincheck.stores.sqlite import reads
from raincheck.stores.sqlite.connection import is_duplicate
from raincheck.stores.sqlite.reads import QUERIES

_NEVER = (1 << 63) - 1
"""After all that was ever created."""


class Tables:
    """The tables, as they are within a transaction. It remembers which tasks it touched, for those who listen."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.touched: list[TaskId] = []

    def find(self, task_id: TaskId) -> Task | None:
        row = self._connection.execute(QUERIES["find_task"], (task_id,)).fetchone()
        return None if row is None else sql.task_of(row)

    def live_children(self, parent_id: TaskId) -> list[Task]:
        return list(map(sql.task_of, self._connection.execute(QUERIES["live_children"], (parent_id,)).fetchall()))

    def insert(self, creation: Creation, quota: Quota, now: datetime, begun: Change | None = None) -> None:
        """Begin a new task, if its owner may have one more.

        One whose attempt is begun with it is written as it is then, in one go: the queue's indexes need not see it.
        """
        new = creation.task
        self._check_quota(new, quota, now)
        turn, others_wait = self._next_turn(new) if enters_queue(None, new) else (0, False)
        row = sql.row_of_creation(creation) | {"turn": turn}
        if begun is not None:
            row |= sql.row_of_task(begun.after)
        pk = self._insert_once("insert_task", row, lambda: AlreadyRecorded(new.id)).lastrowid
        assert pk is not None  # noqa: S101 - an insert has a row
        for entry in (creation.entry, None if begun is None else begun.entry):
            if entry is not None:
                self._connection.execute(QUERIES["insert_entry"], sql.row_of_entry(pk, entry))
        self._put_payload(pk, "arguments", creation.arguments)
        self._put_payload(pk, "caller", creation.caller)
        if begun is not None and others_wait:
            # How far a line was served matters only to those who wait in it.
            self.advance_lines([new.id])
        self.touched.append(new.id)

    def write(self, change: Change) -> None:
        """Do what the change says, if it still holds, and begin the tasks that it spawns."""
        pk = self._update(change)
        if change.entry is not None:
            self._connection.execute(QUERIES["insert_entry"], sql.row_of_entry(pk, change.entry))
        self._put_payload(pk, "outcome", change.outcome)
        self._put_payload(pk, "variables", change.variables)
        if change.leaves_state:
            self._connection.execute(QUERIES["forget_steps"], (pk,))
            self._connection.execute(QUERIES["forget_answered"], (pk,))
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

    def advance_lines(self, taken: Iterable[TaskId]) -> None:
        """Remember how far a claim that took these tasks served their lines."""
        self._connection.execute(QUERIES["advance_lines"], (json.dumps([*taken]),))

    def _update(self, change: Change) -> int:
        parameters = sql.row_of_task(change.after)
        parameters["expected_version"] = change.before.version
        parameters["lease_seen"] = None if change.lease_seen is None else sql.to_micros(change.lease_seen)
        # If it holds, the stored task has the phase from before.
        enters = enters_queue(change.before, change.after)
        parameters["turn"] = self._next_turn(change.after)[0] if enters else None
        updated = self._connection.execute(QUERIES["update_task"], parameters).fetchall()
        if not updated:
            raise StaleChange(change.before.id)
        return updated[0][0]

    def _next_turn(self, new: Task) -> tuple[int, bool]:
        """The turn of a task, and whether others wait in its line."""
        whose = {"namespace": new.namespace, "owner": new.owner.key, "priority": new.priority, "fence": new.fence}
        tool = {"tool": new.tool.name, "tool_version": new.tool.version}
        return self._connection.execute(QUERIES["next_turn"], whose | tool).fetchone()

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
            duplicate = partial(AlreadyRecorded.question, change.before.id, question.key)
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
        whose = {"namespace": new.namespace, "owner": new.owner.key}
        live, latest = self._connection.execute(QUERIES["count_of_owner"], whose | bounds).fetchone()
        quota.check_live(live)
        if quota.created is not None:
            quota.check_created(None if latest is None else sql.to_moment(latest), now)


T = TypeVar("T")


class Written(NamedTuple, Generic[T]):
    """What a write gives back, and which tasks it touched."""

    result: T
    touched: tuple[TaskId, ...]


def create(
    connection: sqlite3.Connection, creation: Creation, quota: Quota, now: datetime, offer: ClaimRequest | None
) -> Written[Task]:
    if creation.task.idempotency_key is not None:
        found = _task_with_key(connection, creation, now)
        if found is not None:
            return Written(found, ())
    tables = Tables(connection)
    begun = None if offer is None else _begun(connection, creation.task, offer, now)
    tables.insert(creation, quota, now, begun)
    return Written(creation.task if begun is None else begun.after, tuple(tables.touched))


def _begun(connection: sqlite3.Connection, new: Task, offer: ClaimRequest, now: datetime) -> Change | None:
    """What begins a new task; None if whoever offers can't run it, or if something else waits for them."""
    begun = offer.begin([new], now)
    if begun and offer.has_nothing_else(reads.next_due(connection, offer.namespace, offer.tools), now):
        return begun[0]
    return None


def commit(connection: sqlite3.Connection, changes: Sequence[Change]) -> Written[None]:
    check_named_once(changes)
    tables = Tables(connection)
    for change in changes:
        keep_in_family(change, tables)
    return Written(None, tuple(dict.fromkeys(tables.touched)))


def claim(connection: sqlite3.Connection, request: ClaimRequest, now: datetime) -> Written[tuple[Task, ...]]:
    parameters = {
        "namespace": request.namespace,
        "tools": reads.tools_text(request.tools),
        "now": sql.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    tables = Tables(connection)
    for change in request.wake(_tasks(connection, "due_tasks", parameters), now):
        tables.write(change)
    found = connection.execute(QUERIES["queued_tasks"], parameters).fetchall()
    begun = request.begin(map(sql.task_of, found), now)
    for change in begun:
        tables.write(change)
    if begun:
        tables.advance_lines(change.after.id for change in begun)
    if request.journals is not None:
        note_journals(request.journals, [change.after for change in begun], found)
    return Written(tuple(change.after for change in begun), tuple(dict.fromkeys(tables.touched)))


def _tasks(connection: sqlite3.Connection, query: str, parameters: Mapping[str, sql.Value]) -> list[Task]:
    return list(map(sql.task_of, connection.execute(QUERIES[query], parameters).fetchall()))


def extend_leases(
    connection: sqlite3.Connection, held: Sequence[HeldAttempt], until: datetime
) -> Written[frozenset[TaskId]]:
    lost = frozenset(
        one.task_id
        for one in held
        if not connection.execute(
            QUERIES["extend_lease"], {"id": one.task_id, "fence": one.fence, "until": sql.to_micros(until)}
        ).fetchall()
    )
    return Written(lost, ())


def release_key(connection: sqlite3.Connection, task_id: TaskId, key: str) -> Written[None]:
    connection.execute(QUERIES["release_key"], (reads.bindable(task_id), reads.bindable(key)))
    return Written(None, ())


def prune(
    connection: sqlite3.Connection, now: datetime, limit: int, only: Sequence[TaskId] | None
) -> Written[tuple[TaskId, ...]]:
    if only is None:
        parameters = {"now": sql.to_micros(now), "limit": page_size(limit)}
        pruned = connection.execute(QUERIES["prune_tasks"], parameters).fetchall()
    else:
        each = (connection.execute(QUERIES["prune_task"], (reads.bindable(one),)).fetchall() for one in only)
        pruned = list(islice(chain.from_iterable(each), page_size(limit)))
    ids = tuple(TaskId(row[0]) for row in pruned)
    return Written(ids, ids)


def secret(connection: sqlite3.Connection, name: str) -> Written[bytes]:
    connection.execute(QUERIES["insert_secret"], (name, new_secret()))
    # Another handle may have been first.
    return Written(connection.execute(QUERIES["secret"], (name,)).fetchone()[0], ())


def remember(
    connection: sqlite3.Connection, namespace: str, definitions: Mapping[Tool, bytes]
) -> Written[dict[Tool, bytes]]:
    check_definitions(namespace, definitions)
    rows_of = [(namespace, tool.name, tool.version, body) for tool, body in definitions.items()]
    connection.executemany(QUERIES["put_definition"], rows_of)
    found = connection.execute(QUERIES["needed_definitions"], {"namespace": namespace}).fetchall()
    return Written({Tool(name, version): body for name, version, body in found}, ())


def learn(connection: sqlite3.Connection, namespace: str, news: Mapping[str, Sketch]) -> Written[dict[str, Sketch]]:
    known = reads.durations(connection, namespace)
    changed = merge_news(known, news)
    for tool, sketch in changed.items():
        connection.execute(QUERIES["put_durations"], (namespace, tool, sketch.dump()))
    return Written(known | changed, ())


def _task_with_key(connection: sqlite3.Connection, creation: Creation, now: datetime) -> Task | None:
    new = creation.task
    parameters = {"namespace": new.namespace, "owner": new.owner.key, "key": new.idempotency_key}
    row = connection.execute(QUERIES["task_with_key"], parameters).fetchone()
    if row is None:
        return None
    task = sql.task_of(row)
    if creation.asks_for(task, sql.digest_of(row), now):
        return task
    # It has expired and would be pruned sooner or later; its key is free again from that moment.
    connection.execute(QUERIES["delete_task"], (task.id,))
    return None
