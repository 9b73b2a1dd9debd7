"""Translate PostgreSQL's errors."""

import re

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from raincheck.errors import NotAStore, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

_ADVICE: dict[str, tuple[type[StoreError], str]] = {
    "08": (StoreUnavailable, "the database can't be reached: check that it runs, and its address"),
    "28": (
        StoreUnavailable,
        "the database refused the login: check the user, and the password (PGPASSWORD, ~/.pgpass, or the store's URL)",
    ),
    "3D000": (StoreUnavailable, "the database does not exist: create it, or name another one in the store's URL"),
    "22P05": (
        StoreError,
        "the encoding of the database lacks this character: create one with `createdb -E UTF8 -T template0 NAME`",
    ),
    "25006": (
        StoreReadOnly,
        "the database accepts no writes (it is a standby, or read-only): name the primary in the store's URL",
    ),
    "25P03": (StoreUnavailable, "this process paused in the middle of a transaction, which was aborted: try again"),
    "40": (StoreUnavailable, "concurrent transactions wrote the same rows repeatedly: try again"),
    "42501": (
        StoreReadOnly,
        "permission denied: run `raincheck migrate` as the owner of the database or the schema, or grant permissions",
    ),
    "42P01": (NotAStore, "its tables are missing: run `raincheck migrate`"),
    "3F000": (NotAStore, "its schema is missing: run `raincheck migrate`"),
    "53100": (StoreFull, "no space is left on the database's disk: free some, or prune tasks, then try again"),
    "53300": (
        StoreUnavailable,
        "the database has no connection left: raise its max_connections, or run fewer servers and workers",
    ),
    "53": (StoreUnavailable, "the database is short of memory or other resources: check its log, and try again"),
    "55": (StoreUnavailable, "another transaction holds a lock on a row or a table: try again"),
    "57": (StoreUnavailable, "the database is stopping or starting, or cancelled the statement: try again"),
    "58": (StoreUnavailable, "the database's host reports a system error: check its log, then try again"),
    "XX": (StoreCorrupt, "the database is damaged: check its log, and restore a backup"),
}

_CONNECT_ERRORS = (
    (re.compile("too many clients|connection slots"), "53300"),
    (re.compile('database ".*" does not exist'), "3D000"),
    (re.compile('password|role ".*" does not exist|pg_hba'), "28"),
    (re.compile("database system is"), "57"),
)
"""Texts of refused connections, which have no error code.

The text is in the server's language. Any other text is mapped to the most likely cause: the database can't be
reached.
"""

SERIALIZATION_FAILURES = ("40001", "40P01")
"""Errors of a transaction that gave way to another: nothing of it was stored, and it can simply be retried."""


def translate_error(error: Exception, store: str) -> StoreError:
    """Return the error to raise for a driver error, which becomes its cause."""
    if isinstance(error, PoolTimeout | TooManyRequests):
        return StoreUnavailable(
            store, "no connection became free in time: the database is unavailable, or all connections are busy"
        )
    if isinstance(error, PoolClosed):
        return StoreUnavailable(store, "the store is closed: open it before use")
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state is None:
        # The connection itself failed: it could not be opened, or it broke.
        code = next((code for pattern, code in _CONNECT_ERRORS if pattern.search(str(error))), "08")
        kind, advice = _ADVICE[code] if isinstance(error, psycopg.OperationalError) else _UNKNOWN
    else:
        kind, advice = _ADVICE.get(state) or _ADVICE.get(state[:2]) or _UNKNOWN
    return kind(store, f"{advice} ({' '.join(str(error).split())})")


_UNKNOWN = (StoreError, "the database refused the operation; nothing was written")


_SESSION_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03")
"""The server shuts down, or has ended this session."""


def is_stale_plan(error: Exception) -> bool:
    """Return whether the connection's prepared statements predate a migration. Nothing was executed."""
    return isinstance(error, psycopg.errors.FeatureNotSupported) and "cached plan" in str(error)


def is_connection_lost(error: Exception) -> bool:
    """Return whether the connection is unusable, and another one may work."""
    if isinstance(error, PoolTimeout | PoolClosed | TooManyRequests):
        # There was none to begin with.
        return False
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate[:2] == "08" or error.sqlstate in _SESSION_ENDED or is_stale_plan(error)
    return isinstance(error, psycopg.OperationalError)
