"""The servers, each as a process: `python -m bench.wire.server floor|sdk|raincheck [STORE]` prints its port.

They have the same tool. The floor does no more than HTTP: nobody who speaks it on this stack is faster.
"""

import asyncio
import json
import sys
from dataclasses import replace

from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.serving import serve
from bench.wire.requests import TOOL
from raincheck import Tasks

_ANSWER = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"content": []}}).encode()


async def floor(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a request, and answers always the same."""
    if scope["type"] == "lifespan":
        # Once for the beginning, and once for the end.
        for _ in range(2):
            await send({"type": f"{(await receive())['type']}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _ANSWER})


async def answer(number: int) -> str:
    return f"the number is {number}"


def sdk() -> ASGIApp:
    """The tool as the SDK serves it."""
    mcp = _server()
    mcp.tool(name=TOOL)(answer)
    return mcp.streamable_http_app()


def raincheck(store: str) -> ASGIApp:
    """The same as a task, whose handle is given at once."""
    mcp = _server()
    # As many as it takes: a caller gets a thousand a minute otherwise.
    quota = replace(Tasks.DEFAULTS.quota, created=10_000_000, live=10_000_000)
    tasks = Tasks(mcp, store, settings=replace(Tasks.DEFAULTS, quota=quota))
    tasks.tool(name=TOOL, inline_for=0)(answer)
    return mcp.streamable_http_app()


def _server() -> MCPServer:
    # Quiet: what it costs to write a line of a log is the business of whoever wants to have it.
    return MCPServer("bench", log_level="WARNING")


def main(which: str, *rest: str) -> None:
    match which:
        case "floor":
            app: ASGIApp = floor
        case "sdk":
            app = sdk()
        case _:
            app = raincheck(*rest)
    asyncio.run(serve(app))


if __name__ == "__main__":
    main(*sys.argv[1:])
