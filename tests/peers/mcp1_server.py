"""A server of the `mcp` SDK 1.x with its experimental tasks (2025-11-25). Runs in its own environment.

`mcp1_server.py` serves on its standard streams; `mcp1_server.py --http` on a free port, which it prints first.
"""
# This SDK is not the one that the types are checked with.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportUntypedFunctionDecorator=false, reportCallIssue=false, reportDeprecated=false

import logging
import socket
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, CreateTaskResult, TextContent, Tool, ToolExecution
from starlette.applications import Starlette
from starlette.routing import Mount

server: Server = Server("mcp1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this server uses the deprecated API
    server.experimental.enable_tasks()

SCHEMAS: dict[str, dict[str, Any]] = {
    "greet": {"name": {"type": "string"}},
    "count": {"steps": {"type": "integer"}},
    "fail": {"why": {"type": "string"}},
    "crash": {"why": {"type": "string"}},
    "ask": {"question": {"type": "string"}},
    "wait": {},
    "nap": {"seconds": {"type": "number"}},
    "always": {"name": {"type": "string"}},
    "plain": {"name": {"type": "string"}},
}
SUPPORT = {"always": "required", "plain": "forbidden"}
SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


@server.list_tools()
async def list_tools() -> list[Tool]:
    return [
        Tool(
            name=name,
            description=f"The tool {name}.",
            inputSchema={"type": "object", "properties": properties, "required": list(properties)},
            # The default is to declare nothing.
            execution=None if name == "plain" else ToolExecution(taskSupport=SUPPORT.get(name, "optional")),
        )
        for name, properties in SCHEMAS.items()
    ]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult | CreateTaskResult:
    ctx = server.request_context
    ctx.experimental.validate_task_mode(SUPPORT.get(name, "optional"))
    if not ctx.experimental.is_task:
        return await run(name, arguments, None, _report_nothing)
    token = ctx.meta.progressToken if ctx.meta else None

    async def work(task: ServerTaskContext) -> CallToolResult:
        async def report(done: int, total: int) -> None:
            await task.update_status(f"step {done} of {total}")
            if token is not None:
                await ctx.session.send_progress_notification(token, done, total, f"step {done} of {total}")

        return await run(name, arguments, task, report)

    return await ctx.experimental.run_task(work, model_immediate_response=f"{name} is under way")


async def run(
    name: str,
    arguments: dict[str, Any],
    task: ServerTaskContext | None,
    report: Callable[[int, int], Awaitable[None]],
) -> CallToolResult:
    """Run a tool, as a task or not."""
    match name:
        case "greet" | "always" | "plain":
            return text(f"hello {arguments['name']}", structured={"result": f"hello {arguments['name']}"})
        case "count":
            for step in range(arguments["steps"]):
                await report(step + 1, arguments["steps"])
                await anyio.sleep(0.02)  # the work
            return text(f"counted to {arguments['steps']}")
        case "fail":
            return text(arguments["why"], is_error=True)
        case "crash":
            raise RuntimeError(arguments["why"])
        case "ask":
            reply = await ask(task, arguments["question"])
            return text(f"{reply.action} {reply.content}")
        case "wait":
            await anyio.sleep_forever()
            return text("never")
        case "nap":
            await anyio.sleep(arguments["seconds"])
            ended = str(time.time())  # noqa: TID251 - compared with another process
            return text(ended, structured={"result": ended})
        case _:
            raise ValueError(f"there is no tool {name}")


async def ask(task: ServerTaskContext | None, question: str) -> Any:
    if task is None:
        return await server.request_context.session.elicit(question, SURE)
    return await task.elicit(question, SURE)


async def _report_nothing(_done: int, _total: int) -> None:
    """Report nothing, since the call is not a task."""


def text(content: str, *, structured: dict[str, Any] | None = None, is_error: bool = False) -> CallToolResult:
    blocks = [TextContent(type="text", text=content)]
    return CallToolResult(content=blocks, structuredContent=structured, isError=is_error)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http() -> None:
    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/", app=manager.handle_request)], lifespan=lifespan)
    # With the protocol given, asyncio disables Nagle's algorithm, which would delay each response by 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    sys.stdout.write(f"{bound.getsockname()[1]}\n")  # from now on, connections wait in the socket's queue
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run(sockets=[bound])


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # it logs disconnected clients and its own deprecation
    if "--http" in sys.argv:
        serve_http()
    else:
        anyio.run(serve_stdio)
