"""A process that leads a group of its own, so that what it starts can be stopped with it.

Not asyncio's: that starts a process on the event loop, which waits for it meanwhile, and it gives up the process's id
before we could stop what the process left behind.
"""

import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from signal import SIGKILL, Signals


class GroupLeader:
    """A process to be started, then one that runs, then one that is gone."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        # Guards the id: once the process was waited for, it may be somebody else's.
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._early: Signals | None = None

    def run(self, connection: socket.socket) -> int | None:
        """Start it and wait until it is gone, and all of its group. Blocks, so it is for a thread.

        The process gets the connection, and its number as last argument. Returns the exit code, negative for a signal;
        None if it was signalled before it was there, and then it is not started.

        Raises:
            OSError: it can't be started.
        """
        with connection:
            if self._early is not None:
                return None
            process = self._start(connection)
        with self._lock:
            self._pid = process.pid
            if self._early is not None:
                self._signal_group(self._early)
        return self._reap(process)

    def signal(self, number: Signals) -> None:
        """Signal the process and all of its group. Nothing happens if it is gone."""
        with self._lock:
            if self._pid is None:
                self._early = number
            self._signal_group(number)

    def _start(self, connection: socket.socket) -> "subprocess.Popen[bytes]":
        # What the process prints goes to our stderr: our stdout may be a connection, where it would be taken for ours.
        return subprocess.Popen(  # noqa: S603 - the command is our own
            [*self._command, str(connection.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(connection.fileno(),),
            start_new_session=True,
        )

    def _reap(self, process: "subprocess.Popen[bytes]") -> int:
        if hasattr(os, "waitid"):
            # As long as it was not waited for, nobody else gets its id.
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with self._lock:
            self._signal_group(SIGKILL)
            self._pid = None
            return process.wait()

    def _signal_group(self, number: Signals) -> None:
        if self._pid is not None:
            # macOS says "not permitted" of a group in which nothing runs any more.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)
