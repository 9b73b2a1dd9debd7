"""A FastMCP server to call, with short times. Tools are added by the test, before it is opened."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from typing import Any

from mcp.server.lowlevel import Server

from fastmcp import FastMCP
from raincheck import Settings
from raincheck.fastmcp import Tasks
from raincheck.fastmcp.body import lowlevel_of
from tests.support.server.caller_v2025 import G1Caller, connected
from tests.support.server.caller_v2026 import Caller
from tests.support.server.transports import HttpWire, in_memory, over_http
from tests.support.server.transports_v2025 import G1StreamWire, g1_http

QUICK = Settings(lease=1.0, park_after=0.05, grace=0.2, progress_interval=0.02, poll_interval=0.5)


class FastShop:
    """A `FastMCP` server with tasks."""

    def __init__(self, store: str | PathLike[str] = "memory:", **options: Any) -> None:
        self.mcp: FastMCP[Any] = FastMCP("shop", **options.pop("server", {}))
        options.setdefault("settings", QUICK)
        self.tasks = Tasks(self.mcp, store, **options)

    @property
    def lowlevel(self) -> Server[Any]:
        """What the SDK's own client can call in the same process."""
        return lowlevel_of(self.mcp)

    @asynccontextmanager
    async def open(self, **caller: Any) -> AsyncGenerator[Caller]:
        """A caller of 2026, over streams in memory."""
        async with in_memory(self.lowlevel) as wire:
            yield Caller(wire, **caller)

    def serve(self) -> AbstractAsyncContextManager[HttpWire]:
        """The server over HTTP, for as many callers as one likes."""
        return over_http(self.mcp.http_app())

    @asynccontextmanager
    async def open_2025(self, **options: Any) -> AsyncGenerator[G1Caller]:
        """A caller of 2025, over streams in memory."""
        async with in_memory(self.lowlevel) as wire, connected(G1StreamWire(wire), **options) as caller:
            yield caller

    @asynccontextmanager
    async def open_2025_http(self, **options: Any) -> AsyncGenerator[G1Caller]:
        """The same over HTTP, with the stream that is nobody's answer."""
        async with self.serve() as serving, g1_http(serving) as http, connected(http, **options) as caller:
            await http.listen()
            yield caller
