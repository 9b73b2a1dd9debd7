"""Tasks in a larger web application."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount

from raincheck import Tasks

mcp = MCPServer("mounted")
tasks = Tasks(mcp, "memory:")


@tasks.tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:  # noqa: ARG001 - Starlette gives it
    async with mcp.session_manager.run():  # the server's lifespan, and so its tasks
        yield


def make_app() -> Starlette:
    return Starlette(routes=[Mount("/api", app=mcp.streamable_http_app())], lifespan=lifespan)  # at /api/mcp
