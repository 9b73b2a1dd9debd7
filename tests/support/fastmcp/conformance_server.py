"""The tools of the conformance suites on a FastMCP server: `conformance_server.py (--port N | --stdio) --store URL`."""

# pyright: reportUnusedFunction=false
# (Decorators keep the tools; nothing calls them by name.)

import argparse
import asyncio
from typing import Any

from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
)
from pydantic import BaseModel

from fastmcp import Context, FastMCP
from raincheck import TaskContext, ToolError
from raincheck.fastmcp import Tasks


class Confirm(BaseModel):
    confirm: bool


class UserName(BaseModel):
    name: str


class AsksFirst(Middleware):
    """Asks the caller for input before the task is created, since middleware runs first."""

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        if context.message.name != "test_tool_with_task" or context.message.input_responses:
            return await call_next(context)
        params = ElicitRequestFormParams(message="Your name?", requested_schema=UserName.model_json_schema())
        return InputRequiredToolResult(InputRequiredResult(input_requests={"user": ElicitRequest(params=params)}))


def build(store: str) -> tuple[FastMCP[Any], Tasks]:
    mcp: FastMCP[Any] = FastMCP("conformance", middleware=[AsksFirst()])
    tasks = Tasks(mcp, store)

    @mcp.tool
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    @tasks.tool
    async def slow_compute(seconds: float, label: str, task: TaskContext) -> str:
        await task.sleep(seconds)
        return f"{label}: done after {seconds:g} s"

    @tasks.tool(mode="required")
    async def failing_job(task: TaskContext) -> str:
        await task.sleep(1)
        raise ToolError("this job always fails")

    @tasks.tool
    async def protocol_error_job() -> str:
        raise MCPError(code=INTERNAL_ERROR, message="the job broke down")

    @tasks.tool
    async def confirm_delete(filename: str, task: TaskContext) -> str:
        reply = await task.elicit(f"Delete {filename}?", Confirm)
        sure = reply.value is not None and reply.value.confirm
        return f"{filename} is deleted" if sure else f"{filename} is kept"

    @tasks.tool
    async def multi_input(task: TaskContext) -> str:
        user, sure = await asyncio.gather(
            task.elicit("What is your name?", UserName, name="first"),
            task.elicit("Are you sure?", Confirm, name="second"),
        )
        return f"user: {user.action} {user.content}, sure: {sure.action} {sure.content}"

    @tasks.tool
    async def summarize(text: str, task: TaskContext) -> str:
        message = {"role": "user", "content": {"type": "text", "text": f"Summarize: {text}"}}
        answer = CreateMessageResult.model_validate(await task.sample([message], maxTokens=100))
        return (
            answer.content.text
            if isinstance(answer.content, TextContent)
            else f"something that is {answer.content.type}"
        )

    @mcp.tool(task=True)
    async def count_up(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            await ctx.report_progress(number, to)
            await asyncio.sleep(0.3)
        return f"counted to {to}"

    @tasks.tool(mode="required")
    async def test_tool_with_task(ctx: Context) -> str:
        answer = (ctx.input_responses or {}).get("user")
        content = answer.content if isinstance(answer, ElicitResult) else None
        return f"Hello, {(content or {}).get('name')}! This was a task."

    return mcp, tasks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--store", default="memory:")
    options = parser.parse_args()
    mcp, _ = build(options.store)
    if options.port is None:
        mcp.run("stdio", show_banner=False, log_level="WARNING")
    else:
        mcp.run("http", port=options.port, show_banner=False, log_level="WARNING")


if __name__ == "__main__":
    main()
