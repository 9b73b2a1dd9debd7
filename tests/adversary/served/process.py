"""A `raincheck serve` process, started as users start it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("raincheck")

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "262144"}
"""Lets the allocator return large blocks to the system, so that the size of a process is what it holds.

By default glibc keeps them after the first few, and a server stays as large as it was at its largest.
"""

PATIENCE = 120.0
"""Seconds for a process to start or to stop, on a busy machine."""


@dataclass(frozen=True)
class ServerProcess:
    """A running server, and what the system knows of it."""

    process: asyncio.subprocess.Process
    log_file: Path
    port: int = 0

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    @property
    def resident_bytes(self) -> int:
        """The memory that the process occupies."""
        return self._status("VmRSS")

    @property
    def address_bytes(self) -> int:
        """The address space that the process has reserved."""
        return self._status("VmSize")

    @property
    def descriptors(self) -> int:
        """The number of file descriptors that the process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - names are enough

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))

    def log_bytes(self) -> bytes:
        return self.log_file.read_bytes()

    def log_records(self) -> list[dict[str, Any]]:
        """Return the records of the log, which the server was told to write as JSON. Other lines become a message."""
        return [_as_record(line) for line in self.log_bytes().splitlines() if line.strip()]


def _as_record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    return record if isinstance(record, dict) else {"message": line.decode(errors="replace")}  # pyright: ignore[reportUnknownVariableType]


@asynccontextmanager
async def started(
    folder: Path, target: Path, where: Sequence[str], *, env: Mapping[str, str], limits: str = ""
) -> AsyncGenerator[ServerProcess]:
    """Start `raincheck serve` with limits in the language of the shell, such as `ulimit -n 256`; stop it at the end.

    With `--stdio` its stdin and stdout are pipes. Otherwise it is ready when this returns.
    """
    words = [str(PROGRAM), "serve", str(target), *where, "--log-format", "json"]
    is_stdio = "--stdio" in where
    log_file = folder / f"{target.stem}{where[0]}.log"
    with log_file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", f'{limits or ":"}; exec "$@"', "sh", *words, *([] if is_stdio else ["--json"]),
            stdin=asyncio.subprocess.PIPE if is_stdio else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=log, cwd=folder, env={**os.environ, **ALLOCATOR, **env}, limit=2**26,
        )  # fmt: skip
    try:
        port = 0 if is_stdio else await _wait_until_ready(process, log_file)
        yield ServerProcess(process, log_file, port)
    finally:
        await _stop(process)


async def _wait_until_ready(process: asyncio.subprocess.Process, log_file: Path) -> int:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = await process.stdout.readline()
    if b'"at"' not in line:
        raise RuntimeError(f"the server did not start: {line!r}, and {log_file} has more")
    address = str(json.loads(line)["at"])
    return int(address.removesuffix("/mcp").rpartition(":")[2]) if address.startswith("http") else 0


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(PATIENCE):
            # `communicate` also reads what it still writes, so that it can't block on a full pipe.
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
