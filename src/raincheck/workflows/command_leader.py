"""Leads the group of one command, and ends it as soon as nobody wants it any more, or whoever does was killed.

A script, which `command.py` starts before each command: it imports little, to be there soon. It hears and speaks on
one line, a socket whose number is its first argument; what follows is the command. It hears the command's environment,
as four bytes of length and that many bytes of NUL-separated pairs. It says how the command ended: `exit N`, negative
for a signal, or `error N`, where it could not be started. When the other end is closed it stops the group, itself too.
"""

import os
import sys
from _thread import allocate_lock, start_new_thread
from signal import SIG_IGN, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ, signal

GRACE = 2.0
"""Seconds for a command to end when it is told to, before it is killed."""


def lead(line: int, command: list[str]) -> None:
    """Run the command until it has ended and nobody wants what it left behind."""
    os.set_inheritable(line, False)
    length = int.from_bytes(_read(line, 4), "big")
    pairs = _read(line, length).split(b"\0")
    os.environb.clear()
    for pair in filter(None, pairs):
        name, _, value = pair.partition(b"=")
        os.environb[name] = value
    try:
        # What Python ignores is not to be ignored by the command.
        process = os.posix_spawnp(command[0], command, os.environb, setsigdef=(SIGPIPE, SIGXFSZ))
    except OSError as error:
        os.write(line, b"error %d" % error.errno)
        return
    signal(SIGTERM, SIG_IGN)
    # Its output ends when the command and what it has started close it.
    os.closerange(0, 3)
    running = allocate_lock()
    running.acquire()

    def wait() -> None:
        _, status = os.waitpid(process, 0)
        running.release()
        os.write(line, b"exit %d" % os.waitstatus_to_exitcode(status))

    start_new_thread(wait, ())
    os.read(line, 1)
    os.killpg(0, SIGTERM)
    running.acquire(timeout=GRACE)
    os.killpg(0, SIGKILL)


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
