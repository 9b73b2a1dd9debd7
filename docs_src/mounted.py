from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette

from raincheck import Tasks

mcp = MCPServer("mounted")
tasks = Tasks(mcp, "tasks.db")


@tasks.tool
async def greet(name: str) -> str:
    """Greet a person by name."""
    return f"Hello, {name}!"


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    async with mcp.session_manager.run():  # the server's lifespan, and so its tasks
        yield


app = Starlette(lifespan=lifespan)  # or FastAPI(lifespan=lifespan)
app.mount("/api", mcp.streamable_http_app())  # served at /api/mcp
