"""What the store writes, recorded, and written again by the bare driver: the same rows in the same transactions."""

import sqlite3
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from raincheck.stores.sqlite.connection import connect, open_writer, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations

Statement: TypeAlias = tuple[str, Any]

_WRITES = ("INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT")
_TIMEOUT = 30.0


class Recording:
    """Opens connections that remember what they write."""

    def __init__(self) -> None:
        self._connections: list[RecordingConnection] = []

    def connect(self, path: str, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=RecordingConnection)
        self._connections.append(connection)
        return connection

    def statements(self) -> list[Statement]:
        """What the connection wrote that keeps tasks, in its order; the one that makes the schema keeps none."""
        (writer,) = (one for one in self._connections if any(sql.startswith("INSERT") for sql, _ in one.log))
        return writer.log


class RecordingConnection(sqlite3.Connection):
    """A connection that remembers every statement that writes, or begins or ends a transaction."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - whatever the driver takes
        super().__init__(*arguments, **options)
        self.log: list[Statement] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - likewise
        if sql.startswith(_WRITES):
            self.log.append((sql, parameters))
        return super().execute(sql, parameters)


def replay(statements: list[Statement], path: Path) -> float:
    """Write it all again to a new file, as durably, with nothing but the driver. Returns how many seconds it took."""
    prepare_file(path, connect, _TIMEOUT, shipped_migrations())
    connection = open_writer(connect, path, _TIMEOUT, "FULL")
    # The store moves the write-ahead log itself; the bare driver has SQLite do it, as everybody's programs do.
    connection.execute("PRAGMA wal_autocheckpoint = 1000")
    execute = connection.execute
    begun = perf_counter()
    for sql, parameters in statements:
        execute(sql, parameters).fetchall()
    seconds = perf_counter() - begun
    connection.close()
    return seconds
