"""`tasks/result` of 2025-11-25: exactly the result of the call, with a reference to its task."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

from raincheck import RetryPolicy, TaskContext, Tasks
from tests.server.lifecycle.test_low_level_server import call_tool, lifespan, list_tools
from tests.support.server.caller_v2025 import RELATED, V2025Caller, connected, v2025_caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, run_sql, text_of
from tests.support.server.transports import Message
from tests.support.server.transports_v2025 import v2025_memory
from tests.support.server.v2025.result_tools import RESULT_TOOLS, TOOLS_WITHOUT_V2025_FORM, tool_error
from tests.support.server.v2025.tools import ON_ALL_V2025_TRANSPORTS, ON_V2025_TRANSPORTS, add_echo, ended, refusal

pytestmark = pytest.mark.anyio


def without_task(answer: Message) -> Message:
    """An answer without the reference to its task, and without the fields of the one request."""
    fields = {name: value for name, value in answer.items() if name not in ("id", "jsonrpc")}
    meta = fields.get("result", {}).get("_meta", {})
    if RELATED in meta:
        other_meta = {name: value for name, value in meta.items() if name != RELATED}
        fields["result"] = {name: value for name, value in fields["result"].items() if name != "_meta"}
        if other_meta:
            fields["result"]["_meta"] = other_meta
    return fields


async def answer_to(caller: V2025Caller, tool: str) -> Message:
    """The answer to a call without a task."""
    return without_task(await (await caller.begin("tools/call", {"name": tool, "arguments": {}})).received)


async def answer_of(caller: V2025Caller, tool: str) -> Message:
    """The result of a call as a task."""
    task_id = await caller.start(tool)
    return without_task(await (await caller.begin("tasks/result", {"taskId": task_id})).received)


@asynccontextmanager
async def bare() -> AsyncGenerator[V2025Caller]:
    """A server of the SDK alone, with the same tools."""
    mcp = MCPServer("bare", log_level="CRITICAL")
    for tool in RESULT_TOOLS:
        mcp.tool()(tool)
    async with v2025_memory(mcp) as transport, connected(transport) as caller:
        yield caller


@pytest.mark.requirement(
    "v2025-result-is-the-calls",
    "v2025-result-error-is-the-calls",
    "v2025-result-names-task",
    "v2025-result-of-terminal",
)
@pytest.mark.parametrize("how", ["served", "enabled"])
async def test_the_result_of_a_task_is_what_a_call_without_a_task_returns(how: str) -> None:
    server = ExampleServer()
    for tool in RESULT_TOOLS:
        if how == "served":
            server.tasks.tool(tool)
        else:
            server.mcp.tool()(tool)
    if how == "enabled":
        server.tasks.enable("*")
    async with v2025_caller(server) as caller, bare() as sdk:
        for tool in RESULT_TOOLS:
            name = tool.__name__
            as_task = await answer_of(caller, name)
            assert as_task == await answer_to(caller, name), name
            if (how, tool) != ("served", tool_error):
                # Here it is its own text, without the SDK's prefix.
                assert as_task == await answer_to(sdk, name), name


async def test_structured_content_that_is_not_an_object_is_omitted_because_the_content_has_it() -> None:
    """The SDK has no answer at all to such a call in that version."""
    server = ExampleServer()
    for tool in TOOLS_WITHOUT_V2025_FORM:
        server.tasks.tool(tool)
    async with v2025_caller(server) as caller:
        for tool, text in zip(TOOLS_WITHOUT_V2025_FORM, ("[1]", "x"), strict=True):
            result = await caller.result(await caller.start(tool.__name__))
            assert text_of(result) == text
            assert "structuredContent" not in result


async def test_a_result_over_http_is_the_same_as_in_memory() -> None:
    shops = [ExampleServer(), ExampleServer()]
    for server in shops:
        for tool in RESULT_TOOLS:
            server.tasks.tool(tool)
    async with v2025_caller(shops[0]) as caller, v2025_caller(shops[1], "http") as over_http:
        for tool in RESULT_TOOLS:
            assert await answer_of(caller, tool.__name__) == await answer_of(over_http, tool.__name__)


@pytest.mark.requirement("v2025-result-is-the-calls", "v2025-result-error-is-the-calls")
async def test_the_result_of_a_low_level_server_is_what_its_handler_returns() -> None:
    def make() -> Server[Any]:
        return Server("shop", on_call_tool=call_tool, on_list_tools=list_tools, lifespan=lifespan)

    served = make()
    tasks = Tasks(served, "memory:", settings=QUICK)
    for tool in ("state", "fail", "break"):
        tasks.enable(tool)
    async with (
        v2025_memory(served) as transport,
        v2025_memory(make()) as bare_wire,
        connected(transport) as caller,
        connected(bare_wire) as sdk,
    ):
        for tool in ("state", "fail", "break"):
            assert await answer_of(caller, tool) == await answer_to(caller, tool) == await answer_to(sdk, tool)


@pytest.mark.requirement("v2025-result-is-the-calls")
async def test_a_crash_is_reported_as_in_a_call_without_a_task_and_hides_the_cause() -> None:
    server = ExampleServer()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> str:
        raise RuntimeError("postgres://admin:hunter2@db")

    async with v2025_caller(server) as caller:
        answers = [await answer_of(caller, "crash"), await answer_to(caller, "crash")]
        for one in answers:
            assert one["result"]["isError"] is True
            assert "hunter2" not in str(one)
        task, plain = [text_of(one["result"]) for one in answers]
        # Each has its own error id, by which the operator finds it.
        assert task.split()[:3] == plain.split()[:3]


@pytest.mark.requirement("v2025-result-names-task", "v2025-related-everywhere")
@ON_ALL_V2025_TRANSPORTS
async def test_a_result_names_its_task_beside_the_tools_own_metadata(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def tell() -> CallToolResult:
        meta = {RELATED: {"taskId": "another's"}, "example.com/kept": 1}
        return CallToolResult.model_validate({"content": [], "_meta": meta})

    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("tell")
        result = await caller.result(task_id)
        assert result["_meta"] == {RELATED: {"taskId": task_id}, "example.com/kept": 1}


@pytest.mark.requirement("v2025-result-of-terminal")
@ON_V2025_TRANSPORTS
async def test_a_result_can_be_fetched_any_number_of_times(way: str) -> None:
    server = ExampleServer()
    runs: list[int] = []

    @server.tasks.tool()
    async def run() -> str:
        runs.append(1)
        return "ran"

    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("run")
        first = await caller.result(task_id)
        assert [await caller.result(task_id) for _ in range(3)] == [first] * 3
        assert runs == [1]


async def test_the_result_of_a_task_that_another_process_completed_is_available_after_a_restart(tmp_path: Path) -> None:
    def make() -> ExampleServer:
        server = ExampleServer(tmp_path / "tasks.db")
        add_echo(server)
        return server

    async with v2025_caller(make()) as caller:
        task_id = await caller.start("say", {"words": "kept"})
        result = await caller.result(task_id)
    async with v2025_caller(make()) as caller:
        assert await caller.result(task_id) == result
        assert (await caller.get(task_id))["status"] == "completed"


async def test_a_task_that_ran_when_its_server_stopped_resumes_in_the_next_server(tmp_path: Path) -> None:
    first, second = ExampleServer(tmp_path / "tasks.db"), ExampleServer(tmp_path / "tasks.db")
    gate = add_gated(first)
    add_gated(second).open.set()
    async with v2025_caller(first) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
    async with v2025_caller(second) as caller:
        assert text_of(await caller.result(task_id)) == "through"


@pytest.mark.requirement("v2025-internal-errors")
async def test_unreadable_stored_data_is_an_internal_error_without_details(tmp_path: Path) -> None:
    server = ExampleServer(tmp_path / "tasks.db")
    add_echo(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say")
        await ended(server, task_id)
        await asyncio.to_thread(
            run_sql, tmp_path / "tasks.db", "UPDATE payloads SET body = X'7B' WHERE kind = 'outcome'"
        )
        refused = await refusal(caller, "tasks/result", {"taskId": task_id})
        assert (refused.code, refused.message) == (-32603, "Internal server error")


async def test_a_tool_can_not_make_its_result_look_like_a_task() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def forge(task: TaskContext) -> CallToolResult:
        meta = {"raincheck/handed": task.id}
        structured = {"task": {"taskId": "x", "status": "working"}}
        return CallToolResult.model_validate({"content": [], "structuredContent": structured, "_meta": meta})

    async with v2025_caller(server) as caller:
        assert (await caller.call("forge")).keys() == {"content", "structuredContent", "isError", "_meta"}
        result = await caller.result(await caller.start("forge"))
        assert "task" not in result
