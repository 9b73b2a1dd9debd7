"""Store files as earlier versions of raincheck wrote them."""

import sqlite3
from contextlib import closing
from pathlib import Path

from raincheck.core.change import Creation
from raincheck.stores.memory import MemoryStore
from raincheck.stores.sql import creation_to_row, entry_to_row
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.sqlite.writes import QUERIES
from raincheck.testing import FakeClock, StoreHarness

SECRETS_SINCE = 3


def write_older_file(path: Path, version: int) -> None:
    """Write a file with this schema version, three queued tasks and, if the version has secrets, a secret."""
    prepare_file(path, connect, 5, shipped_migrations()[:version])
    harness = StoreHarness(MemoryStore(), FakeClock())
    with closing(connect(str(path), 5)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
        for creation in (harness.creation(), harness.creation(), harness.creation()):
            write_task(connection, creation)
        if version >= SECRETS_SINCE:
            connection.execute(QUERIES["insert_secret"], ("older", b"k" * 32))


def write_task(connection: sqlite3.Connection, creation: Creation) -> None:
    """Insert a new task, with the columns that this file has."""
    columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(tasks)")}
    row = {name: value for name, value in creation_to_row(creation).items() if name in columns}
    insert = f"INSERT INTO tasks ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608 - the names are constants
    pk = connection.execute(insert, [*row.values()]).lastrowid
    assert pk is not None
    connection.execute(QUERIES["insert_entry"], entry_to_row(pk, creation.entry))
    connection.execute(QUERIES["put_payload"], (pk, "arguments", creation.arguments))
