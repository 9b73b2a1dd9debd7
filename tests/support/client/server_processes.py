"""Servers in separate processes, which tests kill and restart."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from raincheck.client import TaskClient
from tests.support.client import example_server
from tests.support.client.transports import hide_tasks, without_tasks


class ServerProcess:
    """A server with a store in a file and a diary, which can be killed and restarted."""

    def __init__(self, folder: Path) -> None:
        self.store, self.diary = folder / "tasks.db", folder / "diary"
        with socket.create_server(("127.0.0.1", 0)) as bound:
            self.port: int = bound.getsockname()[1]
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def program(self) -> StdioServerParameters:
        """The server on its standard streams."""
        arguments = [example_server.__file__, "--store", str(self.store), "--diary", str(self.diary)]
        return StdioServerParameters(command=sys.executable, args=arguments)

    async def start(self) -> None:
        """Start the server over HTTP."""
        arguments = [*self.program.args, "--port", str(self.port)]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    # The server is another process, so the test can only poll.
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    async def kill(self) -> None:
        """Kill the HTTP server."""
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            await process.wait()

    def kill_program(self) -> None:
        """Kill the stdio server that was started last."""
        pids = [line.split()[1] for line in self.lines() if line.startswith("pid")]
        os.kill(int(pids[-1]), signal.SIGKILL)

    def lines(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.exists() else []

    async def wait_for(self, is_it: Callable[[list[str]], bool]) -> None:
        """Wait until the diary satisfies a predicate."""
        async with asyncio.timeout(60):
            while not is_it(await asyncio.to_thread(self.lines)):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.02)

    async def wait_for_line(self, words: str) -> None:
        await self.wait_for(lambda lines: any(words in line for line in lines))

    def client(self, tier: str, way: str, **options: Any) -> TaskClient:
        """A client of it, over `http` or `stdio`."""
        mode = "auto" if tier == "2026" else "legacy"
        wrap: Callable[[Any], Any] = {"plain": without_tasks, "hidden": hide_tasks}.get(
            tier, lambda transport: transport
        )
        if way == "http":
            options.setdefault("name", self.url)
            return TaskClient(lambda: wrap(_with_token(self.url)), mode=mode, **options)
        if tier in ("2026", "2025"):
            return TaskClient(self.program, mode=mode, **options)
        return TaskClient(lambda: wrap(stdio_client(self.program)), mode=mode, name="program", **options)


@asynccontextmanager
async def _with_token(url: str) -> AsyncGenerator[Any]:
    """A connection with a token, so that the server can identify the caller."""
    async with (
        httpx2.AsyncClient(headers={"authorization": "Bearer mine"}, timeout=30, trust_env=False) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams
