"""Transactions of the SQLite store, and the runner of the plans that it shares (`stores.sql_store`).

`SqliteTables` applies new tasks and changes to the tables. Each write runs inside a write transaction.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice
from typing import TypeVar

from raincheck.core.change import Change, Creation
from raincheck.core.effects import enters_queue, write_with_relatives
from raincheck.core.policies import Quota
from raincheck.core.records import Task, TaskId, Tool
from raincheck.core.values import Payload
from raincheck.errors import AlreadyRecorded, StaleChange
from raincheck.sql_files import load_queries
from raincheck.stores import sql
from raincheck.stores.requests import (
    DUE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    check_distinct_tasks,
    clamp_limit,
    find_overdue,
)
from raincheck.stores.sql_store import (
    Parameters,
    Plan,
    Statement,
    next_due,
    task_with_key,
    write_contents,
)
from raincheck.stores.sqlite.connection import is_duplicate

QUERIES = load_queries(files("raincheck.stores.sqlite") / "queries.sql")

_TEXTS = QUERIES | {"begin_snapshot": "BEGIN", "end_snapshot": "COMMIT"}

T = TypeVar("T")


def run(connection: sqlite3.Connection, plan: Plan[T]) -> T:
    """Run a plan, within a transaction or as one statement."""
    try:
        statement = next(plan)
        while True:
            statement = plan.send(execute(connection, statement).fetchall())
    except StopIteration as end:
        return end.value


def execute(connection: sqlite3.Connection, statement: Statement) -> sqlite3.Cursor:
    try:
        return connection.execute(_TEXTS[statement.query], statement.parameters)
    except sqlite3.IntegrityError as error:
        if statement.duplicate is not None and is_duplicate(error):
            raise statement.duplicate() from error
        raise


def run_read(connection: sqlite3.Connection, plan: Callable[[], Plan[T]]) -> T:
    """Run a plan that only reads, and end its snapshot if it fails."""
    try:
        return run(connection, plan())
    except BaseException:
        # SQLite may have rolled the transaction back itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def list_overdue(now: datetime, limit: int) -> Plan[tuple[Task, ...]]:
    parameters = {"now": sql.to_micros(now), "limit": clamp_limit(limit)}
    yield Statement("begin_snapshot")
    found = [*(yield Statement("tasks_past_lease", parameters)), *(yield Statement("tasks_past_deadline", parameters))]
    yield Statement("end_snapshot")
    # A task may be both, and is then found twice.
    return find_overdue({sql.pk_of(row): sql.task_from_row(row) for row in found}.values(), now=now, limit=limit)


# A worker queries the same tools again and again.
@lru_cache(64)
def encode_tools(tools: frozenset[Tool]) -> Mapping[str, str]:
    return {"tools": json.dumps([[tool.name, tool.version] for tool in tools])}


MAX_OWNERS = 1_000
"""The number of owners whose live tasks are known. Beyond that, all are counted again."""


class LiveCounts:
    """Upper bounds on the numbers of live tasks, known to the one connection of a store that writes.

    A count is exact in its transaction. After that, only a new task makes it too small: this connection adds its own,
    and SQLite's `data_version` changes when another connection has committed anything. A rollback may revive tasks
    that had ended when they were counted. In both cases the bounds are discarded. Tasks that end are not subtracted: if
    the bound reaches the quota, the tasks are counted again.
    """

    def __init__(self) -> None:
        self._bounds: dict[tuple[str, str], int] = {}
        self._data_version: int | None = None

    def bound(self, connection: sqlite3.Connection, new: Task) -> int | None:
        """Return a number that the live tasks of a new task's owner don't exceed, inside a write transaction."""
        (data_version,) = connection.execute("PRAGMA data_version").fetchone()
        if data_version != self._data_version:
            self._bounds.clear()
            self._data_version = data_version
        return self._bounds.get(_owner_of(new))

    def record(self, new: Task, count: int) -> None:
        """Record an exact count, made after `bound` in the same transaction."""
        if len(self._bounds) >= MAX_OWNERS:
            self._bounds.clear()
        self._bounds[_owner_of(new)] = count

    def add(self, new: Task) -> None:
        """Add a task that was inserted."""
        owner = _owner_of(new)
        if owner in self._bounds:
            self._bounds[owner] += 1

    def discard(self) -> None:
        """Forget all bounds, since a transaction or a part of it was rolled back."""
        self._bounds.clear()


def _owner_of(task: Task) -> tuple[str, str]:
    return task.namespace, task.owner.key


class SqliteTables:
    """The tables within a transaction. It records the tasks it touched, for the feeds."""

    def __init__(self, connection: sqlite3.Connection, live_counts: LiveCounts) -> None:
        self._connection = connection
        self._live_counts = live_counts
        self.touched: list[TaskId] = []

    def run(self, plan: Plan[T]) -> T:
        return run(self._connection, plan)

    def fetch(self, query: str, parameters: Parameters) -> list[sql.Row]:
        return self._connection.execute(QUERIES[query], parameters).fetchall()

    def tasks(self, query: str, parameters: Parameters) -> list[Task]:
        return list(map(sql.task_from_row, self.fetch(query, parameters)))

    def find(self, task_id: TaskId) -> Task | None:
        return next(iter(self.tasks("find_task", (task_id,))), None)

    def live_children(self, parent_id: TaskId) -> list[Task]:
        return self.tasks("live_children", (parent_id,))

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
        insert = Statement("insert_task", row, lambda: AlreadyRecorded(new.id))
        pk = execute(self._connection, insert).lastrowid
        assert pk is not None  # noqa: S101 - an insert has a row
        self._live_counts.add(new)
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
        self.run(write_contents(pk, change))
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
        updated = self.fetch("update_task", parameters)
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

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        owner = {"namespace": new.namespace, "owner": new.owner.key}
        if quota.live is not None:
            quota.check_live(self._count_live(new, quota.live, owner))
        if quota.created is not None:
            nth = {"most_created": quota.created, "since": sql.to_micros(now - quota.window)}
            latest = next(iter(self.fetch("nth_latest_of_owner", owner | nth)), None)
            quota.check_created(None if latest is None else sql.to_datetime(latest[0]), now)

    def _count_live(self, new: Task, limit: int, owner: Mapping[str, sql.Value]) -> int:
        """Return the number of an owner's live tasks if the limit may be reached, else a bound below the limit."""
        bound = self._live_counts.bound(self._connection, new)
        if bound is not None and bound < limit:
            return bound
        ((live,),) = self.fetch("live_of_owner", {**owner, "most_live": limit})
        if live < limit:
            # Otherwise it was not counted to the end.
            self._live_counts.record(new, live)
        return live


def create(tables: SqliteTables, creation: Creation, quota: Quota, now: datetime, claim: ClaimRequest | None) -> Task:
    if creation.task.idempotency_key is not None:
        found = tables.run(task_with_key(creation, now))
        if found is not None:
            return found
    start = None if claim is None else _decide_direct_start(tables, creation.task, claim, now)
    tables.insert(creation, quota, now, start)
    return creation.task if start is None else start.after


def _decide_direct_start(tables: SqliteTables, new: Task, claim: ClaimRequest, now: datetime) -> Change | None:
    """Return the change that starts a new task; None if the creator can't run it, or other work waits for it."""
    started = claim.decide_claims([new], now)
    if not started:
        return None
    due = tables.run(next_due(claim.namespace, encode_tools(claim.tools)))
    return started[0] if claim.has_no_other_work(due, now) else None


def commit(tables: SqliteTables, changes: Sequence[Change]) -> None:
    check_distinct_tasks(changes)
    for change in changes:
        write_with_relatives(change, tables)


def claim(tables: SqliteTables, request: ClaimRequest, now: datetime) -> tuple[Task, ...]:
    parameters = {
        "namespace": request.namespace,
        **encode_tools(request.tools),
        "now": sql.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    for change in request.decide_wakeups(tables.tasks("due_tasks", parameters), now):
        tables.write(change)
    found = tables.fetch("queued_tasks", parameters)
    started = request.decide_claims(map(sql.task_from_row, found), now)
    for change in started:
        tables.write(change)
    if started:
        tables.advance_served_turns(change.after.id for change in started)
    if request.journals is not None:
        sql.collect_journals(request.journals, [change.after for change in started], found)
    return tuple(change.after for change in started)


def put_latest_time(tables: SqliteTables, now: datetime) -> None:
    tables.fetch("put_latest_time", {"now": sql.to_micros(now)})


def extend_leases(
    tables: SqliteTables, held: Sequence[HeldAttempt], until: datetime, now: datetime
) -> frozenset[TaskId]:
    put_latest_time(tables, now)
    return frozenset(
        attempt.task_id
        for attempt in held
        if not tables.fetch(
            "extend_lease", {"id": attempt.task_id, "fence": attempt.fence, "until": sql.to_micros(until)}
        )
    )


def prune(tables: SqliteTables, now: datetime, limit: int, only: Sequence[TaskId] | None) -> tuple[TaskId, ...]:
    if only is None:
        pruned = tables.fetch("prune_tasks", {"now": sql.to_micros(now), "limit": clamp_limit(limit)})
    else:
        each = (tables.fetch("prune_task", (sql.sanitize_text(named),)) for named in only)
        pruned = list(islice(chain.from_iterable(each), clamp_limit(limit)))
    ids = tuple(TaskId(row[0]) for row in pruned)
    tables.touched += ids
    return ids
