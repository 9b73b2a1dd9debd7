"""A Unix socket for one server at a time and for one user alone. All of it blocks, so it is for a thread."""

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

OURS_ALONE = 0o600

LONGEST_PATH = {"linux": 107, "darwin": 103}
"""Bytes that an address has room for."""

CREDENTIALS = {
    "linux": (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", 0), 12),
    "darwin": (0, 1, 76),  # SOL_LOCAL, LOCAL_PEERCRED
}
"""How a system is asked for the user at the other end, and how many bytes it answers. The second number is the user."""

WHY = {
    errno.ENOENT: "its folder does not exist: make it first",
    errno.ENOTDIR: "what should be its folder is none",
    errno.EACCES: "this user has no right to",
    errno.EPERM: "this user has no right to",
    errno.EROFS: "nothing can be written there",
    errno.EADDRINUSE: "something else took its place at this moment",
    errno.EEXIST: "something else took its place at this moment",
}


def user_of(connection: socket.socket) -> int:
    """The user at the other end, as the system saw them connect.

    Raises:
        OSError: they are gone already.
    """
    level, option, size = CREDENTIALS[sys.platform]
    _, user = struct.unpack_from("=iI", connection.getsockopt(level, option, size))
    return user


class Claim:
    """The right to serve at a path: taken by one server at a time, and free again when that lets go of it or dies.

    The socket alone does not tell whether its server lives, and two that find a dead one would both replace it. So
    there is a lock beside it, on a file that stays for as long as the socket does. The system lets go of a dead
    process's lock by itself.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        name: object = os.fspath(path) if isinstance(path, str | PathLike) else None  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        if not isinstance(name, str) or "\0" in name or not Path(name).name:
            raise ConfigurationError(f"a Unix socket is named by the path of a file, not by {path!r}")
        self.path = Path(name)
        self._lock: int | None = None
        self._socket: socket.socket | None = None
        self._made: os.stat_result | None = None

    def take(self) -> socket.socket:
        """Listen there. Whatever comes of it, `release` is to be called afterwards.

        Raises:
            ConfigurationError: that is not possible, or another server does.
        """
        # The folder that counts is today's, whatever directory the process changes to.
        self.path = self.path.absolute()
        self._check()
        try:
            self._lock = self._take_lock()
            self._remove_stale()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._bind(self._socket)
            self._made = self.path.lstat()
            self._socket.listen()
        except OSError as error:
            why = WHY.get(error.errno or 0, error.strerror or str(error))
            raise ConfigurationError(f"can't listen at {str(self.path)!r}: {why}") from error
        self._socket.setblocking(False)
        return self._socket

    def release(self) -> None:
        """Stop listening, and remove what was made, if it is still there. May be called at any time, and again."""
        try:
            if self._made is not None and _is_there(self.path, self._made):
                self.path.unlink()
            if self._lock is not None and _is_there(self._lock_path, os.fstat(self._lock)):
                self._lock_path.unlink()
        except OSError as error:
            logger.warning("the socket %s could not be removed: %s", self.path, error)
        self._made = None
        # Not before the files are gone: until then nobody else can have the same ones.
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
                f"{sys.platform} does not tell which user is at the other end of a Unix socket: serve HTTP or stdio"
            )
        size, most = len(os.fsencode(self.path)), LONGEST_PATH[sys.platform]
        if size > most:
            raise ConfigurationError(
                f"{str(self.path)!r} has {size} bytes, and the path of a Unix socket {most} at most: use a shorter one"
            )

    def _take_lock(self) -> int:
        while True:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, OURS_ALONE)
            with ExitStack() as undo:
                undo.callback(os.close, lock)
                self._check_lock(os.fstat(lock))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise self._taken() from error
                # Its last holder may have removed it after we opened it: then others lock another file.
                if _is_there(self._lock_path, os.fstat(lock)):
                    undo.pop_all()
                    return lock

    def _check_lock(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode) or found.st_size or found.st_uid != os.geteuid():
            raise ConfigurationError(
                f"{str(self._lock_path)!r}, the lock of that socket, is somebody else's file, and was left as it is: "
                "choose another path"
            )

    def _remove_stale(self) -> None:
        """Remove the socket of a server that died, and nothing else."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise ConfigurationError(
                f"what is at {str(self.path)!r} is no socket, and was left as it is: choose another path"
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(self.path))
            except (ConnectionRefusedError, FileNotFoundError):
                self.path.unlink(missing_ok=True)
                return
            except BlockingIOError as error:
                # It has more callers than it takes at the moment.
                raise self._taken() from error
        raise self._taken()

    def _bind(self, unbound: socket.socket) -> None:
        """Give the socket its path, with the right mode from the first moment on.

        Not by the umask: that is the whole process's, whose other threads make files too.
        """
        try:
            # On Linux the file is made with the mode of the socket.
            os.fchmod(unbound.fileno(), OURS_ALONE)
        except OSError:
            # Elsewhere a socket has none. So where nobody can reach it; and a link, unlike a rename, replaces nothing.
            with tempfile.TemporaryDirectory(prefix=".", dir=self.path.parent) as private:
                inside = Path(private, "s")
                unbound.bind(os.fspath(inside))
                inside.chmod(OURS_ALONE)
                self.path.hardlink_to(inside)
        else:
            unbound.bind(os.fspath(self.path))

    def _taken(self) -> ConfigurationError:
        return ConfigurationError(
            f"another server listens at {str(self.path)!r}, or is about to: stop it first, or choose another path"
        )


def _is_there(path: Path, file: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), file)
    return False
