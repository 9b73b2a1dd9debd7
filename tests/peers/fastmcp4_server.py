"""A server of FastMCP 4 with its own tasks (2026-07-28). Runs in its own environment.

`fastmcp4_server.py` serves on its standard streams; `fastmcp4_server.py --http` on a free port, which it prints first.
Tasks are stored in memory, or at the URL in the variable `DOCKET`: `redis://127.0.0.1:6379`.
"""
# Its tasks are not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false, reportUnknownParameterType=false

import asyncio
import logging
import os
import socket
import sys
import time
from datetime import timedelta

import uvicorn
from fastmcp.dependencies import Progress
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from fastmcp import Context, FastMCP

mcp = FastMCP("fastmcp4")
mcp.add_extension(TasksExtension(url=os.environ.get("DOCKET", "memory://")))

OPTIONAL = TaskConfig(poll_interval=timedelta(milliseconds=100))
REQUIRED = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=100))
SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


@mcp.tool(task=True)
async def greet(name: str) -> str:
    """A task with default settings."""
    return f"hello {name}"


@mcp.tool(task=OPTIONAL)
async def count(steps: int, progress: Progress = Progress()) -> str:  # noqa: B008 - the API of FastMCP
    await progress.set_total(steps)
    for step in range(steps):
        await progress.set_message(f"step {step + 1} of {steps}")
        await progress.increment()
        await asyncio.sleep(0.02)  # the work
    return f"counted to {steps}"


@mcp.tool(task=OPTIONAL)
async def fail(why: str) -> str:
    raise ToolError(why)


@mcp.tool(task=OPTIONAL)
async def crash(why: str) -> str:
    raise RuntimeError(why)


@mcp.tool(task=OPTIONAL)
async def ask(question: str, ctx: Context) -> str | InputRequiredResult:
    """Asks by returning an input request, and runs again from the start when the answer has arrived."""
    if not ctx.input_responses:
        request = ElicitRequest(params=ElicitRequestFormParams(message=question, requested_schema=SURE))
        return InputRequiredResult(input_requests={"sure": request})
    reply = ctx.input_responses["sure"]
    assert isinstance(reply, ElicitResult)
    return f"{reply.action} {reply.content}"


@mcp.tool(task=OPTIONAL)
async def wait() -> str:
    await asyncio.Event().wait()
    return "never"


@mcp.tool(task=True)
async def nap(seconds: float) -> str:
    """Returns the time at which it ended. It has the default poll interval."""
    await asyncio.sleep(seconds)
    return str(time.time())  # noqa: TID251 - compared with another process


@mcp.tool(task=REQUIRED)
async def always(name: str) -> str:
    return f"hello {name}"


@mcp.tool
async def plain(name: str) -> str:
    return f"hello {name}"


def serve_http() -> None:
    # With the protocol given, asyncio disables Nagle's algorithm, which would delay each response by 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    sys.stdout.write(f"{bound.getsockname()[1]}\n")  # from now on, connections wait in the socket's queue
    sys.stdout.flush()
    config = uvicorn.Config(mcp.http_app(path="/mcp"), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # the errors of tools are intended
    if "--http" in sys.argv:
        serve_http()
    else:
        mcp.run("stdio", show_banner=False)
