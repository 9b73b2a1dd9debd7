"""`raincheck migrate`: brings the schema of a store up to date.

Bringing a store's schema up to date, and what that changed.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raincheck.cli.exit_codes import refuse, run_tidily
from raincheck.cli.options import JsonOption, StoreOption
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.operations.describe import json_of
from raincheck.operations.redact import find_target
from raincheck.stores.factory import find_address, is_there, open_store
from raincheck.stores.url import MemoryAddress, SqliteAddress

if TYPE_CHECKING:
    from raincheck.stores.postgres.address import Target


LOCK_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class State:
    """How far a store's schema is."""

    version: int
    """Of raincheck's tables; 0 if there are none."""
    has_queue: bool | None = None
    """Whether the tables of its queue are the newest; None if it needs none."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What was done to a store."""

    store: str
    before: State
    after: State

    @property
    def facts(self) -> dict[str, object]:
        """As JSON."""
        return {
            "store": self.store,
            "changed": self.before != self.after,
            "from": self.before.version,
            "to": self.after.version,
            "queue_changed": self.before.has_queue is not self.after.has_queue,
        }

    def __str__(self) -> str:
        before, after = self.before, self.after
        if before == after:
            return f"{self.store} is up to date, at version {after.version}: nothing was changed"
        said: list[str] = []
        if before.version != after.version:
            said.append(f"its tables were {_done(before.version)} version {after.version}")
        if before.has_queue is not after.has_queue:
            said.append("those of its queue (Procrastinate's) were made or brought up to date")
        return f"{self.store}: {', and '.join(said)}"


def _done(before: int) -> str:
    return f"brought from version {before} to" if before else "made, at"


async def migrate_store(name: str | None) -> Migrated:
    """Bring the store of this name up to date. Where there is none yet, it is made.

    Raises:
        ConfigurationError, StoreError: it can't be done. What is there was left as it was.
    """
    address = await asyncio.to_thread(find_address, name)
    if isinstance(address, MemoryAddress):
        raise ConfigurationError("what is kept in memory: has no schema: name a store in a file or a database")
    if isinstance(address, SqliteAddress):
        path = address.path
        return await _migrate(name, str(path.absolute()), lambda: asyncio.to_thread(_look_at_file, path))
    target = await asyncio.to_thread(find_target, name)
    assert target is not None  # noqa: S101 - there is no other kind of store
    return await _migrate(name, target.shown, lambda: _look_at_database(target))


async def _migrate(name: str | None, shown: str, look: Callable[[], Awaitable[State]]) -> Migrated:
    before = await look()
    # Whoever opens a store brings it up to date.
    async with open_store(name):
        return Migrated(shown, before, await look())


def _look_at_file(path: Path) -> State:
    from raincheck.stores.sqlite.connection import connect, open_reader, translate
    from raincheck.stores.sqlite.migrate import schema_version, shipped_migrations

    if not is_there(path):
        return State(0)
    try:
        with closing(open_reader(connect, path, LOCK_TIMEOUT)) as connection:
            return State(schema_version(connection, str(path), shipped_migrations()[-1].version))
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error


async def _look_at_database(target: "Target") -> State:
    from raincheck.dispatchers.procrastinate.schema import is_ready
    from raincheck.stores.postgres.connection import connected
    from raincheck.stores.postgres.migrate import newest_version, schema_version

    known = await newest_version()
    async with connected(target) as connection:
        return State(await schema_version(connection, target, known), await is_ready(connection, target.jobs_schema))


# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
Examples:

\b
  raincheck migrate --store postgresql://owner@db.example.com/tasks
  raincheck migrate --store 'postgresql://owner@db.example.com/app?schema=tasks&procrastinate_schema=jobs'
  raincheck migrate --store /var/lib/tasks.db --json

In a database it makes the tables of raincheck in the schema that the URL names by ?schema= (else raincheck), and those
of its queue in that of ?procrastinate_schema= (else the same). Servers and workers do the same when they start, if they
may: with this, they need no right to make tables. What can't be done whole is not done at all. It ends with 0, also if
there was nothing to do, or with 2 if the store can't be used.
"""


def migrate(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Make a store's tables, or bring them up to date."""
    try:
        done = run_tidily(migrate_store(store))
    except RaincheckError as error:
        refuse(str(error), as_json=as_json)
    typer.echo(json_of(done.facts) if as_json else str(done))
