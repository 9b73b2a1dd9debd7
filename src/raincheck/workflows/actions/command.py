"""Commands in processes of their own: what they write is bounded, and what they start is ended with them."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from raincheck.workflows.actions.supervisor import GRACE, signal_session

LEADER = Path(__file__).with_name("supervisor.py")

AFTERMATH = 1.0
"""Seconds for which what a command has left running may still write."""

STDERR_LIMIT = 32_000
"""Bytes that are kept of what a command writes to its standard error, from the end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    exit_code: int
    """Negative: it was ended by that signal."""
    stdout: bytes
    stderr: bytes
    is_cut: bool
    """Whether there was more on its standard output than is kept."""


async def run_command(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes | None, max_output: int
) -> Ended:
    """Run a command to its end. Whoever stops waiting for it ends it, with all that it has started.

    Raises:
        OSError: it can't be started.
        ValueError: likewise, since an argument has a NUL.
    """
    loop = asyncio.get_running_loop()
    watch = _Watch(max_output)
    line, theirs = socket.socketpair()
    line.setblocking(False)
    with line:
        with theirs:
            transport, _ = await loop.subprocess_exec(
                lambda: watch,
                # Without what the environment and site-packages would have it load.
                *(sys.executable, "-I", "-S", LEADER, str(theirs.fileno()), *argv),
                stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=cwd,
                pass_fds=(theirs.fileno(),),
                # So that what it starts can be ended with it.
                start_new_session=True,
            )
        try:
            await loop.sock_sendall(line, _packed(env))
            if stdin is not None:
                _feed(transport, stdin)
            how, _, number = (await loop.sock_recv(line, 20)).partition(b" ")
            if not how:
                # Somebody killed the leader, which then can't end the others.
                await asyncio.to_thread(signal_session, transport.get_pid(), signal.SIGKILL)
            await asyncio.wait([watch.closed], timeout=AFTERMATH)
        finally:
            line.close()
            try:
                await _end(transport.get_pid(), watch)
            finally:
                transport.close()
    if how == b"error":
        raise OSError(int(number), os.strerror(int(number)))
    code = int(number) if how else -signal.SIGKILL
    return Ended(code, bytes(watch.stdout), bytes(watch.stderr), watch.is_cut)


def _packed(env: Mapping[str, str]) -> bytes:
    for name, value in env.items():
        if "\0" in name + value or "=" in name:
            raise ValueError(f"there is a NUL or a '=' in {name[:60]!r}")
    pairs = b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items())
    return len(pairs).to_bytes(4, "big") + pairs


def _feed(transport: asyncio.SubprocessTransport, stdin: bytes) -> None:
    pipe = cast("asyncio.WriteTransport | None", transport.get_pipe_transport(0))
    if pipe is not None:
        pipe.write(stdin)
        pipe.write_eof()


async def _end(leader: int, watch: "_Watch") -> None:
    """Wait while the leader ends its session, and end it if the leader does not, or somebody is in a hurry."""
    try:
        await asyncio.wait([watch.exited], timeout=2 * GRACE)
    finally:
        if not watch.exited.done():
            await asyncio.to_thread(_kill, leader)
    # It is gone in a moment, unless it hangs in the kernel, and then nobody should hang with it.
    await asyncio.wait([watch.exited], timeout=GRACE)


def _kill(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(leader, signal.SIGKILL)
    signal_session(leader, signal.SIGKILL)


class _Watch(asyncio.SubprocessProtocol):
    """Keeps what a command writes, up to a bound, and passes over the rest."""

    def __init__(self, max_output: int) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        """Nobody has its output open any more."""
        self.stdout, self.stderr = bytearray(), bytearray()
        self.is_cut = False
        self._most = max_output
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            room = self._most - len(self.stdout)
            self.is_cut |= len(data) > room
            self.stdout += data[: max(room, 0)]
            return
        self.stderr += data
        del self.stderr[:-STDERR_LIMIT]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        self._open.discard(fd)
        if not self._open and not self.closed.done():
            self.closed.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)
