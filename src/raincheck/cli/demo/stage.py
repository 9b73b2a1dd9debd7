"""The server's process: started, killed without warning, and started again."""

import asyncio
import socket
import sys
from pathlib import Path

READY_WITHIN = 30.0


class Stage:
    """One server on one port of this machine, with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def store(self) -> Path:
        return self.folder / "tasks.db"

    @property
    def printed_twice(self) -> int:
        """How many chapters were printed more than once."""
        printed = (self.folder / "printed.txt").read_text().splitlines()
        return len(printed) - len(set(printed))

    async def start(self) -> None:
        """Start the server, and wait until it listens."""
        command = (sys.executable, "-m", "raincheck.cli.demo.server", str(self.port), str(self.folder))
        with (self.folder / "server.log").open("ab") as log:
            # It ends when its stdin does, so that it does not outlive whoever plays with it.
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log
            )
        async with asyncio.timeout(READY_WITHIN):
            while not await _listens(self.port):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the server did not start: see {self.folder / 'server.log'}")
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """End it as a crash would: nothing in it gets to tidy up."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
