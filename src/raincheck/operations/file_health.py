"""Read-only health checks of a SQLite store: permissions, disk space, write-ahead log, schema and integrity."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from raincheck.errors import StoreCorrupt
from raincheck.operations.task_health import HealthFinding
from raincheck.stores.sqlite.connection import connect, open_reader, translate_error
from raincheck.stores.sqlite.migrate import schema_version as file_version
from raincheck.stores.sqlite.migrate import shipped_migrations

MIB = 1_024 * 1_024

LOCK_TIMEOUT = 10.0
LOW_DISK = 1_024 * MIB
CRITICAL_DISK = 100 * MIB
LARGE_WAL = 64 * MIB
"""A checkpoint empties the write-ahead log long before it reaches this size, unless another process blocks it."""

RESTORE = "stop all processes that use it, then restore a backup or try SQLite's '.recover'"


def check_file(path: Path) -> list[HealthFinding]:
    """Check a store's file.

    Raises:
        NotAStore, SchemaMismatch: this version of raincheck can't read the file.
        StoreError: the check failed.
    """
    path = path.resolve()
    findings = [*_check_file_rights(path), _check_disk(path), _check_log(path)]
    try:
        with closing(open_reader(connect, path, LOCK_TIMEOUT)) as connection:
            findings += _check_database(connection, path)
    except sqlite3.Error as error:
        translated = translate_error(error, str(path))
        if not isinstance(translated, StoreCorrupt):
            raise translated from error
        findings.append(HealthFinding.bad("integrity", f"the file is damaged ({error})", RESTORE))
    return findings


def _check_file_rights(path: Path) -> Iterator[HealthFinding]:
    paths = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
    files = [file for file in paths if file.exists()]
    locked = [str(file) for file in (path.parent, *files) if not os.access(file, os.R_OK | os.W_OK)]
    if locked:
        yield HealthFinding.bad(
            "rights",
            f"this user can't read and write {', '.join(locked)}",
            "grant this user access, or run this command as the user that the server runs as",
        )
        return
    readable = [str(file) for file in files if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)]
    if readable:
        message = "other users of this machine can read the arguments and results of tasks"
        yield HealthFinding.warn("rights", message, f"chmod 600 {' '.join(readable)}")
        return
    yield HealthFinding.ok("rights", "only its owner can read and write it")


def _check_disk(path: Path) -> HealthFinding:
    free, size = shutil.disk_usage(path.parent).free, path.stat().st_size
    message = f"{_in_mib(free)} free, the store has {_in_mib(size)}"
    do = "free disk space, or delete tasks that have ended: raincheck tasks purge"
    if free < CRITICAL_DISK:
        return HealthFinding.bad("disk", message, do)
    return HealthFinding.warn("disk", message, do) if free < LOW_DISK else HealthFinding.ok("disk", message)


def _check_log(path: Path) -> HealthFinding:
    try:
        size = path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        size = 0
    message = f"the write-ahead log has {_in_mib(size)}"
    if size < LARGE_WAL:
        return HealthFinding.ok("log", message)
    return HealthFinding.warn(
        "log", message, "find the process that keeps reading the file, and stop it: it blocks the checkpoint of the log"
    )


def _check_database(connection: sqlite3.Connection, path: Path) -> Iterator[HealthFinding]:
    newest = shipped_migrations()[-1].version
    version = file_version(connection, str(path), newest)
    if version < newest:
        message = f"version {version}, and this raincheck has version {newest}"
        yield HealthFinding.warn("schema", message, "start a server on it, which migrates it")
    else:
        yield HealthFinding.ok("schema", f"version {version}, the newest")
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        yield HealthFinding.ok("journal", "wal")
    else:
        do = "start a server on it, which turns on the write-ahead log"
        yield HealthFinding.warn("journal", f"{mode}, so readers wait for writers", do)
    wrong = [row[0] for row in connection.execute("PRAGMA quick_check(3)").fetchall()]
    if wrong == ["ok"]:
        yield HealthFinding.ok("integrity", "the file is intact")
    else:
        yield HealthFinding.bad("integrity", f"the file is damaged ({'; '.join(map(str, wrong))})", RESTORE)


def _in_mib(size: int) -> str:
    return f"{size / MIB / 1_024:.1f} GiB" if size >= 1_024 * MIB else f"{size / MIB:.1f} MiB"
