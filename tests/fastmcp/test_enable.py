"""Existing tools of a FastMCP server become tasks by name, by pattern, or by FastMCP's own declaration."""

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
from tests.support.fastmcp.example_server import FastMCPExample
from tests.support.server.caller_v2026 import TASKS, Caller, Refused

pytestmark = pytest.mark.anyio


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_a_pattern_enables_exactly_the_tools_that_match() -> None:
    example = FastMCPExample()

    @example.mcp.tool
    async def export_year(year: int) -> str:
        return f"exported {year}"

    @example.mcp.tool
    def export_all() -> str:
        return "exported all"

    @example.mcp.tool
    async def look() -> str:
        return "looked"

    example.tasks.enable("export_*")
    async with example.open() as caller:
        assert text_of(await caller.result(await caller.start("export_year", {"year": 2026}))) == "exported 2026"
        assert text_of(await caller.result(await caller.start("export_all"))) == "exported all"
        assert text_of(await caller.call("look")) == "looked"
        assert text_of(await caller.call("export_nothing")) == "Unknown tool: 'export_nothing'"


async def test_an_enabled_tool_that_does_not_exist_is_logged_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    example = FastMCPExample()
    example.tasks.enable("export_*")
    with caplog.at_level(logging.WARNING, "raincheck"):
        async with example.tasks.running():
            pass
    assert "no tool matches 'export_*'" in caplog.text


async def test_tools_that_fastmcp_declares_as_tasks_are_enabled_automatically() -> None:
    example = FastMCPExample()

    @example.mcp.tool(task=True)
    async def may() -> str:
        return "may"

    @example.mcp.tool(task=TaskConfig(mode="required"))
    async def must() -> str:
        return "must"

    @example.mcp.tool(task=True)
    async def said_otherwise() -> str:
        return "said otherwise"

    example.tasks.enable("said_otherwise", mode="forbidden")
    async with example.open() as caller:
        assert text_of(await caller.result(await caller.start("may"))) == "may"
        assert text_of(await caller.result(await caller.start("must"))) == "must"
        assert text_of(await caller.call("said_otherwise")) == "said otherwise"
        plain = Caller(caller.transport, capabilities={})
        assert text_of(await plain.call("may")) == "may"
        with pytest.raises(Refused) as refused:
            await plain.call("must")
        assert refused.value.code == -32021


async def test_tools_added_changed_or_removed_at_run_time_are_the_ones_called() -> None:
    example = FastMCPExample()
    example.tasks.enable("export")
    async with example.open() as caller:
        assert text_of(await caller.call("export")) == "Unknown tool: 'export'"

        @example.mcp.tool(name="export")
        async def first() -> str:
            return "the first"

        assert text_of(await caller.result(await caller.start("export"))) == "the first"
        example.mcp.local_provider.remove_tool("export")

        @example.mcp.tool(name="export")
        async def second(year: int) -> str:
            return f"the second {year}"

        assert text_of(await caller.result(await caller.start("export", {"year": 1}))) == "the second 1"
        assert (await caller.call("export", {}))["isError"]
        example.mcp.local_provider.remove_tool("export")
        assert text_of(await caller.call("export")) == "Unknown tool: 'export'"


async def test_a_task_whose_tool_was_removed_fails_with_an_error_about_it() -> None:
    example = FastMCPExample()

    @example.mcp.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    example.tasks.enable("ask")
    async with example.open() as caller:
        task_id = await caller.start("ask")
        [key] = (await caller.until(task_id, "input_required"))["inputRequests"]
        # Its body waits for a while, in case that the answer comes soon.
        await example.tasks.engine.wait(TaskId(task_id), until=lambda task: task.phase is Phase.PARKED)
        example.mcp.local_provider.remove_tool("ask")
        await caller.update(task_id, {key: {"action": "accept", "content": {"value": True}}})
        result = await caller.result(task_id)
        assert result["isError"]
        assert "no longer exists" in text_of(result)


async def test_a_tool_added_at_run_time_is_listed_with_task_support() -> None:
    example = FastMCPExample()
    example.tasks.enable("export_*")
    async with example.open_2025() as caller:

        @example.mcp.tool
        async def export_year() -> str:
            return "exported"

        [tool] = [tool for tool in (await caller.request("tools/list"))["tools"] if tool["name"] == "export_year"]
        assert tool["execution"] == {"taskSupport": "optional"}


async def test_a_tool_of_the_server_replaces_a_fallback_tool_of_that_name() -> None:
    example = FastMCPExample()
    example.tasks.enable("export")
    async with example.open(capabilities={}) as caller:
        await caller.request("tools/list")  # it runs

        @example.mcp.tool
        async def task_wait() -> str:
            return "theirs"

        assert text_of(await caller.call("task_wait")) == "theirs"
        names = [tool["name"] for tool in (await caller.request("tools/list"))["tools"]]
        assert names.count("task_wait") == 1


async def test_tools_of_a_mounted_server_become_tasks_of_the_main_server() -> None:
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

    example = FastMCPExample()
    example.mcp.mount(child, namespace="math")
    example.tasks.enable("math_*")
    async with example.open() as caller:
        assert text_of(await caller.result(await caller.start("math_crunch", {"number": 3}))) == "3 in child"
        assert seen == ["crunch"]


async def test_a_tools_idempotency_hint_decides_whether_a_second_call_joins() -> None:
    example = FastMCPExample()
    runs: list[int] = []

    @example.mcp.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def once(number: int) -> int:
        runs.append(number)
        return number

    example.tasks.enable("once")
    async with example.open() as caller:
        ids = {await caller.start("once", {"number": 1}) for _ in range(2)}
        assert len(ids) == 1
        await caller.result(ids.pop())
        assert runs == [1]


async def test_a_requested_tool_version_is_called_by_fastmcp_without_a_task() -> None:
    example = FastMCPExample()
    for version in ("1", "2"):

        @example.mcp.tool(name="export", version=version)
        async def export(version: str = version) -> str:
            return version

    example.tasks.enable("export")
    async with example.open() as caller:
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


def guarded() -> tuple[FastMCPExample, Guard]:
    guard = Guard()
    example = FastMCPExample(server={"middleware": [guard]})

    @example.tasks.tool
    async def pay(amount: int, ctx: Context, checked: bool = False) -> str:
        return f"{amount} {checked} {ctx.input_responses is not None}"

    return example, guard


async def test_middleware_sees_a_call_once_before_the_task_is_created() -> None:
    example, guard = guarded()
    async with example.open() as caller:
        assert text_of(await caller.call("pay", {"amount": 1_000})) == "too much"
        assert (await example.tasks.engine.list_tasks()).tasks == ()
        assert text_of(await caller.result(await caller.start("pay", {"amount": 1}))) == "1 True False"
        assert len(guard.results) == 1


async def test_middleware_can_ask_before_the_task_and_the_task_sees_the_answer() -> None:
    example, _ = guarded()
    async with example.open() as caller:
        asked = await caller.call("pay", {"amount": 0})
        assert asked["resultType"] == "input_required"
        answers = {"amount": {"action": "accept", "content": {"amount": 5}}}
        created = await caller.call("pay", {"amount": 0}, inputResponses=answers)
        assert text_of(await caller.result(created["taskId"])) == "0 True True"


async def test_middleware_gets_fastmcps_result_type_where_the_caller_gets_a_result() -> None:
    example, guard = guarded()
    async with Client(example.lowlevel) as client:
        assert (await client.call_tool("pay", {"amount": 2})).structured_content == {"result": "2 True False"}
    [result] = guard.results
    assert isinstance(result, ToolResult)
    assert result.structured_content == {"result": "2 True False"}


async def test_middleware_that_looks_up_every_tool_does_not_block_fallback_tools() -> None:
    example = FastMCPExample(server={"middleware": [AuthMiddleware(auth=lambda ctx: ctx.component.name != "")]})

    @example.tasks.tool
    async def work() -> str:
        return "worked"

    async with example.serve() as transport:
        caller = Caller(transport, capabilities={})
        assert text_of(await caller.call("work")) == "worked"
        assert "task_wait" in [tool["name"] for tool in (await caller.request("tools/list"))["tools"]]
        assert "no task" in text_of(await caller.call("task_wait", {"task_id": "strange"})).lower()
        assert text_of(await Caller(transport, capabilities=TASKS).call("nothing"))
