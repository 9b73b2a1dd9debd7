"""The attacked processes, started as users start them: `raincheck serve …` and `raincheck worker …`."""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SERVED = Path(__file__).parent / "served" / "program.py"
RAINCHECK = Path(sys.executable).parent / "raincheck"
PATIENCE = 60.0
"""Seconds for what takes one or two on a quiet machine: to start, and to end after SIGTERM."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


@dataclass
class Program:
    """A server or a worker, which can be killed, stopped, ended, and started again at the same address."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    port: int | None = None
    """None for a worker."""

    process: asyncio.subprocess.Process | None = None
    complaints: list[str] = field(default_factory=list[str])
    """What it must not have done."""

    pids: set[int] = field(default_factory=set[int])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self, *, patience: float = PATIENCE) -> bool:
        """Start it, and wait until it is ready. A store that can't be opened ends it, so try again for some time."""
        try:
            async with asyncio.timeout(patience):
                while not await self._try_to_start():  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(0.2)
        except TimeoutError:
            await self._end(signal.SIGKILL)
            return False
        return True

    async def kill(self) -> None:
        self._complain_if_ended()
        await self._end(signal.SIGKILL)

    async def terminate(self) -> None:
        """End it in order."""
        self._complain_if_ended()
        process = self.process
        if process is None:
            return
        try:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except ProcessLookupError:
            pass
        except TimeoutError:
            self.complaints.append(f"{self.name} did not end within {PATIENCE:.0f} s of SIGTERM")
        await self._end(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        if self.is_running and self.process is not None:
            self.process.send_signal(number)

    def limit_files(self, size: int | None) -> None:
        """Let no file of the process grow beyond this size, as if the disk were full. None lifts the limit."""
        if self.is_running and self.process is not None:
            _, most = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def _try_to_start(self) -> bool:
        size = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self.environment)
            )
        self.pids.add(self.process.pid)
        while self.process.returncode is None:
            # With --json it prints a line as soon as it is ready.
            if b'{"name"' in self.log.read_bytes()[size:]:
                return True
            await asyncio.sleep(0.05)
        self.process = None
        return False

    def _complain_if_ended(self) -> None:
        if self.process is not None and self.process.returncode is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            self.complaints.append(f"{self.name} ended by itself with {self.process.returncode}:\n{tail}")

    async def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            if process.returncode is None:
                process.send_signal(number)
            await process.wait()


def program(
    name: str, kind: str, options: Sequence[str], folder: Path, extra: Mapping[str, str], port: int | None = None
) -> Program:
    """Describe a process of `raincheck serve` or `raincheck worker`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAINCHECK_STORE")}
    address = () if port is None else ("--http", f"127.0.0.1:{port}")
    arguments = (str(RAINCHECK), kind, str(SERVED), *address, "--json", *options)
    if "LD_PRELOAD" not in extra:
        arguments = (sys.executable, *arguments)  # which the tests start quickly
    return Program(name, arguments, {**environment, **extra}, folder / f"{name}.log", port)
