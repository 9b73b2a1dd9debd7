"""A FastMCP server for tests, with short intervals. The test adds tools before it opens the server."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from typing import Any

from mcp.server.lowlevel import Server

from fastmcp import FastMCP
from raincheck import Settings
from raincheck.fastmcp import Tasks
from raincheck.fastmcp.adapter import lowlevel_of
from tests.support.server.caller_v2025 import V2025Caller, connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.transports import HttpTransport, in_memory, over_http
from tests.support.server.transports_v2025 import V2025StreamTransport, v2025_http

QUICK = Settings(lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=0.5)


class FastMCPExample:
    """A `FastMCP` server with tasks."""

    def __init__(self, store: str | PathLike[str] = "memory:", **options: Any) -> None:
        self.mcp: FastMCP[Any] = FastMCP("shop", **options.pop("server", {}))
        options.setdefault("settings", QUICK)
        self.tasks = Tasks(self.mcp, store, **options)

    @property
    def lowlevel(self) -> Server[Any]:
        """The SDK's server, which the SDK's client can call in the same process."""
        return lowlevel_of(self.mcp)

    @asynccontextmanager
    async def open(self, **caller: Any) -> AsyncGenerator[Caller]:
        """Connect a caller of 2026 over in-memory streams."""
        async with in_memory(self.lowlevel) as transport:
            yield Caller(transport, **caller)

    def serve(self) -> AbstractAsyncContextManager[HttpTransport]:
        """Serve HTTP, for any number of callers."""
        return over_http(self.mcp.http_app())

    @asynccontextmanager
    async def open_2025(self, **options: Any) -> AsyncGenerator[V2025Caller]:
        """Connect a caller of 2025 over in-memory streams."""
        async with (
            in_memory(self.lowlevel) as transport,
            connected(V2025StreamTransport(transport), **options) as caller,
        ):
            yield caller

    @asynccontextmanager
    async def open_2025_http(self, **options: Any) -> AsyncGenerator[V2025Caller]:
        """Connect a caller of 2025 over HTTP, with the standalone stream of notifications."""
        async with self.serve() as serving, v2025_http(serving) as http, connected(http, **options) as caller:
            await http.listen()
            yield caller
