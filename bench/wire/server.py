"""Our servers, each as a process: `python -m bench.wire.server floor|sdk|serve|take|work [STORE]`.

They have the same tools as the servers of tests/peers, and print their port. `floor` does only HTTP, so it is the limit
of this stack. `serve` also runs the tasks, as servers do by default; `take` leaves that to `work` processes.
"""

import asyncio
import json
import sys
import time

from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.owners import by_header
from bench.processes import serve
from raincheck import TaskContext, Tasks

_ANSWER = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"content": []}}).encode()
_SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


async def floor(scope: Scope, receive: Receive, send: Send) -> None:
    """Read a request, and send a constant response."""
    if scope["type"] == "lifespan":
        # Once for the startup, and once for the shutdown.
        for _ in range(2):
            await send({"type": f"{(await receive())['type']}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _ANSWER})


async def greet(name: str) -> str:
    return f"hello {name}"


async def always(name: str) -> str:
    return f"hello {name}"


async def wait() -> str:
    await asyncio.Event().wait()
    return "never"


async def nap(seconds: float) -> str:
    """Sleep, and return when it ended."""
    await asyncio.sleep(seconds)
    return str(time.time())  # noqa: TID251 - comparable between processes


async def ask(question: str, task: TaskContext) -> str:
    return (await task.elicit(question, _SURE)).action


def sdk() -> ASGIApp:
    """Serve the tool with the SDK alone."""
    mcp = _server()
    mcp.tool()(greet)
    return mcp.streamable_http_app()


def make_tasks(store: str, *, works: bool) -> Tasks:
    """Serve the tools with tasks: one with the automatic mode, and the others always as tasks."""
    tasks = Tasks(_server(), store, works=works, owner=by_header)
    tasks.tool()(greet)
    for tool in (always, wait, ask, nap):
        tasks.tool(mode="required")(tool)
    return tasks


def _server() -> MCPServer:
    # Without log lines for requests, whose cost is not part of the comparison.
    return MCPServer("bench", log_level="WARNING")


async def main(which: str, store: str = "memory:") -> None:
    match which:
        case "floor":
            await serve(floor)
        case "sdk":
            await serve(sdk())
        case "work":
            print("works", flush=True)
            await make_tasks(store, works=True).run_until_signal()
        case _:
            await serve(make_tasks(store, works=which == "serve").server.streamable_http_app())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
