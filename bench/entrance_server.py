"""The server that is measured through each entrance: `raincheck serve bench.entrance_server:tasks`, or as a program.

`python -m bench.entrance_server uvicorn|mcp PORT` serves it with `uvicorn.run` or `mcp.run`.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount

from bench.wire.server import always, greet
from raincheck import Quota, Tasks

# No log line for each request: it costs the same everywhere, and hides the differences.
mcp = MCPServer("bench", log_level="WARNING")
# No quota: on stdio and on a Unix socket, all callers are one owner.
tasks = Tasks(mcp, "memory:", settings=replace(Tasks.DEFAULTS, quota=Quota()))
mcp.tool()(greet)
tasks.tool(mode="required")(always)


def mounted() -> Starlette:
    """Return an application like a user's own, with the server mounted in it."""
    app = mcp.streamable_http_app()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with mcp.session_manager.run():
            yield

    return Starlette(routes=[Mount("/", app)], lifespan=lifespan)


def main(entrance: str, port: str) -> None:
    # Printed after the imports, which take most of the time until the port is open.
    print("starts", flush=True)
    if entrance == "mcp":
        mcp.run("streamable-http", port=int(port))
    else:
        uvicorn.run(mounted(), port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
