"""Servers that start at the same moment on the path of a dead one: `python racing_servers.py PATH ROUNDS RACERS`.

Prints the outcome of each server in each round, and whether one could be connected to. The processes are forked,
because starting so many would take minutes.
"""

import os
import socket
import sys
from pathlib import Path

from raincheck.errors import ConfigurationError
from raincheck.server.unix.bind import SocketLock


def race(path: str, start: int, report: int, end: int) -> None:
    """Wait for the start, take the path if it is free, and hold it until the round is over."""
    os.read(start, 1)
    claim = SocketLock(path)
    try:
        claim.acquire()
    except ConfigurationError as error:
        os.write(report, b"L" if "another server" in str(error) else b"!")
    else:
        os.write(report, b"W")
    os.read(end, 1)
    # As if it were killed: neither the socket nor the lock is removed.
    os._exit(0)


def run_round(path: str, racers: int) -> tuple[str, bool]:
    start, report, end = os.pipe(), os.pipe(), os.pipe()
    children: list[int] = []
    for _ in range(racers):
        child = os.fork()
        if not child:
            os.close(end[1])
            race(path, start[0], report[1], end[0])
        children.append(child)
    os.write(start[1], b"!" * racers)
    outcomes = "".join(sorted(os.read(report[0], 1).decode() for _ in range(racers)))
    with socket.socket(socket.AF_UNIX) as caller:
        is_served = caller.connect_ex(path) == 0
    for one in (*start, *report, *end):
        os.close(one)
    for child in children:
        os.waitpid(child, 0)
    return outcomes, is_served


def main() -> None:
    path, rounds, racers = sys.argv[1:]
    for _ in range(int(rounds)):
        outcomes, is_served = run_round(path, int(racers))
        assert Path(path).is_socket(), "the next round begins with a dead server's socket"
        sys.stdout.write(f"{outcomes} {is_served}\n")


if __name__ == "__main__":
    main()
