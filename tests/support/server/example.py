"""A server to call, with tools of every kind, and short times."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from typing import Any

from mcp.server.mcpserver import MCPServer

from raincheck import Settings, Tasks
from tests.support.server.caller_v2026 import Caller
from tests.support.server.transports import in_memory, over_http

QUICK = Settings(lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=0.5)
"""Short times, for tests that wait for them on the real clock."""


class Shop:
    """An `MCPServer` with tasks. Tools are added by the test, before it is opened."""

    def __init__(self, store: str | PathLike[str] = "memory:", **options: Any) -> None:
        self.mcp: MCPServer[Any] = MCPServer("shop", log_level="WARNING", **options.pop("server", {}))
        options.setdefault("settings", QUICK)
        self.tasks = Tasks(self.mcp, store, **options)

    @asynccontextmanager
    async def open(self, **caller: Any) -> AsyncGenerator[Caller]:
        """A caller, over streams in memory."""
        async with in_memory(self.mcp) as wire:
            yield Caller(wire, **caller)

    @asynccontextmanager
    async def open_http(self, **caller: Any) -> AsyncGenerator[Caller]:
        """A caller, over HTTP."""
        async with over_http(self.mcp.streamable_http_app()) as wire:
            yield Caller(wire, **caller)

    def open_by(self, way: str, **caller: Any) -> AbstractAsyncContextManager[Caller]:
        """A caller over one or the other: `open` or `open_http`."""
        return {"open": self.open, "open_http": self.open_http}[way](**caller)
