"""`raincheck migrate`: bring the schema of a store up to date, and report the changes."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raincheck.cli.exit_codes import fail, run_with_signals
from raincheck.cli.operator import StoreOption
from raincheck.cli.options import JsonOption
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.operations.describe import find_database, format_json
from raincheck.stores.factory import open_store, resolve_address, store_file_exists
from raincheck.stores.url import MemoryAddress, SqliteAddress

if TYPE_CHECKING:
    from raincheck.stores.postgres.address import DatabaseTarget


LOCK_TIMEOUT = 10.0
"""Seconds to wait for a process that locks the file."""


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema version of a store."""

    version: int
    """The version of raincheck's tables; 0 if there are none."""
    has_queue: bool | None = None
    """Whether the tables of its queue are up to date; None if it has no queue."""


async def migrate_store(name: str | None) -> tuple[str, SchemaState, SchemaState]:
    """Bring the store at this URL up to date, and return its name, and its schema before and after.

    A store that does not exist is created.

    Raises:
        ConfigurationError, StoreError: it can't be migrated. It was left unchanged.
    """
    address = await asyncio.to_thread(resolve_address, name)
    if isinstance(address, MemoryAddress):
        raise ConfigurationError("a store in memory has no schema: name a store in a file or a database")
    if isinstance(address, SqliteAddress):
        display_url = str(address.path.absolute())
        read_schema = partial(_read_file_schema, address.path)
    else:
        target = await asyncio.to_thread(find_database, name)
        assert target is not None  # noqa: S101 - there is no other kind of store
        display_url, read_schema = target.display_url, partial(_read_database_schema, target)
    before = await read_schema()
    # Opening a store brings it up to date.
    async with open_store(name):
        return display_url, before, await read_schema()


async def _read_file_schema(path: Path) -> SchemaState:
    return await asyncio.to_thread(_schema_of_file, path)


def _schema_of_file(path: Path) -> SchemaState:
    from raincheck.stores.sqlite.connection import connect, open_reader, translate_error
    from raincheck.stores.sqlite.migrate import schema_version, shipped_migrations

    if not store_file_exists(path):
        return SchemaState(0)
    try:
        with closing(open_reader(connect, path, LOCK_TIMEOUT)) as connection:
            return SchemaState(schema_version(connection, str(path), shipped_migrations()[-1].version))
    except sqlite3.Error as error:
        raise translate_error(error, str(path)) from error


async def _read_database_schema(target: "DatabaseTarget") -> SchemaState:
    from raincheck.dispatchers.procrastinate.schema import is_migrated
    from raincheck.stores.postgres.connection import open_connection
    from raincheck.stores.postgres.migrate import newest_version, schema_version

    newest = await newest_version()
    async with open_connection(target) as connection:
        return SchemaState(
            await schema_version(connection, target, newest), await is_migrated(connection, target.jobs_schema)
        )


EPILOG = """
Examples:

\b
  raincheck migrate --store postgresql://owner@db.example.com/tasks
  raincheck migrate --store 'postgresql://owner@db.example.com/app?schema=tasks&procrastinate_schema=jobs'
  raincheck migrate --store /var/lib/tasks.db --json

In a database it creates raincheck's tables in the schema that ?schema= in the URL names (default: raincheck), and the
tables of its queue in that of ?procrastinate_schema= (default: the same schema). Servers and workers do the same when
they start, if they have the right: after this command, they don't need the right to create tables. A migration that
fails changes nothing. Exit codes: 0 success, also if there was nothing to do; 2 the store can't be used.
"""


def migrate(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Create a store's tables, or bring them up to date."""
    try:
        name, before, after = run_with_signals(migrate_store(store))
    except RaincheckError as error:
        fail(str(error), as_json=as_json)
    if as_json:
        versions = {"changed": before != after, "from": before.version, "to": after.version}
        queue_changed = before.has_queue is not after.has_queue
        typer.echo(format_json({"store": name, **versions, "queue_changed": queue_changed}))
    else:
        typer.echo(_describe_changes(name, before, after))


def _describe_changes(name: str, before: SchemaState, after: SchemaState) -> str:
    if before == after:
        return f"{name} is up to date at version {after.version}: nothing was changed"
    changes: list[str] = []
    if before.version != after.version:
        verb = f"migrated from version {before.version} to" if before.version else "created at"
        changes.append(f"its tables were {verb} version {after.version}")
    if before.has_queue is not after.has_queue:
        changes.append("the tables of its queue (Procrastinate) were created or brought up to date")
    return f"{name}: {', and '.join(changes)}"
