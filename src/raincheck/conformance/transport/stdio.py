"""Stdio transport: a server that a command starts, with messages on its standard streams."""

import asyncio
import contextlib
import json
import signal
import sys
from collections import deque
from collections.abc import Sequence

from raincheck.conformance.connection import CommunicationError, Message, RpcConnection, Transport, parse

MAX_LINE_BYTES = 64 * 1024 * 1024
GRACE = 2.0
"""Seconds that a server has to stop after its input closes, and again after each signal."""


class StdioTransport(Transport):
    """Starts the command, and writes and reads one message per line."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._stdout_reader: asyncio.Task[None] | None = None
        self._stderr_reader: asyncio.Task[None] | None = None
        self._stderr_tail: deque[str] = deque(maxlen=3)

    async def open(self, inbox: RpcConnection) -> None:
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                limit=MAX_LINE_BYTES,
                # Own process group, so that processes that the command starts (`npx`, `uv run`) end with it.
                start_new_session=sys.platform != "win32",
            )
        except (OSError, ValueError) as error:
            raise CommunicationError(f"{self._command[0]!r} could not be started: {error}") from error
        self._stderr_reader = asyncio.create_task(self._collect_stderr(process))
        self._stdout_reader = asyncio.create_task(self._read(process, inbox, self._stderr_reader))

    async def send(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._stdout_reader is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except OSError as error:
            # If the server has ended, the reader reports that, with its last lines of stderr.
            await asyncio.wait([self._stdout_reader], timeout=2 * GRACE)
            if self._stdout_reader.done():
                return
            raise CommunicationError(f"the server no longer reads its input: {error}") from error

    async def close(self) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        await self._stop(process)
        # A process that the server started may still hold its streams open, so the readers are not awaited.
        readers = [reader for reader in (self._stdout_reader, self._stderr_reader) if reader is not None]
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        _close_pipes(process)

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        for signal_number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if signal_number is not None:
                _signal(process, signal_number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE)
                break
        _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))

    async def _read(
        self, process: asyncio.subprocess.Process, inbox: RpcConnection, stderr_reader: asyncio.Task[None]
    ) -> None:
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                text = line.decode("utf-8", "replace").strip()
                try:
                    message = parse(text)
                except ValueError:
                    inbox.receive_malformed(text)
                else:
                    inbox.receive(message, "stdio")
        except ValueError:
            inbox.connection_lost(f"the server wrote a line of more than {MAX_LINE_BYTES:,} bytes")
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE)
        # The last lines of stderr arrive on a separate pipe, perhaps a little later.
        await asyncio.wait([stderr_reader], timeout=GRACE / 2)
        event = "closed its output" if process.returncode is None else f"exited with status {process.returncode}"
        stderr = " / ".join(line.strip() for line in self._stderr_tail)
        note = f"; its last lines on stderr: {stderr[-300:]}" if stderr else ""
        inbox.connection_lost(f"the server {event}{note}")

    async def _collect_stderr(self, process: asyncio.subprocess.Process) -> None:
        """Read the server's stderr. Otherwise the server would block when the pipe is full."""
        assert process.stderr is not None
        while piece := await process.stderr.read(65536):
            self._stderr_tail.extend(line for line in piece.decode("utf-8", "replace").splitlines() if line.strip())


def _signal(process: asyncio.subprocess.Process, signal_number: int) -> None:
    if sys.platform != "win32":
        # Imported here, since Windows has no process groups.
        from raincheck.process_supervisor import signal_group

        signal_group(process.pid, signal_number)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.send_signal(signal_number)


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    # asyncio closes the pipes when they end, which may be never if a grandchild holds one open.
    transport: asyncio.SubprocessTransport | None = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
