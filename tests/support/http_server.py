"""Run an ASGI application over real HTTP on a free port in this event loop."""

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
        self.should_stop = asyncio.Event()

    async def main_loop(self) -> None:
        # The original checks ten times a second whether it should stop.
        await self.should_stop.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@asynccontextmanager
async def running_app(app: ASGIApp, path: str = "/mcp", lifespan: Literal["on", "off"] = "on") -> AsyncGenerator[str]:
    """Serve the application, and yield its URL."""
    # Name TCP explicitly. Otherwise asyncio leaves Nagle's algorithm on, and each answer takes 40 ms longer.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    # Let the client close idle connections, which it does after 5 s. By default the server would close them at the same
    # time, sometimes just as the client writes to one, which then fails.
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
        server.should_stop.set()
        await serving
