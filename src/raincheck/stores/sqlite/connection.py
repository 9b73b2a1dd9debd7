"""Open SQLite files: check and create them, set up connections, and translate SQLite's errors.

A file that raincheck did not create is left alone.
"""

import errno
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from raincheck.errors import (
    ConfigurationError,
    NotAStore,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from raincheck.sql_files import Migration
from raincheck.stores.sqlite.migrate import migrate, schema_version
from raincheck.stores.url import Synchronous

_ADVICE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (
        StoreUnavailable,
        "another process holds its lock: try again, and check for a process that hangs while it writes",
    ),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "another connection holds its lock: try again"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "reading or writing it failed: check the disk, then try again"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "it can't be opened: check its path and permissions"),
    sqlite3.SQLITE_PERM: (StoreUnavailable, "permission denied: check its owner and mode"),
    sqlite3.SQLITE_READONLY: (
        StoreReadOnly,
        "it can't be written: check the permissions of the file and its folder, or name another store",
    ),
    sqlite3.SQLITE_FULL: (StoreFull, "no space is left: free disk space, or prune tasks, then try again"),
    sqlite3.SQLITE_CORRUPT: (
        StoreCorrupt,
        "the file is damaged: stop all processes that use it, then restore a backup or try SQLite's '.recover'",
    ),
    sqlite3.SQLITE_NOTADB: (NotAStore, "the file is not a SQLite database: name another store"),
}


class CorruptData(sqlite3.DatabaseError):
    """Data that SQLite read without an error, but that raincheck can't have written."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def translate_error(error: sqlite3.Error, store: str) -> StoreError:
    """Return the error to raise for a driver error, which becomes its cause."""
    # The low byte is the kind; the rest distinguishes variants that mean the same to a caller.
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF
    kind, advice = _ADVICE.get(code, (StoreError, "the database refused the operation; nothing was written"))
    return kind(store, f"{advice} ({error})")


def is_duplicate(error: sqlite3.IntegrityError) -> bool:
    """Return whether a key exists already (as opposed to another violated constraint of the schema)."""
    return error.sqlite_errorcode in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)


ConnectFunction: TypeAlias = Callable[[str, float], sqlite3.Connection]
"""Opens a connection to a path, with a lock timeout in seconds."""

FileIdentity: TypeAlias = tuple[int, int]
"""Distinguishes a file from another one that replaces it."""

MIN_SQLITE_VERSION = (3, 37, 0)

_creation_lock = threading.Lock()


def connect(path: str, timeout: float) -> sqlite3.Connection:
    """Open a connection in autocommit mode: transactions start only explicitly.

    The file must exist. SQLite would create an empty one in place of a file that was just removed.
    """
    uri = f"{Path(path).absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, timeout=timeout, isolation_level=None, check_same_thread=True, uri=True)


def prepare_file(path: Path, open_connection: ConnectFunction, timeout: float, migrations: Sequence[Migration]) -> Path:
    """Ensure that the file exists, belongs to raincheck, is writable and has the newest schema. Returns its real path.

    Raises:
        ConfigurationError, StoreError: the path or the file is unusable. The file was left unchanged.
    """
    check_sqlite()
    path = _real_path(path)
    _make_file(path)
    try:
        connection = open_connection(str(path), timeout)
    except sqlite3.Error as error:
        raise translate_error(error, str(path)) from error
    try:
        # In a transaction, so that changes of another process to a new file are seen whole or not at all.
        connection.execute("BEGIN")
        schema_version(connection, str(path), migrations[-1].version)
        connection.execute("COMMIT")
        _use_wal(connection, path, timeout)
        migrate(connection, str(path), migrations)
    except sqlite3.Error as error:
        raise translate_error(error, str(path)) from error
    finally:
        connection.close()
    return path


def check_existing_file(
    path: Path,
    identity: FileIdentity | None,
    open_connection: ConnectFunction,
    timeout: float,
    migrations: Sequence[Migration],
) -> Path:
    """Check that the file exists and has the newest schema, without changing anything. Returns its real path.

    With an identity, it must be that file and no other.

    Raises:
        StoreError: it is gone, was replaced, or has another schema version.
    """
    path = _real_path(path)
    found = file_identity(path)
    if found is None or identity not in (None, found):
        raise file_gone_error(path)
    newest = migrations[-1].version
    try:
        with closing(open_connection(str(path), timeout)) as connection:
            version = schema_version(connection, str(path), newest)
    except sqlite3.Error as error:
        raise translate_error(error, str(path)) from error
    if version < newest:
        advice = "start a server or a worker on it, which migrates it"
        raise StoreUnavailable(str(path), f"its schema is of an older version: {advice}")
    return path


def file_identity(path: Path) -> FileIdentity | None:
    """Return the identity of a file, or None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def file_gone_error(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        str(path), "the file was removed or replaced while it was open: close the store and open it again"
    )


def open_writer(
    open_connection: ConnectFunction, path: Path, timeout: float, synchronous: Synchronous
) -> sqlite3.Connection:
    connection = open_connection(str(path), timeout)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def open_reader(open_connection: ConnectFunction, path: Path, timeout: float) -> sqlite3.Connection:
    connection = open_connection(str(path), timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection


def check_sqlite() -> None:
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        oldest = ".".join(map(str, MIN_SQLITE_VERSION))
        raise ConfigurationError(
            f"raincheck needs SQLite {oldest} or newer, and this Python has {sqlite3.sqlite_version}: "
            f"use a newer build of Python"
        )


def _real_path(path: Path) -> Path:
    """Resolve links: SQLite keeps its log beside the real file, not beside a link."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"{str(path)!r} can't be a path ({error}): name another store") from error


def _make_file(path: Path) -> None:
    """Create the file if missing: here and not by SQLite, so that no other user can read it even for a moment.

    An existing file is never opened here. Closing it again would release the locks that this process holds on it
    through other connections (POSIX locks work like that), and then another process could remove the log in use, and
    what was committed with it. For the same reason only one thread at a time may run this.
    """
    with _creation_lock:
        try:
            if path.is_dir():
                raise ConfigurationError(f"{path} is a folder: name a file in it, such as {path / 'tasks.db'}")
            if not path.parent.is_dir():
                raise ConfigurationError(f"there is no folder {path.parent} for the store {path.name}: create it first")
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR))
        except FileExistsError:
            _check_rights(path)
        except (OSError, ValueError) as error:
            raise _creation_error(path, error) from error


def _check_rights(path: Path) -> None:
    """Refuse a file that can't be written, before SQLite creates unwritable files beside it."""
    beside = (path.with_name(path.name + ending) for ending in ("", "-wal", "-shm"))
    inaccessible = [
        str(file) for file in (path.parent, *beside) if file.exists() and not os.access(file, os.R_OK | os.W_OK)
    ]
    if inaccessible:
        raise StoreReadOnly(
            str(path), f"it can't be written: check the permissions of {', '.join(inaccessible)}, or name another store"
        )


def _creation_error(path: Path, error: OSError | ValueError) -> Exception:
    if not isinstance(error, OSError) or error.errno == errno.ENAMETOOLONG:
        return ConfigurationError(f"{str(path)!r} can't be a path ({error}): name another store")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = f"check the permissions of {path.parent}, or name another store"
        return StoreReadOnly(str(path), f"it can't be created ({error.strerror}): {advice}")
    return StoreUnavailable(str(path), f"it can't be created ({error.strerror}): check the path, then try again")


def _use_wal(connection: sqlite3.Connection, path: Path, timeout: float) -> None:
    # SQLite does not wait for locks when it changes the journal mode, so several processes that create a new file at
    # once get errors here that only mean "retry".
    deadline = time.monotonic() + timeout
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StoreUnavailable(
                str(path), f"SQLite can't use a write-ahead log here (it offers {mode!r}): put the file on a local disk"
            )
        return
