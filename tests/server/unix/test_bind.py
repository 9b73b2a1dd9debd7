"""A Unix socket has one server at a time, is accessible only to its user, and replaces no other file."""

import asyncio
import errno
import fcntl
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raincheck.errors import ConfigurationError
from raincheck.server.unix import bind
from raincheck.server.unix.bind import SocketLock, peer_user
from tests.support.server.unix import racing_servers
from tests.support.server.unix.transports import program, short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "a.sock"


@contextmanager
def taken(path: Path) -> Generator[socket.socket]:
    claim = SocketLock(path)
    try:
        yield claim.acquire()
    finally:
        claim.release()


def refused(path: Path | str) -> str:
    """Return the error of a server that can't listen there."""
    claim = SocketLock(path)
    with pytest.raises(ConfigurationError) as error:
        claim.acquire()
    claim.release()
    return str(error.value)


def die_at(path: Path) -> None:
    """Leave what a server leaves that was killed."""
    claim = SocketLock(path)
    listening = claim.acquire()
    listening.close()
    os.close(vars(claim)["_lock"])


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


def no_mode(*_: object) -> None:
    raise OSError(errno.EINVAL, "it is a socket, not a file")


BOTH_WAYS = pytest.mark.parametrize("has_mode", [True, False], indirect=True, ids=["as on Linux", "as elsewhere"])
"""Whether a socket has a mode before it has a path. Where it has none, it is bound in a private folder first."""


@pytest.fixture
def has_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr("os.fchmod", no_mode)
    return request.param


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@BOTH_WAYS
def test_only_its_user_can_open_the_socket_from_the_first_moment(
    path: Path, has_mode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            modes.append(Path(address).stat().st_mode & 0o777 if has_mode else Path(address).parent.stat().st_mode)

    monkeypatch.setattr("socket.socket", Watched)
    path.parent.chmod(0o755)
    with umask(0), taken(path):
        assert modes == [0o600 if has_mode else 0o40700]
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.with_name("a.sock.lock").stat().st_mode & 0o777 == 0o600
        assert sorted(one.name for one in path.parent.iterdir()) == ["a.sock", "a.sock.lock"]
        assert connects(path)


@BOTH_WAYS
@pytest.mark.usefixtures("has_mode")
def test_files_of_other_threads_keep_their_mode_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The umask is the process's, so it is left alone."""
    monkeypatch.setattr("os.umask", None)
    with taken(path):
        assert connects(path)


@BOTH_WAYS
@pytest.mark.usefixtures("has_mode")
def test_release_removes_the_socket_and_its_lock(path: Path) -> None:
    with taken(path):
        assert connects(path)
    assert list(path.parent.iterdir()) == []


@BOTH_WAYS
@pytest.mark.usefixtures("has_mode")
def test_the_socket_of_a_dead_server_is_replaced(path: Path) -> None:
    die_at(path)
    assert path.is_socket()
    assert not connects(path)
    with taken(path):
        assert connects(path)
    assert list(path.parent.iterdir()) == []


@BOTH_WAYS
@pytest.mark.usefixtures("has_mode")
def test_a_file_created_at_the_last_moment_is_left_unchanged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SocketLock._remove_stale  # pyright: ignore[reportPrivateUsage] - the moment in between

    def remove_stale(claim: SocketLock) -> None:
        real(claim)
        path.write_text("mine")

    monkeypatch.setattr(SocketLock, "_remove_stale", remove_stale)
    assert "has just created it" in refused(path)
    assert path.read_text() == "mine"
    assert list(path.parent.iterdir()) == [path]


def test_the_socket_of_a_live_server_is_left_alone(path: Path) -> None:
    with taken(path):
        assert "another server listens at" in refused(path)
        assert connects(path)
    with taken(path):
        assert connects(path)


def test_the_socket_of_a_live_server_without_a_lock_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert "another server listens at" in refused(path)
        assert list(path.parent.iterdir()) == [path]
        assert connects(path)


def test_a_server_with_a_full_backlog_is_not_taken_for_dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(str(path))
        listener.listen(0)
        caller.connect(str(path))
        assert "another server listens at" in refused(path)
        assert path.is_socket()


def test_a_socket_of_another_kind_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        assert "can't listen at" in refused(path)
        assert list(path.parent.iterdir()) == [path]


def make_file(path: Path) -> None:
    path.write_text("mine")


def make_link_to_socket(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere.sock"))
    die_at(path.with_name("elsewhere.sock"))


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


@pytest.mark.parametrize("make", [make_file, Path.mkdir, os.mkfifo, make_link_to_socket, make_link_to_nothing])
def test_a_file_that_is_no_socket_is_never_touched(path: Path, make: Callable[[Path], object]) -> None:
    make(path)
    before, files = path.lstat(), sorted(path.parent.iterdir())
    assert "is not a socket, and was left unchanged" in refused(path)
    assert path.lstat() == before
    assert sorted(path.parent.iterdir()) == files


def make_somebody_elses(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("ONLY ROOT can make a file of another user: that such a lock is refused was NOT TESTED here")
    path.touch()
    os.chown(path, 65_534, 65_534)


@pytest.mark.parametrize("make", [make_file, Path.mkdir, os.mkfifo, make_link_to_nothing, make_somebody_elses])
def test_another_file_at_the_path_of_the_lock_is_never_touched(path: Path, make: Callable[[Path], object]) -> None:
    lock = path.with_name("a.sock.lock")
    make(lock)
    before = lock.lstat()
    assert str(path) in refused(path)
    assert lock.lstat() == before
    assert list(path.parent.iterdir()) == [lock]


def test_a_lock_that_its_holder_removes_while_it_is_opened_is_not_taken_for_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder leaves between the opening and the locking: others then find no file, and make another."""
    leaving = SocketLock(path)
    leaving.acquire()
    real, others = fcntl.flock, iter([leaving.release])

    def flock(file: int, how: int) -> None:
        for leave in others:
            leave()
        real(file, how)

    monkeypatch.setattr("fcntl.flock", flock)
    with taken(path):
        with path.with_name("a.sock.lock").open() as lock, pytest.raises(BlockingIOError):
            real(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert "another server listens at" in refused(path)
        assert connects(path)


def test_of_two_threads_that_start_at_once_exactly_one_gets_it(path: Path) -> None:
    for _ in range(50):
        die_at(path)
        got: list[SocketLock] = []
        barrier = threading.Barrier(4)

        def start(got: list[SocketLock] = got, barrier: threading.Barrier = barrier) -> None:
            claim = SocketLock(path)
            barrier.wait()
            try:
                claim.acquire()
            except ConfigurationError as error:
                assert "another server" in str(error)  # noqa: PT017 - in a thread
            else:
                got.append(claim)

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (one,) = got
        assert connects(path)
        one.release()


@pytest.mark.anyio
async def test_of_processes_that_start_at_once_exactly_one_gets_it(path: Path) -> None:
    async with program(racing_servers.__file__, path, 40, 6, stdout=asyncio.subprocess.PIPE) as racing:
        output, _ = await racing.communicate()
    assert output.decode().splitlines() == ["LLLLLW True"] * 40


def test_only_created_files_are_removed(path: Path) -> None:
    claim = SocketLock(path)
    claim.acquire()
    lock = path.with_name("a.sock.lock")
    path.unlink()
    lock.unlink()
    path.write_text("mine")
    lock.write_text("mine too")
    claim.release()
    assert (path.read_text(), lock.read_text()) == ("mine", "mine too")


def test_the_socket_of_a_later_server_is_not_removed(path: Path) -> None:
    """Somebody removed both files by hand, and so another could start."""
    claim = SocketLock(path)
    claim.acquire()
    path.unlink()
    path.with_name("a.sock.lock").unlink()
    with taken(path):
        claim.release()
        assert connects(path)
        assert "another server listens at" in refused(path)


def test_it_can_be_released_at_any_time_and_again(path: Path) -> None:
    claim = SocketLock(path)
    claim.release()
    claim.acquire()
    claim.release()
    claim.release()
    assert list(path.parent.iterdir()) == []


def test_release_tolerates_a_removed_folder(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    claim = SocketLock(path)
    claim.acquire()
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    claim.release()
    path.parent.mkdir()
    assert caplog.records == []


def test_a_socket_that_can_not_be_removed_is_logged_and_released(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unlink(_: Path) -> None:
        raise PermissionError(errno.EACCES, "not any more")

    claim = SocketLock(path)
    claim.acquire()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        claim.release()
    assert f"could not remove the socket {path}: [Errno 13] not any more" in caplog.text
    with taken(path):
        assert connects(path)


def test_the_path_does_not_depend_on_a_later_working_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    claim = SocketLock("a.sock")
    claim.acquire()
    monkeypatch.chdir("/")
    assert connects(path)
    claim.release()
    assert list(path.parent.iterdir()) == []


def test_a_path_that_is_too_long_is_refused_with_its_bounds(folder: Path) -> None:
    most = bind.MAX_PATH_BYTES[sys.platform]
    longest = folder / ("é" * 10).ljust(most - len(os.fsencode(folder)) - 11, "x")
    assert len(os.fsencode(longest)) == most
    with taken(longest):
        assert connects(longest)
    assert f"has {most + 1} bytes, and the path of a Unix socket at most {most}" in refused(f"{longest}x")
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(folder: Path) -> None:
    assert refused(folder / "no" / "a.sock").endswith("no/a.sock': its folder does not exist: create it first")
    (folder / "file").touch()
    assert refused(folder / "file" / "a.sock").endswith("its parent is not a folder: choose another path")


@pytest.mark.parametrize("path", ["", "/", "a\0b", b"a.sock", None, 7])
def test_a_value_that_is_no_file_path_is_refused_at_once(path: Any) -> None:
    with pytest.raises(ConfigurationError, match="named by the path of a file"):
        SocketLock(path)


def test_a_platform_without_peer_credentials_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "sunos5")
    assert "sunos5 does not report which user is at the other end" in refused(path)
    assert list(path.parent.iterdir()) == []


def test_the_user_at_the_other_end_is_known() -> None:
    own_end, listener = socket.socketpair()
    with own_end, listener:
        assert peer_user(own_end) == os.geteuid()


def test_the_user_at_the_other_end_is_read_in_the_format_of_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mac:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option, size) == (0, 1, 76)
            # struct xucred: its version, the user, how many groups, the groups.
            return struct.pack("=IIhxx16I", 0, 501, 1, 20, *[0] * 15)

    monkeypatch.setattr("sys.platform", "darwin")
    mac: Any = Mac()
    assert peer_user(mac) == 501
