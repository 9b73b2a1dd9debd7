"""Check the database of a store: does it take writes, is there room for more, do jobs reach workers? It only reads."""

from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from importlib.resources import files
from typing import Any, cast

from raincheck.clock import Clock
from raincheck.dispatchers.procrastinate.dispatcher import STALE
from raincheck.dispatchers.procrastinate.jobs import ATTEMPT
from raincheck.dispatchers.procrastinate.schema import is_ready
from raincheck.operations.describe import printable
from raincheck.operations.task_health import SKEW, Finding
from raincheck.stores.postgres.address import Target
from raincheck.stores.postgres.connection import connected
from raincheck.stores.postgres.migrate import newest_version, schema_version
from raincheck.stores.postgres.reads import Connection
from raincheck.stores.sql import load_queries
from raincheck.wire.fallback_text import in_words

QUERIES = load_queries(files("raincheck.operations") / "database_health.sql")

WRITTEN = ["tasks", "history", "payloads", "steps", "inputs", "artifacts", "procrastinate_jobs"]
"""Tables that every server and worker writes to."""

FEW_LEFT = 20
"""Connections: a server or a worker may take about fifteen."""

NONE_LEFT = 3

LATELY = 10.0
"""Seconds in which a job that was fetched has begun its task, or has come back."""


async def check_database(target: Target, clock: Clock) -> list[Finding]:
    """What is found of a database. The clock is this machine's.

    Raises:
        NotAStore, SchemaMismatch: it is not for this raincheck to look at.
        StoreError: it can't be looked at.
    """
    async with connected(target) as connection:
        return [finding async for finding in _check_server(connection, target, clock)]


async def _check_server(connection: Connection, target: Target, clock: Clock) -> AsyncGenerator[Finding]:
    asked = clock.now()
    version, is_standby, is_read_only, moment, used, most = await _row(connection, "server")
    yield Finding.ok("server", f"PostgreSQL {version}")
    yield _check_writes(is_standby=is_standby, is_read_only=is_read_only)
    yield _check_connections(used, most)
    yield _check_time(moment - asked, clock.now() - asked)
    known = await newest_version()
    (closed,) = await _row(connection, "closed_schemas", schemas=[target.schema, target.jobs_schema])
    if closed:
        yield _check_schema_rights([f"the schema {schema}" for schema in closed])
        return
    found = await schema_version(connection, target, known)
    has_queue = await is_ready(connection, target.jobs_schema)
    yield _check_schema(target, found, known, has_queue=has_queue)
    if found < known or not has_queue:
        return
    (locked,) = await _row(connection, "rights", tables=WRITTEN)
    yield _check_schema_rights(locked)
    for finding in await _check_jobs(connection):
        yield finding


def _check_writes(*, is_standby: bool, is_read_only: bool) -> Finding:
    if is_standby:
        return Finding.bad("writes", "the server is a standby, which takes none", "name the primary in the store's URL")
    if is_read_only:
        do = "name the primary in the store's URL, or set default_transaction_read_only to off"
        return Finding.bad("writes", "the database is set to read-only", do)
    return Finding.ok("writes", "the database takes them")


def _check_connections(used: int, most: int) -> Finding:
    left = max(0, most - used)
    said = f"{used} of {most} connections are taken"
    do = "raise max_connections, run fewer servers and workers, or look for who else keeps some open"
    if left < NONE_LEFT:
        return Finding.bad("connections", said, do)
    return Finding.warn("connections", said, do) if left < FEW_LEFT else Finding.ok("connections", said)


def _check_time(ahead: timedelta, asking: timedelta) -> Finding:
    """Between the question and the answer, the database looked at its clock."""
    apart = max(timedelta(0), -ahead, ahead - asking)
    said = f"the database's clock and this machine's are {in_words(apart.total_seconds())} apart"
    if apart <= SKEW:
        return Finding.ok("time", said)
    do = "let both take their time from the same place (NTP). Leases go by the database's; logs and tokens do not"
    return Finding.warn("time", said, do)


def _check_schema(target: Target, found: int, known: int, *, has_queue: bool) -> Finding:
    migrate = "run raincheck migrate as the owner of the schema, or start a server that may make tables"
    if found == 0:
        return Finding.bad("schema", f"there are no tables of raincheck in the schema {target.schema!r}", migrate)
    if found < known:
        return Finding.bad("schema", f"version {found}, and this raincheck has version {known}", migrate)
    if not has_queue:
        said = f"the tables of the queue in the schema {target.jobs_schema!r} are missing, or older than Procrastinate"
        return Finding.bad("schema", said, migrate)
    return Finding.ok("schema", f"version {found}, the newest")


def _check_schema_rights(locked: list[str]) -> Finding:
    if not locked:
        return Finding.ok("rights", "this user can read and write all tables")
    said = f"this user can't read and write {', '.join(locked)}"
    return Finding.bad(
        "rights", said, "grant it the rights to that, or name the user that the servers have in the store's URL"
    )


async def _check_jobs(connection: Connection) -> list[Finding]:
    alive, waiting = await _row(connection, "workers", stale=STALE)
    (held,) = await _row(connection, "held_jobs", attempt=ATTEMPT, stale=STALE)
    found = [*_tell_missing(await _rows(connection, "missing_jobs", attempt=ATTEMPT, lately=LATELY))]
    if held:
        said = f"dead workers have {'1 job' if held == 1 else f'{held} jobs'}"
        wait, start = "look again in a minute: a live one gives them to others", "start a worker: it takes them back"
        found.append(Finding.warn("jobs", said, wait) if alive else Finding.bad("jobs", said, start))
    return [*(found or [Finding.ok("jobs", "every task that waits has one")]), _check_alive(alive, waiting)]


def _tell_missing(rows: list[tuple[Any, ...]]) -> Iterator[Finding]:
    """Jobs that were lost. Whoever works sees to it, when there has been room for a while."""
    for namespace, tool, version, count in rows:
        name = f"{printable(tool)} (version {printable(version)}) of {printable(namespace)!r}"
        waits = f"1 task of {name} waits" if count == 1 else f"{count} tasks of {name} wait"
        ls = f"raincheck tasks ls --status queued --tool {printable(tool)}"
        do = f"look again in a minute: a worker with room begins it all the same. Else pause and resume what {ls} shows"
        yield Finding.warn("jobs", f"{waits} without a job", do)


def _check_alive(alive: int, waiting: int) -> Finding:
    said = f"{'1 process takes' if alive == 1 else f'{alive} processes take'} jobs"
    if alive or not waiting:
        return Finding.ok("alive", said)
    waits = "1 task waits" if waiting == 1 else f"{waiting} tasks wait"
    return Finding.bad("alive", f"{said}, and {waits}", "start a worker: raincheck worker TARGET")


async def _row(connection: Connection, query: str, **parameters: object) -> tuple[Any, ...]:
    return (await _rows(connection, query, **parameters))[0]


async def _rows(connection: Connection, query: str, **parameters: object) -> list[tuple[Any, ...]]:
    return await (await connection.execute(cast("Any", QUERIES[query]), parameters or None)).fetchall()
