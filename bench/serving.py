"""Processes to measure. Each says on its first line that it has started; a server says its port."""

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
    """Be a server, on a port that is free."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    # TCP by name: asyncio sends small packets at once only on a socket that says so.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        # Whoever connects from now on waits until the server has started.
        bound.listen()
        print(bound.getsockname()[1], flush=True)
        await server.serve(sockets=[bound])


class Started(NamedTuple):
    """A process that has started, and what it said."""

    pid: int
    said: str


@asynccontextmanager
async def started(command: Sequence[str], variables: Mapping[str, str] | None = None) -> AsyncGenerator[Started]:
    """A process, until the end of the context."""
    environment = os.environ | (variables or {})
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environment)
    try:
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode().strip()
        if not said:
            raise RuntimeError(f"{' '.join(command)} did not start: see its error above")
        yield Started(process.pid, said)
    finally:
        # It may have ended by itself, and has nothing that must be kept.
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def served(module: str, *words: str) -> AsyncGenerator[int]:
    """The port of a server of ours, while it is up."""
    async with started((sys.executable, "-m", module, *words)) as process:
        yield int(process.said)


def free_port() -> int:
    """A port for a server that can't report the one that it chose."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
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
