"""Run commands in separate processes. Their output is bounded, and the processes they start end with them."""

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

from raincheck import process_supervisor
from raincheck.process_supervisor import GRACE, signal_session

OUTPUT_GRACE = 1.0
"""Seconds in which processes that a command leaves running may still write output."""

STDERR_LIMIT = 32_000
"""Bytes of a command's standard error that are retained, counted from the end."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code and the output of a command."""

    exit_code: int
    """A negative number means that this signal ended the command."""
    stdout: bytes
    stderr: bytes
    is_truncated: bool
    """Whether its standard output was longer than `stdout`."""


async def run_command(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes | None, max_output: int
) -> CommandResult:
    """Run a command to its end. Cancelling the call ends the command, with every process that it has started.

    Raises:
        OSError: it can't be started.
        ValueError: it can't be started, since an argument contains a NUL.
    """
    loop = asyncio.get_running_loop()
    output = _OutputCollector(max_output)
    control, remote_control = socket.socketpair()
    control.setblocking(False)
    with control:
        with remote_control:
            transport, _ = await loop.subprocess_exec(
                lambda: output,
                # Isolated from code that the environment and site-packages would load.
                *(sys.executable, "-I", "-S", process_supervisor.__file__, str(remote_control.fileno()), *argv),
                stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=cwd,
                pass_fds=(remote_control.fileno(),),
                # So that the processes that it starts can be ended with it.
                start_new_session=True,
            )
        try:
            await loop.sock_sendall(control, _encode_environment(env))
            if stdin is not None:
                _feed(transport, stdin)
            report, _, number = (await loop.sock_recv(control, 20)).partition(b" ")
            if not report:
                # The session leader was killed, so it can't end the other processes.
                await asyncio.to_thread(signal_session, transport.get_pid(), signal.SIGKILL)
            await asyncio.wait([output.closed], timeout=OUTPUT_GRACE)
        finally:
            control.close()
            try:
                await _wait_for_exit(transport.get_pid(), output)
            finally:
                transport.close()
    if report == b"error":
        raise OSError(int(number), os.strerror(int(number)))
    code = int(number) if report else -signal.SIGKILL
    return CommandResult(code, bytes(output.stdout), bytes(output.stderr), output.is_truncated)


def _encode_environment(env: Mapping[str, str]) -> bytes:
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


async def _wait_for_exit(leader: int, output: "_OutputCollector") -> None:
    """Wait while the leader ends its session. End it here if the leader does not, or if the wait is cancelled."""
    try:
        await asyncio.wait([output.exited], timeout=2 * GRACE)
    finally:
        if not output.exited.done():
            await asyncio.to_thread(_kill, leader)
    # The leader exits soon, unless it hangs in the kernel. The caller should not hang with it.
    await asyncio.wait([output.exited], timeout=GRACE)


def _kill(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(leader, signal.SIGKILL)
    signal_session(leader, signal.SIGKILL)


class _OutputCollector(asyncio.SubprocessProtocol):
    """Collects the output of a command up to a limit, and discards the rest."""

    def __init__(self, max_output: int) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when no process has the output open any more."""
        self.stdout, self.stderr = bytearray(), bytearray()
        self.is_truncated = False
        self._max_output = max_output
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            remaining = self._max_output - len(self.stdout)
            self.is_truncated |= len(data) > remaining
            self.stdout += data[: max(remaining, 0)]
            return
        self.stderr += data
        del self.stderr[:-STDERR_LIMIT]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._open.discard(fd)
        if not self._open and not self.closed.done():
            self.closed.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)
