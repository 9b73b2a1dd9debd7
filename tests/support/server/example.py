"""An example server with tasks and short intervals, whose tools each test adds."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

from mcp.server.mcpserver import MCPServer

from raincheck import Settings, Tasks
from tests.support.server.caller_v2026 import Caller
from tests.support.server.transports import in_memory, over_http

QUICK = Settings(lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=0.5)
"""Short intervals, for tests that wait on the real clock."""

LONG_LEASE = replace(QUICK, lease=86_400, progress_interval=0, park_after=86_400)
"""Neither leases nor parking times expire when a test advances the clock, and progress is reported without a delay."""


class ExampleServer:
    """An `MCPServer` with tasks. The test adds tools before it opens it."""

    def __init__(self, store: str | PathLike[str] = "memory:", **options: Any) -> None:
        self.mcp: MCPServer[Any] = MCPServer("shop", log_level="WARNING", **options.pop("server", {}))
        options.setdefault("settings", QUICK)
        self.tasks = Tasks(self.mcp, store, **options)

    @asynccontextmanager
    async def open(self, **caller: Any) -> AsyncGenerator[Caller]:
        """Yield a caller over streams in memory."""
        async with in_memory(self.mcp) as transport:
            yield Caller(transport, **caller)

    @asynccontextmanager
    async def open_http(self, **caller: Any) -> AsyncGenerator[Caller]:
        """Yield a caller over HTTP."""
        async with over_http(self.mcp.streamable_http_app()) as transport:
            yield Caller(transport, **caller)

    def open_by(self, way: str, **caller: Any) -> AbstractAsyncContextManager[Caller]:
        """Return the context of a caller over either transport: `open` or `open_http`."""
        return {"open": self.open, "open_http": self.open_http}[way](**caller)
