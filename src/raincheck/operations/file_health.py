"""Check the file of a store: may it be used, is there room, is it whole? It only reads."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from raincheck.errors import StoreCorrupt
from raincheck.operations.task_health import Finding
from raincheck.stores.sqlite.connection import connect, open_reader, translate
from raincheck.stores.sqlite.migrate import schema_version as file_version
from raincheck.stores.sqlite.migrate import shipped_migrations

MIB = 1_024 * 1_024

LOCK_TIMEOUT = 10.0
LITTLE_ROOM = 1_024 * MIB
NO_ROOM = 100 * MIB
LONG_LOG = 64 * MIB
"""A write-ahead log is moved into the database long before it has this size, unless somebody is in the way."""

RESTORE = "stop all processes that use it, then restore a backup or try SQLite's '.recover'"


def check_file(path: Path) -> list[Finding]:
    """What is found of a file.

    Raises:
        NotAStore, SchemaMismatch: it is not for this raincheck to look at.
        StoreError: it can't be looked at.
    """
    path = path.resolve()
    findings = [*_check_file_rights(path), _check_disk(path), _check_log(path)]
    try:
        with closing(open_reader(connect, path, LOCK_TIMEOUT)) as connection:
            findings += _check_database(connection, path)
    except sqlite3.Error as error:
        translated = translate(error, str(path))
        if not isinstance(translated, StoreCorrupt):
            raise translated from error
        findings.append(Finding.bad("integrity", f"the file is damaged ({error})", RESTORE))
    return findings


def _check_file_rights(path: Path) -> Iterator[Finding]:
    beside = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
    files = [file for file in beside if file.exists()]
    locked = [str(file) for file in (path.parent, *files) if not os.access(file, os.R_OK | os.W_OK)]
    if locked:
        yield Finding.bad(
            "rights",
            f"this user can't read and write {', '.join(locked)}",
            "give its owner the rights to it, or run this as the user that the server runs as",
        )
        return
    seen = [str(file) for file in files if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)]
    if seen:
        said = "other users of this machine may get at what tasks were asked and what came of them"
        yield Finding.warn("rights", said, f"chmod 600 {' '.join(seen)}")
        return
    yield Finding.ok("rights", "only its owner can read and write it")


def _check_disk(path: Path) -> Finding:
    free, size = shutil.disk_usage(path.parent).free, path.stat().st_size
    said = f"{_in_mib(free)} free, the store has {_in_mib(size)}"
    do = "free some, or delete tasks that have ended: raincheck tasks purge"
    if free < NO_ROOM:
        return Finding.bad("disk", said, do)
    return Finding.warn("disk", said, do) if free < LITTLE_ROOM else Finding.ok("disk", said)


def _check_log(path: Path) -> Finding:
    try:
        size = path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        size = 0
    said = f"the write-ahead log has {_in_mib(size)}"
    if size < LONG_LOG:
        return Finding.ok("log", said)
    return Finding.warn("log", said, "look for a process that keeps reading the file, and stop it: it holds up the log")


def _check_database(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    known = shipped_migrations()[-1].version
    version = file_version(connection, str(path), known)
    if version < known:
        said = f"version {version}, and this raincheck has version {known}"
        yield Finding.warn("schema", said, "start a server on it, which brings it up to date")
    else:
        yield Finding.ok("schema", f"version {version}, the newest")
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        yield Finding.ok("journal", "wal")
    else:
        do = "start a server on it, which turns on the write-ahead log"
        yield Finding.warn("journal", f"{mode}, so that readers wait for writers", do)
    wrong = [row[0] for row in connection.execute("PRAGMA quick_check(3)").fetchall()]
    if wrong == ["ok"]:
        yield Finding.ok("integrity", "the file is whole")
    else:
        yield Finding.bad("integrity", f"the file is damaged ({'; '.join(map(str, wrong))})", RESTORE)


def _in_mib(size: int) -> str:
    return f"{size / MIB / 1_024:.1f} GiB" if size >= 1_024 * MIB else f"{size / MIB:.1f} MiB"
