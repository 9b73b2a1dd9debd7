"""Leads the session of one command, and ends it as soon as nobody wants it any more, or whoever does was killed.

A script, which `command.py` starts before each command: it imports little, to be there soon. It hears and speaks on
one line, a socket whose number is its first argument; what follows is the command. It hears the command's environment,
as four bytes of length and that many bytes of NUL-separated pairs. It says how the command ended: `exit N`, negative
for a signal, or `error N`, where it could not be started. When the other end is closed it ends all of the session.

The command has a group of its own, so that what it does to its group is not done to us, and programs that make groups
(`timeout`, shells with jobs) are found by their session.
"""

import os
import sys
from _thread import LockType, allocate_lock, start_new_thread
from signal import SIG_DFL, SIGCHLD, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ, signal

GRACE = 2.0
"""Seconds for a command to end when it is told to, before it is killed."""


def lead(line: int, command: list[str]) -> None:
    """Run the command until it has ended and nobody wants what it left behind."""
    os.set_inheritable(line, False)
    signal(SIGCHLD, SIG_DFL)
    try:
        _take_environment(line)
        # What Python ignores is not to be ignored by the command.
        ignored = (SIGPIPE, SIGXFSZ, SIGCHLD)
        process = os.posix_spawnp(command[0], command, os.environb, setpgroup=0, setsigdef=ignored)
    except (OSError, ValueError) as error:
        os.write(line, b"error %d" % (getattr(error, "errno", None) or 22))
        return
    # Its output ends when the command and what it has started close it.
    os.closerange(0, 3)
    running = allocate_lock()
    running.acquire()
    start_new_thread(_tell_end, (process, line, running))
    os.read(line, 1)
    _signal(process, SIGTERM)
    running.acquire(timeout=GRACE)
    _signal(process, SIGKILL)


def _tell_end(process: int, line: int, running: LockType) -> None:
    try:
        # As long as it was not waited for, nobody else gets its id, or that of its group.
        ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        assert ended is not None  # noqa: S101 - it was waited for
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        running.release()
        os.write(line, b"exit %d" % code)
    except BaseException:  # noqa: BLE001 - whatever it is
        # Nobody will know how it ended, so it ends now.
        os._exit(1)


def _signal(process: int, number: int) -> None:
    signal_session(os.getpid(), number)
    try:
        # Where there is no such list. It is still there to be waited for, so nobody else has its id.
        os.killpg(process, number)
    except OSError:
        # macOS says so of a group in which nothing runs any more.
        return


def signal_session(leader: int, number: int) -> None:
    """Signal all processes of a session but the one that leads it, where the system has a list of them."""
    try:
        found = os.listdir("/proc")  # noqa: PTH208 - as said, it imports little
    except OSError:
        return
    for name in found:
        try:
            process = int(name)
            if process != leader and os.getsid(process) == leader:
                os.kill(process, number)
        except (ValueError, OSError):
            continue


def _take_environment(line: int) -> None:
    length = int.from_bytes(_read(line, 4), "big")
    os.environb.clear()
    for pair in filter(None, _read(line, length).split(b"\0")):
        name, _, value = pair.partition(b"=")
        os.environb[name] = value


def _read(line: int, length: int) -> bytes:
    got = b""
    while len(got) < length:
        more = os.read(line, length - len(got))
        if not more:
            sys.exit()
        got += more
    return got


if __name__ == "__main__":
    lead(int(sys.argv[1]), sys.argv[2:])
    # At once: whoever started it waits.
    os._exit(0)
