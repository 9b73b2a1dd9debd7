"""Servers and workers on one database, each in its own process, and clients of them."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from raincheck.client import TaskClient
from tests.support.dispatchers import chaos_process

START_TIMEOUT = 60.0


class ChaosSite:
    """The running processes, and their event log."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.event_log = folder / "event_log"
        self.servers: list[str] = []
        self.workers: list[asyncio.subprocess.Process] = []
        self._processes: list[asyncio.subprocess.Process] = []

    async def serve(self) -> str:
        """Start a server, and return its URL when it answers."""
        with socket.create_server(("127.0.0.1", 0)) as bound:
            port: int = bound.getsockname()[1]
        server = await self._start("serve", str(port), self.url, str(self.event_log))
        async with asyncio.timeout(START_TIMEOUT):
            while True:
                assert server.returncode is None, "the server did not start"
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    # It is another process, so polling is the only way to wait.
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                await writer.wait_closed()
                self.servers.append(f"http://127.0.0.1:{port}/mcp")
                return self.servers[-1]

    async def work(self) -> asyncio.subprocess.Process:
        self.workers.append(await self._start("work", self.url, str(self.event_log)))
        return self.workers[-1]

    @property
    def alive(self) -> list[asyncio.subprocess.Process]:
        return [worker for worker in self.workers if worker.returncode is None]

    async def kill(self, worker: asyncio.subprocess.Process) -> None:
        self.workers.remove(worker)
        if worker.returncode is None:
            worker.kill()
        await worker.wait()

    async def end_all(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def lines(self, *words: str) -> list[list[str]]:
        """Return the lines of the event log that start with these words."""
        text = self.event_log.read_text() if self.event_log.exists() else ""
        return [line for line in map(str.split, text.splitlines()) if line[: len(words)] == list(words)]

    async def wait_for_line(self, *words: str) -> None:
        async with asyncio.timeout(START_TIMEOUT):
            while not await asyncio.to_thread(self.lines, *words):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.002)

    def logs(self) -> str:
        """Return the standard error of all processes."""
        return "".join(file.read_text() for file in sorted(self.folder.glob("*.log")))

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        name = f"{arguments[0]}-{len(self._processes)}.log"
        with (self.folder / name).open("w") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                chaos_process.__file__,
                *arguments,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._processes.append(process)
        return process


@asynccontextmanager
async def chaos_site(folder: Path, url: str) -> AsyncGenerator[ChaosSite]:
    site = ChaosSite(folder, url)
    try:
        yield site
    finally:
        await site.end_all()


def caller(url: str, name: str, **options: Any) -> TaskClient:
    """Return a client that every server identifies by this name."""
    return TaskClient(lambda: _with_token(url, name), name=url, **options)


@asynccontextmanager
async def _with_token(url: str, name: str) -> AsyncGenerator[Any]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {name}"}, timeout=30, trust_env=False) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams
