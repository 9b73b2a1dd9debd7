"""Migrate a file's schema, under SQLite's write lock, all or nothing."""

import re
import sqlite3
from collections.abc import Sequence
from functools import partial

from raincheck.errors import NotAStore, SchemaMismatch
from raincheck.sql_files import Migration, load_migrations

APPLICATION_ID = 0x7261696E
"""Marks a SQLite file as a store of raincheck: "rain" in ASCII."""


shipped_migrations = partial(load_migrations, "raincheck.stores.sqlite")


def schema_version(connection: sqlite3.Connection, store: str, newest: int) -> int:
    """Return the version of a file's schema; 0 for an empty file.

    Raises:
        NotAStore: the file is a database of another program.
        SchemaMismatch: a newer raincheck wrote it.
    """
    marked: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if marked != APPLICATION_ID:
        is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if marked or version or not is_empty:
            raise NotAStore(store, "the file is a database of another program: name another store")
        return 0
    if version > newest:
        raise SchemaMismatch(store, version, newest)
    return version


def migrate(connection: sqlite3.Connection, store: str, migrations: Sequence[Migration]) -> None:
    """Apply the missing steps. If several processes do so at once, one migrates and the others find it done.

    Raises:
        NotAStore, SchemaMismatch: the file was left untouched.
    """
    newest = migrations[-1].version
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read only now, under the lock: another process may have been first.
        version = schema_version(connection, store, newest)
        for migration in migrations:
            if migration.version > version:
                for statement in split_statements(migration.script):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {migration.version:d}")
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def split_statements(script: str) -> list[str]:
    """Split a script into statements. `executescript` would commit before it starts."""
    statements: list[str] = []
    start = 0
    for end in (match.end() for match in re.finditer(";", script)):
        if sqlite3.complete_statement(script[start:end]):
            statements.append(script[start:end].strip())
            start = end
    return statements
