"""One server for all programs of a user, on a Unix socket: alone, or together with HTTP in one process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette

from raincheck import Tasks

mcp = MCPServer("reports")
tasks = Tasks(mcp, "tasks.db")


@tasks.tool
async def greet(name: str) -> str:
    """Greet a person by name."""
    return f"Hello, {name}!"


def serve() -> None:
    tasks.run_unix("reports.sock")  # until SIGTERM or SIGINT


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    async with mcp.session_manager.run(), anyio.create_task_group() as group:
        await group.start(tasks.serve_unix, "reports.sock")  # returns once it is listening
        yield
        group.cancel_scope.cancel()


app = Starlette(lifespan=lifespan)  # for uvicorn: both transports, and one engine
app.mount("/", mcp.streamable_http_app())


if __name__ == "__main__":
    serve()
