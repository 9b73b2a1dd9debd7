"""Functions that become tools of a FastMCP server: what they are given, and what becomes of what they return."""

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
from tests.support.fastmcp.example_server import FastShop
from tests.support.fastmcp.isolated_functions import add_apart
from tests.support.server.caller_v2026 import Refused

pytestmark = pytest.mark.anyio


AT_ONCE = RetryPolicy(attempts=2, first_wait=timedelta(0), max_wait=timedelta(0), jitter=0)


def rate() -> float:
    return 1.5


class Sure(BaseModel):
    sure: bool


async def test_a_function_is_given_what_fastmcp_injects_and_its_task() -> None:
    shop = FastShop()

    @shop.tasks.tool(title="Convert", tags={"money"})
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

    async with shop.open() as caller:
        listed = next(tool for tool in (await caller.request("tools/list"))["tools"] if tool["name"] == "convert")
        assert listed["title"] == "Convert"
        assert listed["description"] == "Convert money."
        assert listed["inputSchema"]["properties"] == {"amount": {"description": "How much.", "type": "number"}}
        result = await caller.result(await caller.start("convert", {"amount": 2}))
        assert result["structuredContent"] == {"result": "3.0 for True"}


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    shop = FastShop()

    @shop.tasks.tool
    def where(task: SyncTaskContext) -> list[str]:
        task.progress(1, 2, "looking")
        return [threading.current_thread().name, task.id]

    async with shop.open() as caller:
        task_id = await caller.start("where")
        result = (await caller.result(task_id))["structuredContent"]["result"]
        assert result[0] != threading.main_thread().name
        assert result[1] == task_id


async def test_a_function_can_run_in_a_process_of_its_own() -> None:
    shop = FastShop()
    shop.tasks.tool(isolation="process")(add_apart)
    async with shop.open() as caller:
        result = await caller.result(await caller.start("add_apart", {"a": 1, "b": 2}))
        assert result["structuredContent"]["sum"] == 3
        assert result["structuredContent"]["process"] != os.getpid()


async def test_a_function_in_a_process_of_its_own_takes_nothing_of_the_server() -> None:
    async def needs_server(ctx: Context) -> str:
        return ctx.request_id

    with pytest.raises(ConfigurationError, match="nothing that FastMCP injects"):
        FastShop().tasks.tool(isolation="process")(needs_server)


async def test_arguments_are_read_as_fastmcp_reads_them_before_there_is_a_task() -> None:
    shop = FastShop()

    @shop.tasks.tool
    async def double(number: int) -> int:
        return number * 2

    async with shop.open() as caller:
        assert (await caller.result(await caller.start("double", {"number": "4"})))["structuredContent"] == {
            "result": 8
        }
        refused = await caller.call("double", {"number": "four"})
        assert refused["isError"]
        assert "number" in refused["content"][0]["text"]
        assert (await caller.call("double", {"numbr": 4}))["isError"]
    async with shop.open_2025() as caller:
        with pytest.raises(Refused, match="number") as error:
            await caller.create("double", {"number": "four"})
        assert error.value.code == -32602


async def test_a_server_that_reads_arguments_strictly_does_so_for_tasks_too() -> None:
    shop = FastShop(server={"strict_input_validation": True})

    @shop.tasks.tool
    async def double(number: int) -> int:
        return number * 2

    async with shop.open() as caller:
        assert (await caller.call("double", {"number": "4"}))["isError"]
        assert (await caller.result(await caller.start("double", {"number": 4})))["structuredContent"] == {"result": 8}


async def test_what_a_tool_says_on_purpose_is_its_answer_and_a_crash_is_not_told() -> None:
    shop = FastShop()
    tries: list[int] = []

    @shop.tasks.tool
    async def refuse() -> str:
        raise FastToolError("there is no paper")

    @shop.tasks.tool(retry=AT_ONCE)
    async def crash() -> str:
        tries.append(1)
        raise RuntimeError("the password is 1234")

    @shop.tasks.tool
    async def protest() -> str:
        raise MCPError(-32050, "not like that", {"why": "because"})

    async with shop.open() as caller:
        task = await caller.until(await caller.start("refuse"))
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert task["result"]["content"][0]["text"] == "there is no paper"
        task = await caller.until(await caller.start("crash"))
        assert (task["status"], len(tries)) == ("failed", 2)
        assert "1234" not in str(task)
        task = await caller.until(await caller.start("protest"))
        assert task["error"] == {"code": -32050, "message": "not like that", "data": {"why": "because"}}


async def test_a_tool_that_asks_by_returning_asks_through_its_task() -> None:
    shop = FastShop()

    @shop.tasks.tool
    async def ask(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            params = ElicitRequestFormParams(message="Sure?", requested_schema=Sure.model_json_schema())
            return InputRequiredResult(input_requests={"sure": ElicitRequest(params=params)}, request_state="asked")
        reply = ctx.input_responses["sure"]
        assert isinstance(reply, ElicitResult)
        return f"{ctx.request_state} {reply.action}"

    async with shop.open() as caller:
        task_id = await caller.start("ask")
        task = await caller.until(task_id, "input_required")
        [key] = task["inputRequests"]
        await caller.update(task_id, {key: {"action": "decline"}})
        assert (await caller.result(task_id))["structuredContent"] == {"result": "asked decline"}


async def test_what_the_servers_lifespan_made_is_there_in_a_task() -> None:
    @asynccontextmanager
    async def lifespan(_: FastMCP[Any]) -> AsyncGenerator[dict[str, str]]:
        yield {"database": "open"}

    shop = FastShop(server={"lifespan": lifespan})

    @shop.tasks.tool
    async def look(ctx: Context) -> str:
        return ctx.lifespan_context["database"]

    async with shop.open() as caller:
        assert (await caller.result(await caller.start("look")))["structuredContent"] == {"result": "open"}


async def test_what_the_whole_server_shares_is_shared_with_its_tasks() -> None:
    shop = FastShop()
    made: list[int] = []

    def connect() -> int:
        made.append(1)
        return len(made)

    @shop.mcp.tool
    async def in_a_call(connection: int = Shared(connect)) -> int:
        return connection

    @shop.tasks.tool
    async def in_a_task(connection: int = Shared(connect)) -> int:
        return connection

    async with shop.open() as caller:
        assert (await caller.call("in_a_call"))["structuredContent"] == {"result": 1}
        for _ in range(2):
            assert (await caller.result(await caller.start("in_a_task")))["structuredContent"] == {"result": 1}


async def test_state_that_a_body_keeps_is_its_tasks_own_and_survives_an_attempt() -> None:
    shop = FastShop()

    @shop.tasks.tool(retry=AT_ONCE)
    async def remember(ctx: Context) -> str:
        kept = await ctx.get_state("seen")
        if kept is None:
            await ctx.set_state("seen", "before")
            raise RuntimeError
        return kept

    async with shop.open() as caller:
        for _ in range(2):
            assert (await caller.result(await caller.start("remember")))["structuredContent"] == {"result": "before"}


async def test_the_program_itself_calls_such_a_tool_and_waits_for_its_task() -> None:
    shop = FastShop()
    ids: list[str] = []

    @shop.tasks.tool
    async def inner(number: int, task: TaskContext) -> int:
        ids.append(task.id)
        if number < 0:
            raise FastToolError("not below nothing")
        return number + 1

    @shop.mcp.tool
    async def same(number: int) -> int:
        return number

    @shop.mcp.tool
    async def outer(number: int, ctx: Context) -> int:
        await ctx.fastmcp.call_tool("same", {"number": number})
        result = await ctx.fastmcp.call_tool("inner", {"number": number})
        return (result.structured_content or {})["result"]

    async with shop.open() as caller:
        assert (await caller.call("outer", {"number": 1}))["structuredContent"] == {"result": 2}
        view = await shop.tasks.engine.view(ids[0])
        assert (view.task.tool.name, view.task.status) == ("inner", "completed")
        result = await caller.call("outer", {"number": -1})
        assert (result["isError"], result["content"][0]["text"]) == (True, "not below nothing")
        result = await shop.mcp.call_tool("inner", {"number": 5})
        assert result.structured_content == {"result": 6}


async def test_a_task_calls_another_by_spawning_it_and_in_no_other_way() -> None:
    shop = FastShop()

    @shop.tasks.tool
    async def inner() -> int:
        return 1

    @shop.tasks.tool(retry=RetryPolicy(attempts=1))
    async def calls(ctx: Context) -> str:
        try:
            await ctx.fastmcp.call_tool("inner", {})
        except ConfigurationError as error:
            return str(error)
        return "it did"

    @shop.tasks.tool
    async def spawns(task: TaskContext) -> str:
        child = await task.spawn("inner", {})
        return f"{await child.result()} of a child"

    async with shop.open() as caller:
        result = await caller.result(await caller.start("calls"))
        assert "task.spawn" in result["structuredContent"]["result"]
        assert (await caller.result(await caller.start("spawns")))["structuredContent"] == {"result": "1 of a child"}


async def test_a_function_that_needs_a_task_says_so_where_there_is_none() -> None:
    shop = FastShop()

    @shop.tasks.tool
    async def lonely() -> None:
        await asyncio.sleep(0)

    tool = await shop.mcp.get_tool("lonely")
    assert tool is not None
    with pytest.raises(ConfigurationError, match="runs only as a task"):
        await tool.run({})
