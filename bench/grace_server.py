"""The server whose grace window is measured, as a process: `python -m bench.grace_server STORE` prints its port.

It has one tool twice: as the SDK serves it, and as a task that is answered inline.
"""

import asyncio
import sys
from dataclasses import replace

from mcp.server.mcpserver import MCPServer

from bench.serving import serve
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


if __name__ == "__main__":
    asyncio.run(serve(make_server(sys.argv[1]).streamable_http_app()))
