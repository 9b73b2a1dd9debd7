"""The server whose grace window is measured, as a process: `python -m bench.grace_server STORE` prints its port.

It has one tool twice: as the SDK serves it, and as a task that is answered inline.
"""

import asyncio
import socket
import sys
from dataclasses import replace

import uvicorn
from mcp.server.mcpserver import MCPServer

from raincheck import Tasks

PLAIN, AS_TASK = "plain", "as_task"
WINDOW = 2


def make_server(store: str) -> MCPServer:
    # Quiet: what it costs to write a line of a log is the business of whoever wants to have it.
    mcp = MCPServer("bench", log_level="WARNING")
    # As many as it takes: a caller gets a thousand a minute otherwise.
    quota = replace(Tasks.DEFAULTS.quota, created=1_000_000)
    tasks = Tasks(mcp, store, settings=replace(Tasks.DEFAULTS, quota=quota))

    async def answer(number: int) -> str:
        return f"the number is {number}"

    mcp.tool(name=PLAIN)(answer)
    tasks.tool(name=AS_TASK, inline_for=WINDOW)(answer)
    return mcp


async def serve(store: str) -> None:
    app = make_server(store).streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    # TCP by name: asyncio sends small packets at once only on a socket that says so.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        # Whoever connects from now on waits until the server has started.
        bound.listen()
        print(bound.getsockname()[1], flush=True)
        await server.serve(sockets=[bound])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
