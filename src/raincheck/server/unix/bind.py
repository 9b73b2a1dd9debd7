"""Bind a Unix socket for one server at a time and for one user alone. All of it blocks: run it in a thread."""

import errno
import fcntl
import logging
import os
import socket
import stat
import struct
import sys
import tempfile
from contextlib import ExitStack, suppress
from os import PathLike
from pathlib import Path

from raincheck.errors import ConfigurationError

logger = logging.getLogger(__name__)

OWNER_ONLY = 0o600

MAX_PATH_BYTES = {"linux": 107, "darwin": 103}
"""Bytes that a socket address can hold."""

CREDENTIALS = {
    "linux": (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", 0), 12),
    "darwin": (0, 1, 76),  # SOL_LOCAL, LOCAL_PEERCRED
}
"""The socket option for the user of the peer, and the bytes of its value. The second integer is the user."""

ERROR_HINTS = {
    errno.ENOENT: "its folder does not exist: create it first",
    errno.ENOTDIR: "its parent is not a folder: choose another path",
    errno.EACCES: "this user has no permission: choose a folder that this user can write to",
    errno.EPERM: "this user has no permission: choose a folder that this user can write to",
    errno.EROFS: "its file system is read-only: choose another path",
    errno.EADDRINUSE: "another process has just created it: try again, or choose another path",
    errno.EEXIST: "another process has just created it: try again, or choose another path",
}


def peer_user(connection: socket.socket) -> int:
    """Return the user of the peer, as the system recorded it when the peer connected.

    Raises:
        OSError: the peer is already gone.
    """
    level, option, size = CREDENTIALS[sys.platform]
    _, user = struct.unpack_from("=iI", connection.getsockopt(level, option, size))
    return user


class SocketLock:
    """The right to serve at a path. One server holds it at a time, until that server releases it or dies.

    The socket alone does not show whether its server is alive, and two servers that find a dead one would both replace
    it. So there is a lock beside it, on a file that exists for as long as the socket does. The system releases the lock
    of a dead process.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        name: object = os.fspath(path) if isinstance(path, str | PathLike) else None  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        if not isinstance(name, str) or "\0" in name or not Path(name).name:
            raise ConfigurationError(f"a Unix socket is named by the path of a file, not by {path!r}")
        self.path = Path(name)
        self._lock: int | None = None
        self._socket: socket.socket | None = None
        self._created: os.stat_result | None = None

    def acquire(self) -> socket.socket:
        """Listen at the path. Call `release` afterwards, whatever the outcome.

        Raises:
            ConfigurationError: that is not possible, or another server listens there.
        """
        # Resolved now, whatever directory the process changes to later.
        self.path = self.path.absolute()
        self._check()
        try:
            self._lock = self._acquire_file_lock()
            self._remove_stale()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._bind(self._socket)
            self._created = self.path.lstat()
            self._socket.listen()
        except OSError as error:
            reason = ERROR_HINTS.get(error.errno or 0, error.strerror or str(error))
            raise ConfigurationError(f"can't listen at {str(self.path)!r}: {reason}") from error
        self._socket.setblocking(False)
        return self._socket

    def release(self) -> None:
        """Stop listening, and remove the created files, if they still exist. Safe at any time, and repeatedly."""
        try:
            if self._created is not None and _is_at(self.path, self._created):
                self.path.unlink()
            if self._lock is not None and _is_at(self._lock_path, os.fstat(self._lock)):
                self._lock_path.unlink()
        except OSError as error:
            logger.warning("could not remove the socket %s: %s", self.path, error)
        self._created = None
        # Not before the files are gone: until then no other server can have the same ones.
        if self._socket is not None:
            self._socket.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    def _check(self) -> None:
        if sys.platform not in CREDENTIALS:
            raise ConfigurationError(
                f"{sys.platform} does not report which user is at the other end of a Unix socket: serve HTTP or stdio"
            )
        size, max_size = len(os.fsencode(self.path)), MAX_PATH_BYTES[sys.platform]
        if size > max_size:
            raise ConfigurationError(
                f"{str(self.path)!r} has {size} bytes, and the path of a Unix socket at most {max_size}: shorten it"
            )

    def _acquire_file_lock(self) -> int:
        while True:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, OWNER_ONLY)
            with ExitStack() as undo:
                undo.callback(os.close, lock)
                self._check_lock(os.fstat(lock))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise self._in_use_error() from error
                # Its last holder may have removed it after it was opened here: then other servers lock another file.
                if _is_at(self._lock_path, os.fstat(lock)):
                    undo.pop_all()
                    return lock

    def _check_lock(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_size or status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"{str(self._lock_path)!r}, the lock file of that socket, is a file of another program or user, "
                "and was left unchanged: choose another path"
            )

    def _remove_stale(self) -> None:
        """Remove the socket of a dead server, and nothing else."""
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(status.st_mode):
            raise ConfigurationError(
                f"the file at {str(self.path)!r} is not a socket, and was left unchanged: choose another path"
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(self.path))
            except (ConnectionRefusedError, FileNotFoundError):
                self.path.unlink(missing_ok=True)
                return
            except BlockingIOError as error:
                # The backlog of the server is full at the moment.
                raise self._in_use_error() from error
        raise self._in_use_error()

    def _bind(self, unbound: socket.socket) -> None:
        """Give the socket its path, with the right mode from the first moment on.

        The umask can't do that: it belongs to the whole process, whose other threads make files too.
        """
        try:
            # On Linux the file gets the mode of the socket.
            os.fchmod(unbound.fileno(), OWNER_ONLY)
        except OSError:
            # Elsewhere a socket has no mode. So it is made where no other user has access. A link, unlike a rename,
            # replaces nothing.
            with tempfile.TemporaryDirectory(prefix=".", dir=self.path.parent) as private:
                inside = Path(private, "s")
                unbound.bind(os.fspath(inside))
                inside.chmod(OWNER_ONLY)
                self.path.hardlink_to(inside)
        else:
            unbound.bind(os.fspath(self.path))

    def _in_use_error(self) -> ConfigurationError:
        return ConfigurationError(
            f"another server listens at {str(self.path)!r}, or is about to: stop it first, or choose another path"
        )


def _is_at(path: Path, status: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), status)
    return False
