"""Tasks in one SQLite file: durable, with nothing to install, shared by as many processes as like."""

from raincheck.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
