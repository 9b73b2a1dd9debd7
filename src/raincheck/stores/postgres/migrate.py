"""Bringing a database's schema up to date, under a lock, all or nothing."""

import asyncio
import re
from functools import cache
from importlib.resources import files
from typing import Any, cast

from psycopg.sql import SQL, Identifier

from raincheck.errors import NotAStore, SchemaMismatch, StoreReadOnly
from raincheck.stores.dispatcher import Jobs
from raincheck.stores.postgres.address import Target
from raincheck.stores.postgres.reads import Connection

LOCK = 0x7261696E
"""Whoever migrates anything in a database holds this advisory lock: "rain" in ASCII."""

_FIND = """
SELECT to_regclass(format('%%I.raincheck_schema', name)) IS NOT NULL,
    to_regclass(format('%%I.tasks', name)) IS NOT NULL,
    CASE WHEN to_regnamespace(quote_ident(name)) IS NULL THEN true ELSE has_schema_privilege(name, 'USAGE') END
FROM (SELECT %(schema)s::text) AS schema (name)
"""


@cache
def shipped_migrations() -> tuple[tuple[int, str], ...]:
    """All steps with their versions, oldest first, from the files `NNNN_what.sql`.

    They are read once: a store that is opened again may find no file descriptor left.
    """
    folder = files("raincheck.stores.postgres") / "migrations"
    found = [
        (int(match[1]), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_\w+\.sql", file.name))
    ]
    return tuple(sorted(found))


async def newest_version() -> int:
    """The version that this raincheck makes."""
    # They are files, and an event loop must not wait for a disk.
    return (await asyncio.to_thread(shipped_migrations))[-1][0]


async def schema_version(connection: Connection, target: Target, known: int) -> int:
    """The version of the tables; 0 if there are none.

    Raises:
        NotAStore: somebody else's tables are in the schema.
        StoreReadOnly: the rights to look are missing.
        SchemaMismatch: a newer raincheck wrote it.
    """
    is_ours, has_tasks, may_look = await fetch_one(connection, _FIND, {"schema": target.schema})
    if not may_look:
        raise StoreReadOnly(
            target.shown,
            f"this user may not look into the schema {target.schema!r}: GRANT USAGE on it, and rights to its tables",
        )
    if not is_ours:
        if has_tasks:
            raise NotAStore(
                target.shown,
                f"the schema {target.schema!r} has tables of another program: name another one, by ?schema= in the URL",
            )
        return 0
    (version,) = await fetch_one(connection, "SELECT max(version) FROM raincheck_schema")
    if version > known:
        raise SchemaMismatch(target.shown, version, known)
    return version


async def migrate(connection: Connection, target: Target, jobs: Jobs[Connection] | None) -> None:
    """Apply what is missing. Of several processes at once, one does it and the others find it done.

    Raises:
        NotAStore, SchemaMismatch: nothing was touched.
    """
    migrations = await asyncio.to_thread(shipped_migrations)
    known = migrations[-1][0]
    if await schema_version(connection, target, known) == known and (jobs is None or await jobs.is_ready(connection)):
        # Without a lock, and without the right to change anything: that is how it is on all days but one.
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        for schema in dict.fromkeys((target.schema, target.jobs_schema)):
            # Asked first: it takes more rights to make one than to find it.
            if not (await fetch_one(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", (schema,)))[0]:
                await connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        # Read only now, under the lock: another process may have been first.
        version = await schema_version(connection, target, known)
        if version == 0:
            await connection.execute("CREATE TABLE raincheck_schema (version BIGINT PRIMARY KEY)")
        for step, script in migrations:
            if step > version:
                await connection.execute(cast("Any", script))
                await connection.execute("INSERT INTO raincheck_schema (version) VALUES (%s)", (step,))
        if jobs is not None:
            await jobs.migrate(connection)


async def fetch_one(
    connection: Connection, query: str, parameters: tuple[object, ...] | dict[str, object] = ()
) -> tuple[Any, ...]:
    """The row of a query that has one."""
    row = await (await connection.execute(cast("Any", query), parameters)).fetchone()
    assert row is not None  # noqa: S101 - these queries have a row
    return row
