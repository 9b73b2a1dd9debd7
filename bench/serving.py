"""Servers to measure, each in a process of its own that prints its port."""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


async def serve(app: ASGIApp) -> None:
    """Be such a server, on a port that is free."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    # TCP by name: asyncio sends small packets at once only on a socket that says so.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        # Whoever connects from now on waits until the server has started.
        bound.listen()
        print(bound.getsockname()[1], flush=True)
        await server.serve(sockets=[bound])


@asynccontextmanager
async def served(module: str, *words: str) -> AsyncGenerator[int]:
    """The port of such a server, while it is up."""
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words, stdout=PIPE)
    try:
        assert server.stdout is not None
        yield int(await server.stdout.readline())
    finally:
        server.terminate()
        await server.wait()
