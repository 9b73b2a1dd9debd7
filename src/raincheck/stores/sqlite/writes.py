"""What is done inside a write transaction. Each returns its result and the tasks that others should hear of."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

from raincheck.core.change import Change, Creation
from raincheck.core.durations import Sketch, merge_news
from raincheck.core.family import keep_in_family
from raincheck.core.limits import Quota
from raincheck.core.records import Task, TaskId, Tool
from raincheck.stores import rows
from raincheck.stores.checks import check_definitions, check_named_once, new_secret
from raincheck.stores.journals import note_journals
from raincheck.stores.requests import DUE_LIMIT, ClaimRequest, HeldAttempt, page_size
from raincheck.stores.sqlite import reads
from raincheck.stores.sqlite.queries import QUERIES
from raincheck.stores.sqlite.tables import Tables

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
        "now": rows.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    tables = Tables(connection)
    for change in request.wake(_tasks(connection, "due_tasks", parameters), now):
        tables.write(change)
    found = connection.execute(QUERIES["queued_tasks"], parameters).fetchall()
    begun = request.begin(map(rows.task_of, found), now)
    for change in begun:
        tables.write(change)
    if begun:
        tables.advance_lines(change.after.id for change in begun)
    if request.journals is not None:
        note_journals(request.journals, [change.after for change in begun], found)
    return Written(tuple(change.after for change in begun), tuple(dict.fromkeys(tables.touched)))


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


def release_key(connection: sqlite3.Connection, task_id: TaskId, key: str) -> Written[None]:
    connection.execute(QUERIES["release_key"], (reads.bindable(task_id), reads.bindable(key)))
    return Written(None, ())


def prune(
    connection: sqlite3.Connection, now: datetime, limit: int, only: Sequence[TaskId] | None
) -> Written[tuple[TaskId, ...]]:
    if only is None:
        parameters = {"now": rows.to_micros(now), "limit": page_size(limit)}
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
    task = rows.task_of(row)
    if creation.asks_for(task, rows.digest_of(row), now):
        return task
    # It has expired and would be pruned sooner or later; its key is free again from that moment.
    connection.execute(QUERIES["delete_task"], (task.id,))
    return None
