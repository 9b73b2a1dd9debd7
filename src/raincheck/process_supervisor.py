"""Signal groups and sessions of processes, and supervise one command in a session of its own.

As a script, which `workflows/actions/command.py` starts before each command, this leads the session of the command, and
ends it when the parent process no longer needs it or was killed. It imports little, to start fast. It communicates over
one socket, whose file descriptor is its first argument; the other arguments are the command. It reads the command's
environment, as four bytes of length and that many bytes of NUL-separated pairs. It writes how the command ended:
`exit N`, negative for a signal, or `error N` if it could not be started. When the other end is closed, it ends all of
the session.

The command has its own process group, so that a signal to its group does not reach this process. The processes of
programs that create groups (`timeout`, shells with jobs) are found by their session.
"""

import os
import sys
from _thread import LockType, allocate_lock, start_new_thread
from signal import SIG_DFL, SIGCHLD, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ, signal

GRACE = 2.0
"""Seconds that a command has to end after SIGTERM, before it is killed."""


def supervise(control_fd: int, command: list[str]) -> None:
    """Run the command until it has ended and the parent no longer needs the processes it left behind."""
    os.set_inheritable(control_fd, False)
    signal(SIGCHLD, SIG_DFL)
    try:
        _set_environment(control_fd)
        # The command must not ignore the signals that Python ignores.
        ignored = (SIGPIPE, SIGXFSZ, SIGCHLD)
        process = os.posix_spawnp(command[0], command, os.environb, setpgroup=0, setsigdef=ignored)
    except (OSError, ValueError) as error:
        os.write(control_fd, b"error %d" % (getattr(error, "errno", None) or 22))
        return
    # Close the copies here: the output ends when the command and the processes that it has started close it.
    os.closerange(0, 3)
    running = allocate_lock()
    running.acquire()
    start_new_thread(_report_exit, (process, control_fd, running))
    os.read(control_fd, 1)
    _signal(process, SIGTERM)
    running.acquire(timeout=GRACE)
    _signal(process, SIGKILL)


def _report_exit(process: int, control_fd: int, running: LockType) -> None:
    try:
        # Until the process is reaped, no other process gets its id, or the id of its group.
        ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        assert ended is not None  # noqa: S101 - the call blocks until it ends
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    except BaseException:  # noqa: BLE001 - any error
        # The parent can't learn how the command ended, so exit now.
        os._exit(1)
    running.release()
    try:
        os.write(control_fd, b"exit %d" % code)
    except OSError:
        # The parent was killed. The main thread is ending the session, and must not be cut off in the middle of it.
        return


def _signal(process: int, number: int) -> None:
    signal_session(os.getpid(), number)
    # For systems without /proc. The command is not reaped yet, so no other process has its id.
    signal_group(process, number)


def signal_group(leader: int, number: int) -> None:
    """Signal a process group. Nothing happens if it is gone."""
    try:
        os.killpg(leader, number)
    except OSError:
        # macOS returns "not permitted" for a group in which nothing runs any more.
        return


def signal_session(leader: int, number: int) -> None:
    """Signal all processes of a session except its leader, where the system lists processes in /proc."""
    try:
        found = os.listdir("/proc")  # noqa: PTH208 - this script imports little
    except OSError:
        return
    for name in found:
        try:
            process = int(name)
            if process != leader and os.getsid(process) == leader:
                os.kill(process, number)
        except (ValueError, OSError):
            continue


def _set_environment(control_fd: int) -> None:
    length = int.from_bytes(_read(control_fd, 4), "big")
    os.environb.clear()
    for pair in filter(None, _read(control_fd, length).split(b"\0")):
        name, _, value = pair.partition(b"=")
        os.environb[name] = value


def _read(control_fd: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = os.read(control_fd, length - len(data))
        if not chunk:
            sys.exit()
        data += chunk
    return data


if __name__ == "__main__":
    supervise(int(sys.argv[1]), sys.argv[2:])
    # Exit at once: the parent is waiting.
    os._exit(0)
