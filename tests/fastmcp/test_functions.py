"""Functions as tools of a FastMCP server: their parameters, results and errors."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import pytest
from fastmcp.dependencies import CurrentFastMCP, Depends, Shared
from fastmcp.exceptions import ToolError as FastToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field

from fastmcp import Context, FastMCP
from raincheck import RetryPolicy, SyncTaskContext, TaskContext
from raincheck.errors import ConfigurationError
from tests.support.fastmcp.example_server import FastMCPExample
from tests.support.fastmcp.isolated_functions import add_apart
from tests.support.server.caller_v2026 import Refused

pytestmark = pytest.mark.anyio


AT_ONCE = RetryPolicy(attempts=2, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)


def rate() -> float:
    return 1.5


class Sure(BaseModel):
    sure: bool


async def test_a_function_gets_fastmcps_injected_parameters_and_its_task() -> None:
    example = FastMCPExample()

    @example.tasks.tool(title="Convert", tags={"money"})
    async def convert(
        amount: Annotated[float, Field(description="How much.")],
        ctx: Context,
        task: TaskContext,
        by: float = Depends(rate),
        server: FastMCP[Any] = CurrentFastMCP(),  # noqa: B008 - that is how it is asked for
    ) -> str:
        """Convert money."""
        assert ctx.fastmcp is server
        await ctx.info("converting")
        return f"{amount * by} for {ctx.request_id == task.id}"

    async with example.open() as caller:
        listed = next(tool for tool in (await caller.request("tools/list"))["tools"] if tool["name"] == "convert")
        assert listed["title"] == "Convert"
        assert listed["description"] == "Convert money."
        assert listed["inputSchema"]["properties"] == {"amount": {"description": "How much.", "type": "number"}}
        result = await caller.result(await caller.start("convert", {"amount": 2}))
        assert result["structuredContent"] == {"result": "3.0 for True"}


async def test_a_sync_function_runs_in_its_own_thread() -> None:
    example = FastMCPExample()

    @example.tasks.tool
    def where(task: SyncTaskContext) -> list[str]:
        task.progress(1, 2, "looking")
        return [threading.current_thread().name, task.id]

    async with example.open() as caller:
        task_id = await caller.start("where")
        result = (await caller.result(task_id))["structuredContent"]["result"]
        assert result[0] != threading.main_thread().name
        assert result[1] == task_id


async def test_a_function_can_run_in_its_own_process() -> None:
    example = FastMCPExample()
    example.tasks.tool(isolation="process")(add_apart)
    async with example.open() as caller:
        result = await caller.result(await caller.start("add_apart", {"a": 1, "b": 2}))
        assert result["structuredContent"]["sum"] == 3
        assert result["structuredContent"]["process"] != os.getpid()


async def test_an_isolated_function_gets_no_injected_parameters() -> None:
    async def needs_server(ctx: Context) -> str:
        return ctx.request_id

    with pytest.raises(ConfigurationError, match="no parameters that FastMCP injects"):
        FastMCPExample().tasks.tool(isolation="process")(needs_server)


async def test_arguments_are_validated_as_fastmcp_does_before_the_task_is_created() -> None:
    example = FastMCPExample()

    @example.tasks.tool
    async def double(number: int) -> int:
        return number * 2

    async with example.open() as caller:
        assert (await caller.result(await caller.start("double", {"number": "4"})))["structuredContent"] == {
            "result": 8
        }
        refused = await caller.call("double", {"number": "four"})
        assert refused["isError"]
        assert "number" in refused["content"][0]["text"]
        assert (await caller.call("double", {"numbr": 4}))["isError"]
    async with example.open_2025() as caller:
        with pytest.raises(Refused, match="number") as error:
            await caller.create("double", {"number": "four"})
        assert error.value.code == -32602


async def test_strict_input_validation_applies_to_tasks_too() -> None:
    example = FastMCPExample(server={"strict_input_validation": True})

    @example.tasks.tool
    async def double(number: int) -> int:
        return number * 2

    async with example.open() as caller:
        assert (await caller.call("double", {"number": "4"}))["isError"]
        assert (await caller.result(await caller.start("double", {"number": 4})))["structuredContent"] == {"result": 8}


async def test_a_tool_error_is_reported_and_the_message_of_a_crash_is_not() -> None:
    example = FastMCPExample()
    tries: list[int] = []

    @example.tasks.tool
    async def refuse() -> str:
        raise FastToolError("there is no paper")

    @example.tasks.tool(retry=AT_ONCE)
    async def crash() -> str:
        tries.append(1)
        raise RuntimeError("the password is 1234")

    @example.tasks.tool
    async def protest() -> str:
        raise MCPError(-32050, "not like that", {"why": "because"})

    async with example.open() as caller:
        task = await caller.until(await caller.start("refuse"))
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert task["result"]["content"][0]["text"] == "there is no paper"
        task = await caller.until(await caller.start("crash"))
        assert (task["status"], len(tries)) == ("failed", 2)
        assert "1234" not in str(task)
        task = await caller.until(await caller.start("protest"))
        assert task["error"] == {"code": -32050, "message": "not like that", "data": {"why": "because"}}


async def test_a_returned_input_request_is_asked_through_the_task() -> None:
    example = FastMCPExample()

    @example.tasks.tool
    async def ask(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            params = ElicitRequestFormParams(message="Sure?", requested_schema=Sure.model_json_schema())
            return InputRequiredResult(input_requests={"sure": ElicitRequest(params=params)}, request_state="asked")
        reply = ctx.input_responses["sure"]
        assert isinstance(reply, ElicitResult)
        return f"{ctx.request_state} {reply.action}"

    async with example.open() as caller:
        task_id = await caller.start("ask")
        task = await caller.until(task_id, "input_required")
        [key] = task["inputRequests"]
        await caller.update(task_id, {key: {"action": "decline"}})
        assert (await caller.result(task_id))["structuredContent"] == {"result": "asked decline"}


async def test_the_servers_lifespan_context_is_available_in_a_task() -> None:
    @asynccontextmanager
    async def lifespan(_: FastMCP[Any]) -> AsyncGenerator[dict[str, str]]:
        yield {"database": "open"}

    example = FastMCPExample(server={"lifespan": lifespan})

    @example.tasks.tool
    async def look(ctx: Context) -> str:
        return ctx.lifespan_context["database"]

    async with example.open() as caller:
        assert (await caller.result(await caller.start("look")))["structuredContent"] == {"result": "open"}


async def test_shared_dependencies_of_the_server_are_shared_with_its_tasks() -> None:
    example = FastMCPExample()
    made: list[int] = []

    def connect() -> int:
        made.append(1)
        return len(made)

    @example.mcp.tool
    async def in_a_call(connection: int = Shared(connect)) -> int:
        return connection

    @example.tasks.tool
    async def in_a_task(connection: int = Shared(connect)) -> int:
        return connection

    async with example.open() as caller:
        assert (await caller.call("in_a_call"))["structuredContent"] == {"result": 1}
        for _ in range(2):
            assert (await caller.result(await caller.start("in_a_task")))["structuredContent"] == {"result": 1}


async def test_context_state_belongs_to_the_task_and_survives_an_attempt() -> None:
    example = FastMCPExample()

    @example.tasks.tool(retry=AT_ONCE)
    async def remember(ctx: Context) -> str:
        stored = await ctx.get_state("seen")
        if stored is None:
            await ctx.set_state("seen", "before")
            raise RuntimeError
        return stored

    async with example.open() as caller:
        for _ in range(2):
            assert (await caller.result(await caller.start("remember")))["structuredContent"] == {"result": "before"}


async def test_the_servers_program_can_call_a_tool_and_waits_for_its_task() -> None:
    example = FastMCPExample()
    ids: list[str] = []

    @example.tasks.tool
    async def inner(number: int, task: TaskContext) -> int:
        ids.append(task.id)
        if number < 0:
            raise FastToolError("not below nothing")
        return number + 1

    @example.mcp.tool
    async def same(number: int) -> int:
        return number

    @example.mcp.tool
    async def outer(number: int, ctx: Context) -> int:
        await ctx.fastmcp.call_tool("same", {"number": number})
        result = await ctx.fastmcp.call_tool("inner", {"number": number})
        return (result.structured_content or {})["result"]

    async with example.open() as caller:
        assert (await caller.call("outer", {"number": 1}))["structuredContent"] == {"result": 2}
        view = await example.tasks.engine.view(ids[0])
        assert (view.task.tool.name, view.task.status) == ("inner", "completed")
        result = await caller.call("outer", {"number": -1})
        assert (result["isError"], result["content"][0]["text"]) == (True, "not below nothing")
        result = await example.mcp.call_tool("inner", {"number": 5})
        assert result.structured_content == {"result": 6}


async def test_a_task_can_only_spawn_another_task_and_not_call_it() -> None:
    example = FastMCPExample()

    @example.tasks.tool
    async def inner() -> int:
        return 1

    @example.tasks.tool(retry=RetryPolicy(attempts=1))
    async def calls(ctx: Context) -> str:
        try:
            await ctx.fastmcp.call_tool("inner", {})
        except ConfigurationError as error:
            return str(error)
        return "it did"

    @example.tasks.tool
    async def spawns(task: TaskContext) -> str:
        child = await task.spawn("inner", {})
        return f"{await child.result()} of a child"

    async with example.open() as caller:
        result = await caller.result(await caller.start("calls"))
        assert "task.spawn" in result["structuredContent"]["result"]
        assert (await caller.result(await caller.start("spawns")))["structuredContent"] == {"result": "1 of a child"}


async def test_calling_a_function_that_needs_a_task_directly_is_an_error() -> None:
    example = FastMCPExample()

    @example.tasks.tool
    async def lonely() -> None:
        await asyncio.sleep(0)

    tool = await example.mcp.get_tool("lonely")
    assert tool is not None
    with pytest.raises(ConfigurationError, match="runs only as a task"):
        await tool.run({})
