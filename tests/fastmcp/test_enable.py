"""Tools that a FastMCP server has already become tasks: by name, by pattern, or by what its own decorator says."""

import logging
from typing import Any

import pytest
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.server.middleware.authorization import AuthMiddleware
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.utilities.tasks import TaskConfig
from mcp.client import Client
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ToolAnnotations,
)

from fastmcp import Context, FastMCP
from raincheck.core.lifecycle import Phase
from raincheck.core.records import TaskId
from tests.support.fastmcp.example_server import FastShop
from tests.support.server.caller_v2026 import TASKS, Caller, Refused

pytestmark = pytest.mark.anyio


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_a_pattern_makes_tasks_of_all_tools_that_fit_and_of_no_others() -> None:
    shop = FastShop()

    @shop.mcp.tool
    async def export_year(year: int) -> str:
        return f"exported {year}"

    @shop.mcp.tool
    def export_all() -> str:
        return "exported all"

    @shop.mcp.tool
    async def look() -> str:
        return "looked"

    shop.tasks.enable("export_*")
    async with shop.open() as caller:
        assert text_of(await caller.result(await caller.start("export_year", {"year": 2026}))) == "exported 2026"
        assert text_of(await caller.result(await caller.start("export_all"))) == "exported all"
        assert text_of(await caller.call("look")) == "looked"
        assert text_of(await caller.call("export_nothing")) == "Unknown tool: 'export_nothing'"


async def test_what_is_enabled_and_not_there_is_logged_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    shop = FastShop()
    shop.tasks.enable("export_*")
    with caplog.at_level(logging.WARNING, "raincheck"):
        async with shop.tasks.running():
            pass
    assert "no tool is called 'export_*'" in caplog.text


async def test_tools_that_fastmcp_calls_tasks_are_tasks_without_a_word_more() -> None:
    shop = FastShop()

    @shop.mcp.tool(task=True)
    async def may() -> str:
        return "may"

    @shop.mcp.tool(task=TaskConfig(mode="required"))
    async def must() -> str:
        return "must"

    @shop.mcp.tool(task=True)
    async def said_otherwise() -> str:
        return "said otherwise"

    shop.tasks.enable("said_otherwise", mode="forbidden")
    async with shop.open() as caller:
        assert text_of(await caller.result(await caller.start("may"))) == "may"
        assert text_of(await caller.result(await caller.start("must"))) == "must"
        assert text_of(await caller.call("said_otherwise")) == "said otherwise"
        plain = Caller(caller.wire, capabilities={})
        assert text_of(await plain.call("may")) == "may"
        with pytest.raises(Refused) as refused:
            await plain.call("must")
        assert refused.value.code == -32021


async def test_a_tool_that_comes_goes_or_changes_while_the_server_runs_is_the_one_that_is_called() -> None:
    shop = FastShop()
    shop.tasks.enable("export")
    async with shop.open() as caller:
        assert text_of(await caller.call("export")) == "Unknown tool: 'export'"

        @shop.mcp.tool(name="export")
        async def first() -> str:
            return "the first"

        assert text_of(await caller.result(await caller.start("export"))) == "the first"
        shop.mcp.local_provider.remove_tool("export")

        @shop.mcp.tool(name="export")
        async def second(year: int) -> str:
            return f"the second {year}"

        assert text_of(await caller.result(await caller.start("export", {"year": 1}))) == "the second 1"
        assert (await caller.call("export", {}))["isError"]
        shop.mcp.local_provider.remove_tool("export")
        assert text_of(await caller.call("export")) == "Unknown tool: 'export'"


async def test_a_task_whose_tool_is_gone_by_the_time_it_goes_on_says_so() -> None:
    shop = FastShop()

    @shop.mcp.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    shop.tasks.enable("ask")
    async with shop.open() as caller:
        task_id = await caller.start("ask")
        [key] = (await caller.until(task_id, "input_required"))["inputRequests"]
        # Its body waits for a while, in case that the answer comes soon.
        await shop.tasks.engine.wait(TaskId(task_id), until=lambda task: task.phase is Phase.PARKED)
        shop.mcp.local_provider.remove_tool("ask")
        await caller.update(task_id, {key: {"action": "accept", "content": {"value": True}}})
        result = await caller.result(task_id)
        assert result["isError"]
        assert "not there any more" in text_of(result)


async def test_a_tool_that_comes_while_the_server_runs_is_listed_as_one_that_may_be_a_task() -> None:
    shop = FastShop()
    shop.tasks.enable("export_*")
    async with shop.open_2025() as caller:

        @shop.mcp.tool
        async def export_year() -> str:
            return "exported"

        [tool] = [tool for tool in (await caller.request("tools/list"))["tools"] if tool["name"] == "export_year"]
        assert tool["execution"] == {"taskSupport": "optional"}


async def test_a_tool_of_the_servers_own_takes_the_place_of_one_of_ours() -> None:
    shop = FastShop()
    shop.tasks.enable("export")
    async with shop.open(capabilities={}) as caller:
        await caller.request("tools/list")  # it runs

        @shop.mcp.tool
        async def task_wait() -> str:
            return "theirs"

        assert text_of(await caller.call("task_wait")) == "theirs"
        names = [tool["name"] for tool in (await caller.request("tools/list"))["tools"]]
        assert names.count("task_wait") == 1


async def test_tools_of_a_mounted_server_become_tasks_of_the_one_that_is_run() -> None:
    child: FastMCP[Any] = FastMCP("child")
    seen: list[str] = []

    class Sees(Middleware):
        async def on_call_tool(
            self,
            context: MiddlewareContext[CallToolRequestParams],
            call_next: CallNext[CallToolRequestParams, ToolResult],
        ) -> ToolResult:
            seen.append(context.message.name)
            return await call_next(context)

    child.add_middleware(Sees())

    @child.tool
    async def crunch(number: int, ctx: Context) -> str:
        await ctx.report_progress(1, 1, "crunching")
        return f"{number} in {ctx.fastmcp.name}"

    shop = FastShop()
    shop.mcp.mount(child, namespace="math")
    shop.tasks.enable("math_*")
    async with shop.open() as caller:
        assert text_of(await caller.result(await caller.start("math_crunch", {"number": 3}))) == "3 in child"
        assert seen == ["crunch"]


async def test_what_a_tool_says_of_itself_decides_what_happens_to_a_second_call() -> None:
    shop = FastShop()
    runs: list[int] = []

    @shop.mcp.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def once(number: int) -> int:
        runs.append(number)
        return number

    shop.tasks.enable("once")
    async with shop.open() as caller:
        ids = {await caller.start("once", {"number": 1}) for _ in range(2)}
        assert len(ids) == 1
        await caller.result(ids.pop())
        assert runs == [1]


async def test_a_version_that_a_caller_names_is_called_as_fastmcp_would() -> None:
    shop = FastShop()
    for version in ("1", "2"):

        @shop.mcp.tool(name="export", version=version)
        async def export(version: str = version) -> str:
            return version

    shop.tasks.enable("export")
    async with shop.open() as caller:
        assert text_of(await caller.result(await caller.start("export"))) == "2"
        assert text_of(await caller.call("export", meta={"fastmcp": {"version": "1"}})) == "1"


class Guard(Middleware):
    """Refuses, changes or asks about calls, before there is a task."""

    def __init__(self) -> None:
        self.results: list[object] = []

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        arguments = context.message.arguments or {}
        if arguments.get("amount", 0) > 100:
            return ToolResult("too much", is_error=True)
        if arguments.get("amount") == 0 and not context.message.input_responses:
            schema: dict[str, Any] = {"type": "object", "properties": {"amount": {"type": "integer"}}}
            asked = ElicitRequest(params=ElicitRequestFormParams(message="How much?", requested_schema=schema))
            return InputRequiredToolResult(InputRequiredResult(input_requests={"amount": asked}))
        changed = context.message.model_copy(update={"arguments": {**arguments, "checked": True}})
        result = await call_next(context.copy(message=changed))
        self.results.append(result)
        return result


def guarded() -> tuple[FastShop, Guard]:
    guard = Guard()
    shop = FastShop(server={"middleware": [guard]})

    @shop.tasks.tool
    async def pay(amount: int, ctx: Context, checked: bool = False) -> str:
        return f"{amount} {checked} {ctx.input_responses is not None}"

    return shop, guard


async def test_middleware_sees_a_call_once_before_there_is_a_task() -> None:
    shop, guard = guarded()
    async with shop.open() as caller:
        assert text_of(await caller.call("pay", {"amount": 1_000})) == "too much"
        assert (await shop.tasks.engine.list_tasks()).tasks == ()
        assert text_of(await caller.result(await caller.start("pay", {"amount": 1}))) == "1 True False"
        assert len(guard.results) == 1


async def test_middleware_asks_before_there_is_a_task_and_the_task_knows_the_answer() -> None:
    shop, _ = guarded()
    async with shop.open() as caller:
        asked = await caller.call("pay", {"amount": 0})
        assert asked["resultType"] == "input_required"
        answers = {"amount": {"action": "accept", "content": {"amount": 5}}}
        created = await caller.call("pay", {"amount": 0}, inputResponses=answers)
        assert text_of(await caller.result(created["taskId"])) == "0 True True"


async def test_middleware_gets_a_result_of_fastmcps_own_where_the_caller_gets_one() -> None:
    shop, guard = guarded()
    async with Client(shop.lowlevel) as client:
        assert (await client.call_tool("pay", {"amount": 2})).structured_content == {"result": "2 True False"}
    [result] = guard.results
    assert isinstance(result, ToolResult)
    assert result.structured_content == {"result": "2 True False"}


async def test_middleware_that_looks_for_every_tool_does_not_stand_before_ours() -> None:
    shop = FastShop(server={"middleware": [AuthMiddleware(auth=lambda ctx: ctx.component.name != "")]})

    @shop.tasks.tool
    async def work() -> str:
        return "worked"

    async with shop.serve() as wire:
        caller = Caller(wire, capabilities={})
        assert text_of(await caller.call("work")) == "worked"
        assert "task_wait" in [tool["name"] for tool in (await caller.request("tools/list"))["tools"]]
        assert "no task" in text_of(await caller.call("task_wait", {"task_id": "strange"})).lower()
        assert text_of(await Caller(wire, capabilities=TASKS).call("nothing"))
