"""An application over real HTTP, on a free port, in this event loop."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import uvicorn
from starlette.types import ASGIApp


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self.is_to_stop = asyncio.Event()

    async def main_loop(self) -> None:
        # The original looks ten times a second whether it is to stop.
        await self.is_to_stop.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@asynccontextmanager
async def served(app: ASGIApp, path: str = "/mcp", lifespan: Literal["on", "off"] = "on") -> AsyncGenerator[str]:
    """Its URL, while it is served."""
    # Said to be TCP, or asyncio leaves Nagle's algorithm on, and each answer takes 40 ms longer.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    # Idle connections are left to the client to close, which does so after 5 s. By default this would close them then,
    # too, and now and then at the very moment when the other writes to one: which fails, and is nobody's fault.
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=1, timeout_keep_alive=600, lifespan=lifespan
    )
    server = _Uvicorn(config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    up = asyncio.create_task(server.is_up.wait())
    await asyncio.wait([up, serving], return_when=asyncio.FIRST_COMPLETED)
    assert server.is_up.is_set(), "the server did not start"
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}{path}"
    finally:
        server.is_to_stop.set()
        await serving
