"""Migrate a database's schema, under a lock, all or nothing."""

import asyncio
from functools import partial
from typing import Any, cast

from psycopg.sql import SQL, Identifier

from raincheck.errors import NotAStore, SchemaMismatch, StoreReadOnly
from raincheck.sql_files import load_migrations
from raincheck.stores.dispatcher import JobQueue
from raincheck.stores.postgres.address import DatabaseTarget
from raincheck.stores.postgres.rows import Connection

LOCK = 0x7261696E
"""The advisory lock held during any migration in a database: "rain" in ASCII."""

_FIND = """
SELECT to_regclass(format('%%I.raincheck_schema', name)) IS NOT NULL,
    to_regclass(format('%%I.tasks', name)) IS NOT NULL,
    CASE WHEN to_regnamespace(quote_ident(name)) IS NULL THEN true ELSE has_schema_privilege(name, 'USAGE') END
FROM (SELECT %(schema)s::text) AS schema (name)
"""


shipped_migrations = partial(load_migrations, "raincheck.stores.postgres")


async def newest_version() -> int:
    """Return the newest schema version that this raincheck supports."""
    # The steps are files, and an event loop must not wait for a disk.
    return (await asyncio.to_thread(shipped_migrations))[-1].version


async def schema_version(connection: Connection, target: DatabaseTarget, newest: int) -> int:
    """Return the version of the tables; 0 if there are none.

    Raises:
        NotAStore: the schema has tables of another program.
        StoreReadOnly: the right to use the schema is missing.
        SchemaMismatch: a newer raincheck wrote it.
    """
    is_ours, has_tasks, has_usage = await fetch_one(connection, _FIND, {"schema": target.schema})
    if not has_usage:
        raise StoreReadOnly(
            target.display_url,
            f"this user has no access to the schema {target.schema!r}: GRANT USAGE on it, and rights to its tables",
        )
    if not is_ours:
        if has_tasks:
            raise NotAStore(
                target.display_url,
                f"the schema {target.schema!r} has tables of another program: name another one, by ?schema= in the URL",
            )
        return 0
    (version,) = await fetch_one(connection, "SELECT max(version) FROM raincheck_schema")
    if version > newest:
        raise SchemaMismatch(target.display_url, version, newest)
    return version


async def migrate(connection: Connection, target: DatabaseTarget, jobs: JobQueue[Connection] | None) -> None:
    """Apply the missing steps. If several processes do so at once, one migrates and the others find it done.

    Raises:
        NotAStore, SchemaMismatch: nothing was touched.
    """
    migrations = await asyncio.to_thread(shipped_migrations)
    newest = migrations[-1].version
    if await schema_version(connection, target, newest) == newest and (
        jobs is None or await jobs.is_migrated(connection)
    ):
        # The common case needs no lock, and no right to change anything.
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        for schema in dict.fromkeys((target.schema, target.jobs_schema)):
            # Checked first: creating a schema takes more rights than finding it.
            if not (await fetch_one(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", (schema,)))[0]:
                await connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        # Read only now, under the lock: another process may have been first.
        version = await schema_version(connection, target, newest)
        if version == 0:
            await connection.execute("CREATE TABLE raincheck_schema (version BIGINT PRIMARY KEY)")
        for step in migrations:
            if step.version > version:
                await connection.execute(cast("Any", step.script))
                await connection.execute("INSERT INTO raincheck_schema (version) VALUES (%s)", (step.version,))
        if jobs is not None:
            await jobs.migrate(connection)


async def fetch_one(
    connection: Connection, query: str, parameters: tuple[object, ...] | dict[str, object] = ()
) -> tuple[Any, ...]:
    """Return the single row of a query."""
    row = await (await connection.execute(cast("Any", query), parameters)).fetchone()
    assert row is not None  # noqa: S101 - these queries always return a row
    return row
