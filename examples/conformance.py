"""A server for the official conformance suite: `python examples/conformance.py [--port N | --unix PATH] [--store URL]`.

Its tools are those that the suite's `tasks-*` scenarios call, and one that reports its progress. Together they show
what a task can do: run for a while, fail in both ways, ask the user one or several questions, and ask before the call
becomes a task. Run the suite against it with Node 22 or newer, and the name of a scenario, such as `tasks-lifecycle`:

    npx @modelcontextprotocol/conformance@0.2.0-alpha.12 server --url http://127.0.0.1:8000/mcp --scenario NAME
"""

# pyright: reportUnusedFunction=false
# (Decorators register the tools; nothing calls them by name.)

import argparse
import asyncio
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CreateMessageResult, TextContent
from pydantic import BaseModel

from raincheck import TaskContext, Tasks, ToolError


class Confirm(BaseModel):
    """The form that the user fills in before a file is deleted."""

    confirm: bool


class UserName(BaseModel):
    """The form with the name of the user."""

    name: str


def ask_name() -> Elicit[UserName]:
    """Ask before the tool is called, when there is no task yet that could ask."""
    return Elicit("What is your name?", UserName)


def build(store: str | None = None) -> tuple[MCPServer, Tasks]:
    """Return the server and its tasks, stored in `store`: a URL or a path, or `None` for the default file."""
    mcp = MCPServer("conformance")
    tasks = Tasks(mcp, store)

    @mcp.tool()
    def greet(name: str) -> str:
        """Greet a person by name. An ordinary tool, which is never a task."""
        return f"Hello, {name}!"

    @tasks.tool()
    async def slow_compute(seconds: float, label: str, task: TaskContext) -> str:
        """Run for some time. A client that declares the tasks extension gets a task, every other client waits."""
        await task.sleep(seconds)
        return f"{label}: done after {seconds:g} s"

    @tasks.tool(mode="required")
    async def failing_job(task: TaskContext) -> str:
        """Fail with a tool error: the task is completed, and its result has isError."""
        await task.sleep(1)
        raise ToolError("this job always fails")

    @tasks.tool()
    async def protocol_error_job() -> str:
        """Fail with a protocol error: the task is failed, with this error."""
        raise MCPError(code=INTERNAL_ERROR, message="the job broke down")

    @tasks.tool()
    async def confirm_delete(filename: str, task: TaskContext) -> str:
        """Ask the user. Meanwhile the task is `input_required`, and occupies no worker."""
        reply = await task.elicit(f"Delete {filename}?", Confirm)
        sure = reply.value is not None and reply.value.confirm
        return f"{filename} is deleted" if sure else f"{filename} is kept"

    @tasks.tool()
    async def multi_input(task: TaskContext) -> str:
        """Ask two questions at once, which can be answered in either order, together or one by one."""
        user, sure = await asyncio.gather(
            task.elicit("What is your name?", UserName, name="first"),
            task.elicit("Are you sure?", Confirm, name="second"),
        )
        return f"user: {user.action} {user.content}, sure: {sure.action} {sure.content}"

    @tasks.tool()
    async def summarize(text: str, task: TaskContext) -> str:
        """Ask the client's model. The official suite does not call this tool."""
        message = {"role": "user", "content": {"type": "text", "text": f"Summarize: {text}"}}
        reply = CreateMessageResult.model_validate(await task.sample([message], maxTokens=100))
        return reply.content.text if isinstance(reply.content, TextContent) else f"no text, but {reply.content.type}"

    @tasks.tool()
    async def count_up(to: int, task: TaskContext) -> str:
        """Report progress. The official suite does not call this tool."""
        for number in range(1, to + 1):
            await task.progress(number, to)
            await task.sleep(0.3)
        return f"counted to {to}"

    @tasks.tool(mode="required")
    async def test_tool_with_task(user: Annotated[UserName, Resolve(ask_name)], task: TaskContext) -> str:
        """Ask first, and become a task once the answer has arrived."""
        await task.status(f"working for {user.name}")
        return f"Hello, {user.name}! This was a task."

    return mcp, tasks


def main() -> None:
    """Serve until a signal stops the process."""
    parser = argparse.ArgumentParser(description="A server for the official conformance suite of MCP tasks.")
    parser.add_argument("--port", type=int, default=8000, help="for HTTP")
    parser.add_argument("--store", help="a URL or a path, such as memory: or tasks.db")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--transport", choices=["http", "stdio"], default="http")
    where.add_argument("--unix", metavar="PATH", help="serve on a Unix socket")
    options = parser.parse_args(namespace=Options())
    mcp, tasks = build(options.store)
    if options.unix is not None:
        tasks.run_unix(options.unix)
    elif options.transport == "stdio":
        mcp.run("stdio")
    else:
        mcp.run("streamable-http", port=options.port)


class Options(argparse.Namespace):
    """The options of the command line."""

    port: int
    store: str | None
    transport: Literal["http", "stdio"]
    unix: str | None


if __name__ == "__main__":
    main()
