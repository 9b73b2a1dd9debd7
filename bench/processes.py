"""Start processes to measure. Each prints a first line when it has started; a server prints its port."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp


async def serve(app: ASGIApp) -> None:
    """Serve an application on a free port."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    # With an explicit protocol: asyncio disables Nagle's algorithm only on such sockets.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        # Clients that connect from now on wait until the server has started.
        bound.listen()
        print(bound.getsockname()[1], flush=True)
        await server.serve(sockets=[bound])


class StartedProcess(NamedTuple):
    """A process that has started, and its first line of output."""

    pid: int
    first_line: str


@asynccontextmanager
async def started(command: Sequence[str], variables: Mapping[str, str] | None = None) -> AsyncGenerator[StartedProcess]:
    """Run a process until the end of the context."""
    environment = os.environ | (variables or {})
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environment)
    try:
        assert process.stdout is not None
        first_line = (await process.stdout.readline()).decode().strip()
        if not first_line:
            raise RuntimeError(f"{' '.join(command)} did not start: see its error above")
        yield StartedProcess(process.pid, first_line)
    finally:
        # It may have ended by itself. It has no data to save, so it is killed.
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def served(module: str, *arguments: str) -> AsyncGenerator[int]:
    """Run one of our servers, and yield its port."""
    async with started((sys.executable, "-m", module, *arguments)) as process:
        yield int(process.first_line)


def free_port() -> int:
    """Return a free port, for a server that can't report the port that it chose."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


async def until_open(port: int) -> None:
    """Wait until a server accepts connections at the port."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
