"""Commands in processes of their own: what they write is bounded, and what they start is ended with them."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

GRACE = 2.0
"""Seconds for a command to end when it is told to, before it is killed."""

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
    transport, _ = await loop.subprocess_exec(
        lambda: watch,
        *argv,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        # A group of its own, so that what it starts can be ended with it.
        start_new_session=True,
    )
    group = transport.get_pid()
    try:
        if stdin is not None:
            _feed(transport, stdin)
        # Not awaited itself: whoever gives up waiting would cancel it.
        await asyncio.wait([watch.exited])
        await asyncio.wait([watch.closed], timeout=AFTERMATH)
    finally:
        await _end(group, watch)
        transport.close()
    code = transport.get_returncode()
    return Ended(-1 if code is None else code, bytes(watch.stdout), bytes(watch.stderr), watch.is_cut)


def _feed(transport: asyncio.SubprocessTransport, stdin: bytes) -> None:
    pipe = cast("asyncio.WriteTransport | None", transport.get_pipe_transport(0))
    if pipe is not None:
        pipe.write(stdin)
        pipe.write_eof()


async def _end(group: int, watch: "_Watch") -> None:
    """End whatever is left of the group: told first, and killed when its grace is over or somebody is in a hurry."""
    try:
        if not watch.exited.done():
            _signal(group, signal.SIGTERM)
            await asyncio.wait([watch.exited], timeout=GRACE)
    finally:
        _signal(group, signal.SIGKILL)
    # It is gone in a moment, unless it hangs in the kernel, and then nobody should hang with it.
    await asyncio.wait([watch.exited], timeout=GRACE)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


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
