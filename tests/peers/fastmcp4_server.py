"""A server of FastMCP 4 with its own tasks (2026-07-28). Runs in an environment of its own.

`fastmcp4_server.py` serves on its standard streams; `fastmcp4_server.py --http` on a free port, which it prints first.
Tasks are kept in memory, or where the variable `DOCKET` says: `redis://127.0.0.1:6379`.
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
    """As tasks are without any setting."""
    return f"hello {name}"


@mcp.tool(task=OPTIONAL)
async def count(steps: int, progress: Progress = Progress()) -> str:  # noqa: B008 - that is how it is asked for
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
    """In a task, it asks by returning, and runs from its beginning when the answer has come."""
    if not ctx.input_responses:
        asked = ElicitRequest(params=ElicitRequestFormParams(message=question, requested_schema=SURE))
        return InputRequiredResult(input_requests={"sure": asked})
    reply = ctx.input_responses["sure"]
    assert isinstance(reply, ElicitResult)
    return f"{reply.action} {reply.content}"


@mcp.tool(task=OPTIONAL)
async def wait() -> str:
    await asyncio.Event().wait()
    return "never"


@mcp.tool(task=True)
async def nap(seconds: float) -> str:
    """Says when it ended. It is polled as often as is said without any setting."""
    await asyncio.sleep(seconds)
    return str(time.time())  # noqa: TID251 - what another process can compare with its own


@mcp.tool(task=REQUIRED)
async def always(name: str) -> str:
    return f"hello {name}"


@mcp.tool
async def plain(name: str) -> str:
    return f"hello {name}"


def serve_http() -> None:
    # Said to be TCP, or asyncio leaves Nagle's algorithm on, and each answer takes 40 ms longer.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    sys.stdout.write(f"{bound.getsockname()[1]}\n")  # whoever comes from now on waits in the socket's queue
    sys.stdout.flush()
    config = uvicorn.Config(mcp.http_app(path="/mcp"), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # that a tool raises is meant
    if "--http" in sys.argv:
        serve_http()
    else:
        mcp.run("stdio", show_banner=False)
