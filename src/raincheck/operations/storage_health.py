"""A checkup of the database of a store: does it take writes, is there room for more, do jobs get to workers.

It is only read.

A checkup of the file of a store: may it be used, is there room, is it whole. It is only read.

Stores in a PostgreSQL database, as commands speak of them. What is secret in a URL is never shown.
"""

import os
import re
import shutil
import sqlite3
import stat
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from raincheck.clock import Clock
from raincheck.dispatchers.procrastinate.dispatcher import STALE
from raincheck.dispatchers.procrastinate.jobs import ATTEMPT
from raincheck.dispatchers.procrastinate.schema import is_ready
from raincheck.errors import StoreCorrupt
from raincheck.operations.describe import printable
from raincheck.operations.redact import HIDDEN, NAMES
from raincheck.operations.task_health import SKEW, Finding
from raincheck.stores.factory import find_address, make_store
from raincheck.stores.postgres.address import Target
from raincheck.stores.postgres.connection import connected
from raincheck.stores.postgres.migrate import newest_version, schema_version
from raincheck.stores.postgres.reads import Connection
from raincheck.stores.sql import load_queries
from raincheck.stores.sqlite.connection import connect, open_reader, translate
from raincheck.stores.sqlite.migrate import schema_version as file_version
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.url import MemoryAddress, PostgresAddress, SqliteAddress
from raincheck.wire.fallback_text import in_words

QUERIES = load_queries(files("raincheck.operations") / "storage_health.sql")

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


IS_DATABASE = re.compile("postgres(ql)?:", re.IGNORECASE)


def find_target(name: str | os.PathLike[str] | None) -> "Target | None":
    """The database that a store of this name is in; None if it is in none.

    Raises:
        ConfigurationError: its name can't be understood, or what it needs is not installed.
    """
    address = find_address(name)
    if not isinstance(address, PostgresAddress):
        return None
    # It says what to install.
    make_store(name)
    from raincheck.stores.postgres import parse_url

    return parse_url(address.url)


def shown_store(name: str | os.PathLike[str] | None) -> str:
    """Where the store of this name is, for whoever reads.

    Raises:
        ConfigurationError: its name can't be understood.
    """
    address = find_address(name)
    match address:
        case MemoryAddress():
            return "memory:"
        case SqliteAddress(path):
            return str(path.absolute())
        case PostgresAddress():
            target = find_target(name)
            return "" if target is None else target.shown


def typed_store(name: str) -> str:
    """A store as it is named in a command that somebody may type: without a password."""
    if not IS_DATABASE.match(name):
        return name
    parts = urlsplit(name)
    who, at, where = parts.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    if "@" in parts.path or (not at and ":" in where and not where.rpartition(":")[2].isdigit()):
        # Not where it belongs: a password with a slash in it, perhaps.
        return f"{parts.scheme}://{HIDDEN}"
    parameters = [
        (key, HIDDEN if NAMES.search(key) else value) for key, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    hidden = f"{user}{colon}{HIDDEN if colon else ''}{at}{where}"
    # Not by `urlunsplit`, which leaves out the slashes before a name that is not there.
    query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"{parts.scheme}://{hidden}{parts.path}{query}"


MIB = 1_024 * 1_024

LOCK_TIMEOUT = 10.0
LITTLE_ROOM = 1_024 * MIB
NO_ROOM = 100 * MIB
LONG_LOG = 64 * MIB
"""A write-ahead log is moved into the database long before it has this size, unless somebody is in the way."""

RESTORE = "stop all processes that use it, then restore a backup or try SQLite's '.recover'"


def check_file(path: Path) -> list[Finding]:
    """What is found of a file.

    Raises:
        NotAStore, SchemaMismatch: it is not for this raincheck to look at.
        StoreError: it can't be looked at.
    """
    path = path.resolve()
    findings = [*_check_file_rights(path), _check_disk(path), _check_log(path)]
    try:
        with closing(open_reader(connect, path, LOCK_TIMEOUT)) as connection:
            findings += _check_database(connection, path)
    except sqlite3.Error as error:
        translated = translate(error, str(path))
        if not isinstance(translated, StoreCorrupt):
            raise translated from error
        findings.append(Finding.bad("integrity", f"the file is damaged ({error})", RESTORE))
    return findings


def _check_file_rights(path: Path) -> Iterator[Finding]:
    beside = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
    files = [file for file in beside if file.exists()]
    locked = [str(file) for file in (path.parent, *files) if not os.access(file, os.R_OK | os.W_OK)]
    if locked:
        yield Finding.bad(
            "rights",
            f"this user can't read and write {', '.join(locked)}",
            "give its owner the rights to it, or run this as the user that the server runs as",
        )
        return
    seen = [str(file) for file in files if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)]
    if seen:
        said = "other users of this machine may get at what tasks were asked and what came of them"
        yield Finding.warn("rights", said, f"chmod 600 {' '.join(seen)}")
        return
    yield Finding.ok("rights", "only its owner can read and write it")


def _check_disk(path: Path) -> Finding:
    free, size = shutil.disk_usage(path.parent).free, path.stat().st_size
    said = f"{_in_mib(free)} free, the store has {_in_mib(size)}"
    do = "free some, or delete tasks that have ended: raincheck tasks purge"
    if free < NO_ROOM:
        return Finding.bad("disk", said, do)
    return Finding.warn("disk", said, do) if free < LITTLE_ROOM else Finding.ok("disk", said)


def _check_log(path: Path) -> Finding:
    try:
        size = path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        size = 0
    said = f"the write-ahead log has {_in_mib(size)}"
    if size < LONG_LOG:
        return Finding.ok("log", said)
    return Finding.warn("log", said, "look for a process that keeps reading the file, and stop it: it holds up the log")


def _check_database(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    known = shipped_migrations()[-1].version
    version = file_version(connection, str(path), known)
    if version < known:
        said = f"version {version}, and this raincheck has version {known}"
        yield Finding.warn("schema", said, "start a server on it, which brings it up to date")
    else:
        yield Finding.ok("schema", f"version {version}, the newest")
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        yield Finding.ok("journal", "wal")
    else:
        do = "start a server on it, which turns on the write-ahead log"
        yield Finding.warn("journal", f"{mode}, so that readers wait for writers", do)
    wrong = [row[0] for row in connection.execute("PRAGMA quick_check(3)").fetchall()]
    if wrong == ["ok"]:
        yield Finding.ok("integrity", "the file is whole")
    else:
        yield Finding.bad("integrity", f"the file is damaged ({'; '.join(map(str, wrong))})", RESTORE)


def _in_mib(size: int) -> str:
    return f"{size / MIB / 1_024:.1f} GiB" if size >= 1_024 * MIB else f"{size / MIB:.1f} MiB"
