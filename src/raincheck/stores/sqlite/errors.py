"""What SQLite's errors mean, in one place."""

import sqlite3

from raincheck.errors import (
    NotAStore,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

_MEANINGS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (
        StoreUnavailable,
        "another process keeps it locked: try again, and look for a process that hangs while it writes",
    ),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "another connection keeps it locked: try again"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "reading or writing it failed: check the disk, then try again"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "it can't be opened: check the path and the rights to it"),
    sqlite3.SQLITE_PERM: (StoreUnavailable, "the rights to it are missing: check its owner and mode"),
    sqlite3.SQLITE_READONLY: (
        StoreReadOnly,
        "it can't be written: check the rights to the file and its folder, or name another store",
    ),
    sqlite3.SQLITE_FULL: (StoreFull, "there is no room left: free disk space, or prune tasks, then try again"),
    sqlite3.SQLITE_CORRUPT: (
        StoreCorrupt,
        "the file is damaged: stop all processes that use it, then restore a backup or try SQLite's '.recover'",
    ),
    sqlite3.SQLITE_NOTADB: (NotAStore, "the file is not a SQLite database: name another store"),
}


class Damaged(sqlite3.DatabaseError):
    """What SQLite read without a complaint can't have been written by us."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def translate(error: sqlite3.Error, store: str) -> StoreError:
    """The error to raise for the driver's, which becomes its cause."""
    # The low byte is the kind; the rest tells variants apart that mean the same to a caller.
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF
    kind, advice = _MEANINGS.get(code, (StoreError, "the database refused it; nothing was written"))
    return kind(store, f"{advice} ({error})")


def is_duplicate(error: sqlite3.IntegrityError) -> bool:
    """Whether a key exists already (and not that some other guard of the schema refused)."""
    return error.sqlite_errorcode in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
