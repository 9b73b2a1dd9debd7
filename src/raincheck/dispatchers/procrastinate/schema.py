"""Procrastinate's tables: created and migrated together with raincheck's own.

Procrastinate ships a script that creates everything, and one for each step since. It does not record which of them a
database has had, so they are recorded here.
"""

import asyncio
from importlib.resources import files
from typing import Any, cast

from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from raincheck.errors import ConfigurationError
from raincheck.stores.postgres.migrate import fetch_one

REQUIRED_FUNCTIONS = (
    "procrastinate_defer_jobs_v1",
    "procrastinate_fetch_job_v2",
    "procrastinate_retry_job_v2",
    "procrastinate_cancel_job_v1",
)
"""Functions that an installation must have if raincheck did not create it."""

_FIND_TABLES = """
SELECT to_regclass(format('%%I.procrastinate_jobs', %(schema)s::text)) IS NOT NULL,
    to_regclass(format('%%I.raincheck_procrastinate', %(schema)s::text)) IS NOT NULL
"""

_HAS_FUNCTION = (
    "SELECT count(*) > 0 FROM pg_proc WHERE proname = %s AND pronamespace = to_regnamespace(quote_ident(%s))"
)

EXTERNALLY_MANAGED = "not made by raincheck"
"""Recorded instead of steps where another program installed Procrastinate: that program has to migrate it."""


def migration_names() -> list[str]:
    """Return the names of all steps of the installed Procrastinate, in order."""
    folder = files("procrastinate.sql") / "migrations"
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))


def _script(*path: str) -> str:
    return files("procrastinate.sql").joinpath(*path).read_text(encoding="utf-8")


async def is_migrated(connection: AsyncConnection[Any], schema: str) -> bool:
    """Return whether there is nothing to do."""
    _, is_recorded = await fetch_one(connection, _FIND_TABLES, {"schema": schema})
    return is_recorded and not await _missing(connection, schema)


async def migrate(connection: AsyncConnection[Any], schema: str) -> None:
    """Create the tables in a schema, or migrate them. The caller holds a lock, in a transaction.

    Raises:
        ConfigurationError: the tables were created by another program, and are too old.
    """
    (path,) = await fetch_one(connection, "SHOW search_path")
    await connection.execute(SQL("SET LOCAL search_path TO {}").format(Identifier(schema)))
    is_installed, is_recorded = await fetch_one(connection, _FIND_TABLES, {"schema": schema})
    if not is_recorded:
        if is_installed:
            await _check(connection, schema)
        else:
            await connection.execute(cast("Any", await asyncio.to_thread(_script, "schema.sql")))
        await connection.execute("CREATE TABLE raincheck_procrastinate (step TEXT PRIMARY KEY)")
        steps = [EXTERNALLY_MANAGED] if is_installed else await asyncio.to_thread(migration_names)
        await connection.execute("INSERT INTO raincheck_procrastinate SELECT unnest(%s::text[])", (steps,))
    for step in await _missing(connection, schema):
        await connection.execute(cast("Any", await asyncio.to_thread(_script, "migrations", step)))
        await connection.execute("INSERT INTO raincheck_procrastinate VALUES (%s)", (step,))
    await connection.execute(cast("Any", f"SET LOCAL search_path TO {path}"))


async def _missing(connection: AsyncConnection[Any], schema: str) -> list[str]:
    query = SQL("SELECT step FROM {}").format(Identifier(schema, "raincheck_procrastinate"))
    done = {row[0] for row in await (await connection.execute(query)).fetchall()}
    return (
        []
        if EXTERNALLY_MANAGED in done
        else [step for step in await asyncio.to_thread(migration_names) if step not in done]
    )


async def _check(connection: AsyncConnection[Any], schema: str) -> None:
    """Check an installation of another program. It is used unchanged, and that program has to migrate it."""
    for function in REQUIRED_FUNCTIONS:
        (exists,) = await fetch_one(connection, _HAS_FUNCTION, (function, schema))
        if not exists:
            raise ConfigurationError(
                f"the schema {schema!r} has an older Procrastinate, without {function}: migrate it as its "
                f"documentation describes, or name another schema, by ?procrastinate_schema= in the store's URL"
            )
