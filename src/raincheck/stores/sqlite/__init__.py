"""Tasks in one SQLite file: durable, with nothing to install, shared by any number of processes."""

from raincheck.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
