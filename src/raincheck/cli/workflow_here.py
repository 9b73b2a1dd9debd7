"""The server of a file of workflows, in this process: reached as any other, and found again by the command for it."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp.client import Transport
from mcp.client._transport import TransportStreams
from mcp.shared.memory import create_client_server_memory_streams

from raincheck.cli.secrecy import cover
from raincheck.cli.workflow_tasks import WorkflowTasks
from raincheck.server.sdk import lowlevel_of


class HereTarget:
    """What is run by this command. Whoever comes back to it later serves the same file."""

    ends_with_us = True
    has_secret = False

    def __init__(self, tasks: WorkflowTasks, store: str | None) -> None:
        self._tasks = tasks
        words = [*_program(), "serve", str(tasks.path), *([] if store is None else ["--store", store])]
        self._covered = cover(words)
        self.shown = self._covered.text
        # As a command that was started here would be called.
        self.name = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(words)}"

    def connect(self) -> Transport:
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[TransportStreams]:
        server = lowlevel_of(self._tasks.server)
        async with create_client_server_memory_streams() as (ours, theirs):
            serving = asyncio.ensure_future(server.run(*theirs, server.create_initialization_options()))
            try:
                yield ours
            finally:
                await ours[1].aclose()
                await asyncio.wait([serving])

    def last_words(self) -> str:
        return ""

    def hint(self) -> str | None:
        return None

    def cleaned(self, text: str) -> str:
        return self._covered.clean(text)


def _program() -> list[str]:
    """What starts this program once more."""
    if shutil.which("raincheck") is not None:
        return ["raincheck"]
    return [sys.executable, "-c", "from raincheck.cli import main; main()"]
