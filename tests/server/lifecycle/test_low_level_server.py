"""Tasks on a low-level server, whose handlers define its tools."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from raincheck import RetryPolicy, Tasks
from raincheck.errors import ConfigurationError
from tests.support.server.caller_v2026 import EXTENSION, TASKS, Caller, Refused
from tests.support.server.example import QUICK
from tests.support.server.transports import in_memory, over_http

pytestmark = pytest.mark.anyio

AnyContext = ServerRequestContext[Any, Any]

CONFIRM = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Sure?", requested_schema={"type": "object", "properties": {"sure": {"type": "boolean"}}}
    )
)


def text(words: object) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=str(words))])


async def call_tool(ctx: AnyContext, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    arguments = params.arguments or {}
    match params.name:
        case "add":
            return text(arguments["a"] + arguments["b"])
        case "state":
            await ctx.session.report_progress(1, 2, "looking")
            return text(ctx.lifespan_context["database"])
        case "elicit":
            answer = await ctx.session.elicit_form("Sure?", {"type": "object", "properties": {}})
            return text(answer.action)
        case "rounds":
            if params.input_responses is None:
                return InputRequiredResult(input_requests={"sure": CONFIRM}, request_state="half-way")
            answer = params.input_responses["sure"]
            return text(f"{params.request_state} {getattr(answer, 'content', None)}")
        case "fail":
            return CallToolResult(content=[TextContent(text="no")], is_error=True)
        case "break":
            raise MCPError(-32050, "closed", {"until": "Monday"})
        case "crash":
            raise OSError("secret")
        case _:
            raise MCPError(-32602, f"Unknown tool: {params.name}")


async def list_tools(_: AnyContext, __: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="add", input_schema={"type": "object"})])


@asynccontextmanager
async def lifespan(_: Server[Any]) -> AsyncGenerator[dict[str, str]]:
    yield {"database": "open"}


def build(store: str | Path = "memory:") -> tuple[Server[Any], Tasks]:
    server: Server[Any] = Server("low", lifespan=lifespan, on_call_tool=call_tool, on_list_tools=list_tools)
    return server, Tasks(server, store, settings=QUICK)


@asynccontextmanager
async def served(*names: str, store: str | Path = "memory:", **caller: Any) -> AsyncGenerator[Caller]:
    server, tasks = build(store)
    for name in names:
        tasks.enable(name)
    async with in_memory(server) as transport:
        yield Caller(transport, **caller)


async def test_a_tool_of_a_low_level_server_is_a_task_when_it_is_enabled() -> None:
    async with served("add") as caller:
        assert (await caller.request("server/discover"))["capabilities"]["extensions"] == {EXTENSION: {}}
        result = await caller.result(await caller.start("add", {"a": 1, "b": 2}))
        assert result["content"][0]["text"] == "3"


async def test_a_low_level_server_serves_tasks_over_http() -> None:
    server, tasks = build()
    tasks.enable("add")
    async with over_http(server.streamable_http_app()) as transport:
        caller = Caller(transport)
        assert (await caller.result(await caller.start("add", {"a": 1, "b": 2})))["content"][0]["text"] == "3"


async def test_a_tool_that_is_not_enabled_is_called_as_without_raincheck() -> None:
    async with served("state") as caller:
        assert (await caller.call("add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"


async def test_a_handler_gets_the_lifespan_state_and_may_report_progress() -> None:
    async with served("state") as caller:
        task_id = await caller.start("state")
        assert (await caller.result(task_id))["content"][0]["text"] == "open"


async def test_a_caller_without_tasks_gets_the_result() -> None:
    async with served("add", capabilities={}) as caller:
        assert (await caller.call("add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"


async def test_a_handler_asks_through_the_task() -> None:
    async with served("elicit") as caller:
        task_id = await caller.start("elicit")
        asked = await caller.until(task_id, "input_required")
        assert asked["inputRequests"]["elicit-0"]["params"]["message"] == "Sure?"
        await caller.update(task_id, {"elicit-0": {"action": "decline"}})
        assert (await caller.result(task_id))["content"][0]["text"] == "decline"


async def test_rounds_of_a_handler_become_questions_of_the_task() -> None:
    async with served("rounds") as caller:
        task_id = await caller.start("rounds")
        asked = await caller.until(task_id, "input_required")
        (key,) = asked["inputRequests"]
        await caller.update(task_id, {key: {"action": "accept", "content": {"sure": True}}})
        assert (await caller.result(task_id))["content"][0]["text"] == "half-way {'sure': True}"


async def test_an_answer_that_was_given_to_a_handler_is_not_asked_for_again_after_a_restart(tmp_path: Path) -> None:
    async with served("rounds", store=tmp_path / "tasks.db") as caller:
        task_id = await caller.start("rounds")
        (key,) = (await caller.until(task_id, "input_required"))["inputRequests"]
    async with served("rounds", store=tmp_path / "tasks.db") as caller:
        assert (await caller.get(task_id))["status"] == "input_required"
        await caller.update(task_id, {key: {"action": "accept", "content": {"sure": False}}})
        assert (await caller.result(task_id))["content"][0]["text"] == "half-way {'sure': False}"


async def test_errors_of_a_handler_reach_the_caller_unchanged() -> None:
    async with served("fail", "break", "crash") as caller:
        failed = await caller.result(await caller.start("fail"))
        assert (failed["isError"], failed["content"][0]["text"]) == (True, "no")
        broken = await caller.until(await caller.start("break"))
        assert broken["error"] == {"code": -32050, "message": "closed", "data": {"until": "Monday"}}


async def test_the_crash_of_a_handler_is_not_revealed() -> None:
    server, tasks = build()
    tasks.enable("crash", retry=RetryPolicy(attempts=1))
    async with in_memory(server) as transport:
        caller = Caller(transport)
        task = await caller.until(await caller.start("crash"))
        assert task["status"] == "failed"
        assert "secret" not in str(task)


async def test_an_unknown_tool_gets_the_servers_own_error() -> None:
    async with served("missing") as caller:
        task = await caller.until(await caller.start("missing"))
        assert task["error"]["message"] == "Unknown tool: missing"
    async with served() as caller:
        with pytest.raises(Refused, match="Unknown tool: missing"):
            await caller.call("missing")


async def test_required_and_forbidden_count_for_tools_of_low_level_servers() -> None:
    server, tasks = build()
    tasks.enable("add", mode="required")
    tasks.enable("state", mode="forbidden")
    async with in_memory(server) as transport:
        with pytest.raises(Refused) as refused:
            await Caller(transport, capabilities={}).call("add", {"a": 1, "b": 2})
        assert refused.value.code == -32021
        answer = await Caller(transport, capabilities=TASKS).call("state")
        assert (answer["resultType"], answer["content"][0]["text"]) == ("complete", "open")


def test_a_pattern_is_refused_for_a_low_level_server() -> None:
    _, tasks = build()
    with pytest.raises(ConfigurationError, match="does not report its tools: enable each by its name"):
        tasks.enable("a*")


def test_a_low_level_server_has_no_tool_decorator() -> None:
    _, tasks = build()
    with pytest.raises(ConfigurationError, match="serve this tool there, and pass its name to enable"):
        tasks.tool(name="another")(lambda: 1)


def test_a_low_level_server_without_tools_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_call_tool to it before"):
        Tasks(Server("empty"), "memory:")


async def test_other_calls_on_the_connection_are_served_while_a_task_runs() -> None:
    gate = asyncio.Event()

    async def wait(ctx: AnyContext, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        if params.name == "wait":
            await gate.wait()
        return await call_tool(ctx, params.model_copy(update={"name": "add"}))

    server: Server[Any] = Server("low", on_call_tool=wait)
    Tasks(server, "memory:", settings=QUICK).enable("wait")
    async with in_memory(server) as transport:
        fallback_caller = Caller(transport, capabilities={})
        waiting = asyncio.create_task(fallback_caller.call("wait", {"a": 1, "b": 1}))
        assert (await fallback_caller.call("add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"
        gate.set()
        assert (await waiting)["content"][0]["text"] == "2"
