"""The server process of `bench.inline_window`: `python -m bench.inline_window_server STORE` prints its port.

It has one tool twice: as the SDK serves it, and as a task that is answered inline.
"""

import asyncio
import sys
from dataclasses import replace

from mcp.server.mcpserver import MCPServer

from bench.processes import serve
from raincheck import Tasks

PLAIN, AS_TASK = "plain", "as_task"
WINDOW = 2


def make_server(store: str) -> MCPServer:
    # Without log lines for requests, whose cost is not part of the comparison.
    mcp = MCPServer("bench", log_level="WARNING")
    # The default quota of a thousand tasks a minute would limit the measurement.
    quota = replace(Tasks.DEFAULTS.quota, created=1_000_000)
    tasks = Tasks(mcp, store, settings=replace(Tasks.DEFAULTS, quota=quota))

    async def answer(number: int) -> str:
        return f"the number is {number}"

    mcp.tool(name=PLAIN)(answer)
    tasks.tool(name=AS_TASK, inline_for=WINDOW)(answer)
    return mcp


if __name__ == "__main__":
    asyncio.run(serve(make_server(sys.argv[1]).streamable_http_app()))
