"""Read-only health checks of a PostgreSQL store: writes, connections, clock, schema, rights and the job queue."""

from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from importlib.resources import files
from typing import Any, cast

from raincheck.clock import Clock
from raincheck.dispatchers.procrastinate.dispatcher import STALE_AFTER
from raincheck.dispatchers.procrastinate.jobs import JOB_NAME
from raincheck.dispatchers.procrastinate.schema import is_migrated
from raincheck.operations.describe import printable
from raincheck.operations.health import MAX_CLOCK_SKEW, HealthFinding
from raincheck.sql_files import load_queries
from raincheck.stores.postgres.address import DatabaseTarget
from raincheck.stores.postgres.connection import open_connection
from raincheck.stores.postgres.migrate import newest_version, schema_version
from raincheck.stores.postgres.rows import Connection
from raincheck.wire.fallback_text import format_duration

QUERIES = load_queries(files("raincheck.operations") / "database_health.sql")

WRITABLE_TABLES = ["tasks", "history", "payloads", "steps", "inputs", "artifacts", "procrastinate_jobs"]
"""Tables that every server and worker writes to."""

LOW_CONNECTIONS = 20
"""Warn below this many free connections. A server or a worker may take about fifteen."""

CRITICAL_CONNECTIONS = 3

FETCH_GRACE = 10.0
"""Seconds within which a worker starts the task of a fetched job, or returns the job."""


async def check_database(target: DatabaseTarget, clock: Clock) -> list[HealthFinding]:
    """Check a database. `clock` is this machine's clock.

    Raises:
        NotAStore, SchemaMismatch: this version of raincheck can't read the database.
        StoreError: the check failed.
    """
    async with open_connection(target) as connection:
        return [finding async for finding in _check_server(connection, target, clock)]


async def _check_server(connection: Connection, target: DatabaseTarget, clock: Clock) -> AsyncGenerator[HealthFinding]:
    asked_at = clock.now()
    server_version, is_standby, is_read_only, moment, used, max_connections = await _row(connection, "server")
    yield HealthFinding.ok("server", f"PostgreSQL {server_version}")
    yield _check_writes(is_standby=is_standby, is_read_only=is_read_only)
    yield _check_connections(used, max_connections)
    yield _check_time(moment - asked_at, clock.now() - asked_at)
    newest = await newest_version()
    (closed,) = await _row(connection, "closed_schemas", schemas=[target.schema, target.jobs_schema])
    if closed:
        yield _check_schema_rights([f"the schema {schema}" for schema in closed])
        return
    version_found = await schema_version(connection, target, newest)
    has_queue = await is_migrated(connection, target.jobs_schema)
    yield _check_schema(target, version_found, newest, has_queue=has_queue)
    if version_found < newest or not has_queue:
        return
    (locked,) = await _row(connection, "rights", tables=WRITABLE_TABLES)
    yield _check_schema_rights(locked)
    for finding in await _check_jobs(connection):
        yield finding


def _check_writes(*, is_standby: bool, is_read_only: bool) -> HealthFinding:
    if is_standby:
        return HealthFinding.bad(
            "writes", "the server is a standby, which does not accept writes", "name the primary in the store's URL"
        )
    if is_read_only:
        do = "name the primary in the store's URL, or set default_transaction_read_only to off"
        return HealthFinding.bad("writes", "the database is set to read-only", do)
    return HealthFinding.ok("writes", "the database accepts writes")


def _check_connections(used: int, max_connections: int) -> HealthFinding:
    free = max(0, max_connections - used)
    message = f"{used} of {max_connections} connections are in use"
    do = "raise max_connections, run fewer servers and workers, or find other programs that keep connections open"
    is_warning, is_bad = free < LOW_CONNECTIONS, free < CRITICAL_CONNECTIONS
    return HealthFinding.graded("connections", message, do, is_warning=is_warning, is_bad=is_bad)


def _check_time(ahead: timedelta, query_time: timedelta) -> HealthFinding:
    """Compare the clocks. The database read its clock between the query and the response, `query_time` apart."""
    apart = max(timedelta(0), -ahead, ahead - query_time)
    message = f"the database's clock and this machine's are {format_duration(apart.total_seconds())} apart"
    do = "synchronize both clocks with NTP. Leases use the database's clock, but logs and tokens do not"
    return HealthFinding.graded("time", message, do, is_warning=apart > MAX_CLOCK_SKEW)


def _check_schema(target: DatabaseTarget, version: int, newest: int, *, has_queue: bool) -> HealthFinding:
    migrate = "run raincheck migrate as the owner of the schema, or start a server that may create tables"
    if version == 0:
        return HealthFinding.bad("schema", f"raincheck has no tables in the schema {target.schema!r}", migrate)
    if version < newest:
        return HealthFinding.bad("schema", f"version {version}, and this raincheck has version {newest}", migrate)
    if not has_queue:
        message = (
            f"the tables of the queue in the schema {target.jobs_schema!r} are missing, or older than Procrastinate"
        )
        return HealthFinding.bad("schema", message, migrate)
    return HealthFinding.ok("schema", f"version {version}, the newest")


def _check_schema_rights(locked: list[str]) -> HealthFinding:
    if not locked:
        return HealthFinding.ok("rights", "this user can read and write all tables")
    message = f"this user can't read and write {', '.join(locked)}"
    return HealthFinding.bad(
        "rights", message, "grant it those rights, or use the servers' database user in the store's URL"
    )


async def _check_jobs(connection: Connection) -> list[HealthFinding]:
    alive, waiting = await _row(connection, "workers", stale=STALE_AFTER)
    (stranded,) = await _row(connection, "held_jobs", attempt=JOB_NAME, stale=STALE_AFTER)
    findings = [*_check_missing_jobs(await _rows(connection, "missing_jobs", attempt=JOB_NAME, lately=FETCH_GRACE))]
    if stranded:
        message = f"dead workers hold {'1 job' if stranded == 1 else f'{stranded} jobs'}"
        if alive:
            do = "check again in a minute: a live worker returns them to the queue"
            findings.append(HealthFinding.warn("jobs", message, do))
        else:
            findings.append(HealthFinding.bad("jobs", message, "start a worker: it returns them to the queue"))
    return [*(findings or [HealthFinding.ok("jobs", "every queued task has a job")]), _check_alive(alive, waiting)]


def _check_missing_jobs(rows: list[tuple[Any, ...]]) -> Iterator[HealthFinding]:
    """Report lost jobs. After a while, a worker with free slots starts their tasks anyway."""
    for namespace, tool, version, count in rows:
        name = f"{printable(tool)} (version {printable(version)}) of {printable(namespace)!r}"
        waits = f"1 task of {name} waits" if count == 1 else f"{count} tasks of {name} wait"
        ls = f"raincheck tasks ls --status queued --tool {printable(tool)}"
        wait = "check again in a minute: a worker with a free slot starts such tasks, too"
        do = f"{wait}. If they still wait, pause and resume the tasks that this command lists: {ls}"
        yield HealthFinding.warn("jobs", f"{waits} without a job", do)


def _check_alive(alive: int, waiting: int) -> HealthFinding:
    message = f"{'1 process takes' if alive == 1 else f'{alive} processes take'} jobs"
    if alive or not waiting:
        return HealthFinding.ok("alive", message)
    waits = "1 task waits" if waiting == 1 else f"{waiting} tasks wait"
    return HealthFinding.bad("alive", f"{message}, and {waits}", "start a worker: raincheck worker TARGET")


async def _row(connection: Connection, query: str, **parameters: object) -> tuple[Any, ...]:
    return (await _rows(connection, query, **parameters))[0]


async def _rows(connection: Connection, query: str, **parameters: object) -> list[tuple[Any, ...]]:
    return await (await connection.execute(cast("Any", QUERIES[query]), parameters or None)).fetchall()
