"""Procrastinate's tables: made, and brought up to date, together with raincheck's own.

Procrastinate ships a script that makes everything, and one for each step since. It does not note which of them a
database has had; so that is noted here.
"""

import asyncio
from importlib.resources import files
from typing import Any, cast

from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from raincheck.errors import ConfigurationError
from raincheck.stores.postgres.migrate import fetch_one

NEEDED = (
    "procrastinate_defer_jobs_v1",
    "procrastinate_fetch_job_v2",
    "procrastinate_retry_job_v2",
    "procrastinate_cancel_job_v1",
)
"""Functions that an installation must have that is not ours."""

_FOUND = """
SELECT to_regclass(format('%%I.procrastinate_jobs', %(schema)s::text)) IS NOT NULL,
    to_regclass(format('%%I.raincheck_procrastinate', %(schema)s::text)) IS NOT NULL
"""

_HAS = "SELECT count(*) > 0 FROM pg_proc WHERE proname = %s AND pronamespace = to_regnamespace(quote_ident(%s))"

THEIRS = "not made by raincheck"
"""Noted in the place of steps where somebody else installed it: it is theirs to bring up to date."""


def steps() -> list[str]:
    """The names of all steps that the installed Procrastinate knows, in their order."""
    folder = files("procrastinate.sql") / "migrations"
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))


def _script(*path: str) -> str:
    return files("procrastinate.sql").joinpath(*path).read_text(encoding="utf-8")


async def is_ready(connection: AsyncConnection[Any], schema: str) -> bool:
    """Whether there is nothing to do."""
    _, is_noted = await fetch_one(connection, _FOUND, {"schema": schema})
    return is_noted and not await _missing(connection, schema)


async def migrate(connection: AsyncConnection[Any], schema: str) -> None:
    """Make the tables in a schema, or bring them up to date. Whoever calls it holds a lock, in a transaction.

    Raises:
        ConfigurationError: there are tables already, made by somebody else, which are too old.
    """
    (path,) = await fetch_one(connection, "SHOW search_path")
    await connection.execute(SQL("SET LOCAL search_path TO {}").format(Identifier(schema)))
    is_installed, is_noted = await fetch_one(connection, _FOUND, {"schema": schema})
    if not is_noted:
        if is_installed:
            await _check(connection, schema)
        else:
            await connection.execute(cast("Any", await asyncio.to_thread(_script, "schema.sql")))
        await connection.execute("CREATE TABLE raincheck_procrastinate (step TEXT PRIMARY KEY)")
        known = [THEIRS] if is_installed else await asyncio.to_thread(steps)
        await connection.execute("INSERT INTO raincheck_procrastinate SELECT unnest(%s::text[])", (known,))
    for step in await _missing(connection, schema):
        await connection.execute(cast("Any", await asyncio.to_thread(_script, "migrations", step)))
        await connection.execute("INSERT INTO raincheck_procrastinate VALUES (%s)", (step,))
    await connection.execute(cast("Any", f"SET LOCAL search_path TO {path}"))


async def _missing(connection: AsyncConnection[Any], schema: str) -> list[str]:
    query = SQL("SELECT step FROM {}").format(Identifier(schema, "raincheck_procrastinate"))
    done = {row[0] for row in await (await connection.execute(query)).fetchall()}
    return [] if THEIRS in done else [step for step in await asyncio.to_thread(steps) if step not in done]


async def _check(connection: AsyncConnection[Any], schema: str) -> None:
    """Somebody else's installation is used as it is, and is theirs to bring up to date."""
    for function in NEEDED:
        (is_there,) = await fetch_one(connection, _HAS, (function, schema))
        if not is_there:
            raise ConfigurationError(
                f"the schema {schema!r} has an older Procrastinate, without {function}: bring it up to date as its "
                f"documentation says, or name another schema, by ?procrastinate_schema= in the store's URL"
            )
