"""Record what the store writes, and write the same rows in the same transactions with the bare driver."""

import sqlite3
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from raincheck.stores.sqlite.connection import connect, open_writer, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations

Statement: TypeAlias = tuple[str, Any]

_WRITES = ("INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT")
_TIMEOUT = 30.0


class StatementRecorder:
    """Opens connections that record the statements that write."""

    def __init__(self) -> None:
        self._connections: list[RecordingConnection] = []

    def connect(self, path: str, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=RecordingConnection)
        self._connections.append(connection)
        return connection

    def statements(self) -> list[Statement]:
        """Return the statements of the connection that wrote tasks, in order."""
        (writer,) = (
            connection for connection in self._connections if any(sql.startswith("INSERT") for sql, _ in connection.log)
        )
        return writer.log


class RecordingConnection(sqlite3.Connection):
    """A connection that records every statement that writes, or starts or ends a transaction."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the driver's arguments
        super().__init__(*arguments, **options)
        self.log: list[Statement] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - likewise
        if sql.startswith(_WRITES):
            self.log.append((sql, parameters))
        return super().execute(sql, parameters)


def replay(statements: list[Statement], path: Path) -> float:
    """Execute the statements on a new file, as durably, with only the driver. Return the seconds that this took."""
    prepare_file(path, connect, _TIMEOUT, shipped_migrations())
    connection = open_writer(connect, path, _TIMEOUT, "FULL")
    # The store checkpoints the write-ahead log itself. With the bare driver, SQLite does it, as by default.
    connection.execute("PRAGMA wal_autocheckpoint = 1000")
    execute = connection.execute
    started_at = perf_counter()
    for sql, parameters in statements:
        execute(sql, parameters).fetchall()
    seconds = perf_counter() - started_at
    connection.close()
    return seconds
