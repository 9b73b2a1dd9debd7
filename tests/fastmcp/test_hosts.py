"""A FastMCP server serves callers of 2026, of 2025, and without tasks, on every transport."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal

import pytest
from mcp.client import Client, ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, Request, Result
from pydantic import BaseModel, ConfigDict, Field

from fastmcp import Client as FastClient
from fastmcp import Context
from raincheck import TaskContext
from tests.support import ROOT
from tests.support.fastmcp.example_server import FastMCPExample
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.caller_v2026 import EXTENSION, Caller, Refused

pytestmark = pytest.mark.anyio

SERVER = ROOT / "tests/support/fastmcp/conformance_server.py"


class Confirmation(BaseModel):
    sure: bool


class Receipt(BaseModel):
    number: int
    lines: list[str]


def build(**options: Any) -> FastMCPExample:
    example = FastMCPExample(**options)

    @example.tasks.tool
    async def ask(task: TaskContext) -> str:
        await task.progress(1, 2, "asking")
        return (await task.elicit("Confirmation?", Confirmation)).action

    @example.mcp.tool
    async def ask_as_they_do(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "asking")
        return (await ctx.elicit("Confirmation?", Confirmation)).action

    @example.tasks.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    @example.tasks.tool
    async def buy(number: int) -> Receipt:
        return Receipt(number=number, lines=["bread"])

    @example.mcp.tool
    def look(what: str) -> str:
        return f"{what} is there"

    example.tasks.enable("ask_as_they_do")
    return example


@asynccontextmanager
async def called_by(way: str) -> AsyncGenerator[Caller]:
    example = build()
    if way == "memory":
        async with example.open() as caller:
            yield caller
    else:
        async with example.serve() as transport:
            yield Caller(transport)


ways = pytest.mark.parametrize("way", ["memory", "http"])
asking = pytest.mark.parametrize("tool", ["ask", "ask_as_they_do"])


@ways
@asking
async def test_a_caller_of_2026_gets_a_task_and_answers_its_question(way: str, tool: str) -> None:
    async with called_by(way) as caller:
        task_id = await caller.start(tool)
        seen: list[tuple[str, str | None]] = []
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                seen.append((task["status"], task.get("statusMessage")))
                if task["status"] == "input_required":
                    [key] = task["inputRequests"]
                    await caller.update(task_id, {key: {"action": "accept", "content": {"sure": True}}})
        assert ("completed", None) in seen
        assert (await caller.get(task_id))["result"]["content"][0]["text"] == "accept"


@ways
async def test_a_caller_of_2026_cancels_a_task(way: str) -> None:
    async with called_by(way) as caller:
        task_id = await caller.start("wait")
        await caller.cancel(task_id)
        assert (await caller.until(task_id))["status"] == "cancelled"


@ways
async def test_a_caller_of_2026_calls_a_tool_without_tasks(way: str) -> None:
    async with called_by(way) as caller:
        result = await caller.call("look", {"what": "bread"})
        assert result["structuredContent"] == {"result": "bread is there"}
        result = await caller.call("nothing", {})
        assert (result["isError"], result["content"][0]["text"]) == (True, "Unknown tool: 'nothing'")


@asynccontextmanager
async def called_in_2025(way: str) -> AsyncGenerator[V2025Caller]:
    example = build()
    async with example.open_2025() if way == "memory" else example.open_2025_http() as caller:
        yield caller


@ways
@asking
async def test_a_caller_of_2025_is_asked_on_the_stream_of_the_tasks_result(way: str, tool: str) -> None:
    async with called_in_2025(way) as caller:
        task_id = await caller.start(tool)
        call = await caller.wait(task_id)
        await caller.reply(await caller.asked(), {"action": "accept", "content": {"sure": True}})
        assert (await call.result())["content"][0]["text"] == "accept"


@ways
async def test_a_caller_of_2025_sees_which_tools_it_can_call_as_tasks(way: str) -> None:
    async with called_in_2025(way) as caller:
        tools = (await caller.request("tools/list"))["tools"]
        support = {tool["name"]: tool.get("execution") for tool in tools}
        assert support["ask"] == support["ask_as_they_do"] == {"taskSupport": "optional"}
        assert support["look"] is None
        with pytest.raises(Refused, match="can't be called as a task") as refused:
            await caller.create("look", {"what": "bread"})
        assert refused.value.code == -32601
        with pytest.raises(Refused, match="there is no tool 'nothing'") as refused:
            await caller.create("nothing")
        assert refused.value.code == -32602


@ways
async def test_a_caller_of_2025_cancels_a_task(way: str) -> None:
    async with called_in_2025(way) as caller:
        task_id = await caller.start("wait")
        assert (await caller.cancel(task_id))["status"] == "cancelled"


async def accept(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    del context, params
    return ElicitResult(action="accept", content={"sure": True})


@asynccontextmanager
async def fallback_client(way: str, mode: str, example: FastMCPExample) -> AsyncGenerator[Client]:
    if way == "memory":
        async with Client(example.lowlevel, mode=mode, elicitation_callback=accept) as client:
            yield client
    else:
        async with (
            example.serve() as transport,
            Client(transport.url, mode=mode, elicitation_callback=accept) as client,
        ):
            yield client


modes = pytest.mark.parametrize("mode", ["auto", "legacy"])


@ways
@modes
@asking
async def test_a_client_without_tasks_gets_plain_results(way: str, mode: str, tool: str) -> None:
    async with fallback_client(way, mode, build()) as client:
        assert (await client.call_tool(tool, {})).structured_content == {"result": "accept"}
        assert (await client.call_tool("buy", {"number": 3})).structured_content == {"number": 3, "lines": ["bread"]}


@ways
@modes
async def test_a_client_without_tasks_controls_a_task_by_five_tools(way: str, mode: str) -> None:
    async with fallback_client(way, mode, build(fallback_wait=0.1)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[-5:] == ["task_wait", "task_status", "task_result", "task_cancel", "task_answer"]
        answer = await client.call_tool("wait", {})
        assert answer.structured_content is not None
        task_id = answer.structured_content["task_id"]
        status = await client.call_tool("task_status", {"task_id": task_id})
        assert (status.structured_content or {})["status"] == "working"
        await client.call_tool("task_cancel", {"task_id": task_id})
        assert (await client.call_tool("task_wait", {"task_id": task_id})).is_error


class Created(Result):
    """The task that a call became."""

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")


class Anything(Result):
    model_config = ConfigDict(extra="allow")


class TaskRequest(Request[dict[str, Any], str]):
    name_param: ClassVar[str | None] = "taskId"


class TaskClient(ClientExtension):
    """The tasks extension of an SDK client: it polls tasks, and accepts every question."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.statuses: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self.resolve)]

    async def resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        while True:
            task = await self.ask(context, "tasks/get", created.task_id)
            self.statuses.append(task["status"])
            if task["status"] == "completed":
                return CallToolResult.model_validate(task["result"])
            if task["status"] == "input_required":
                answers = {key: {"action": "accept", "content": {"confirm": True}} for key in task["inputRequests"]}
                await self.ask(context, "tasks/update", created.task_id, inputResponses=answers)
            await asyncio.sleep(0.01)

    async def ask(self, context: ClaimContext, method: str, task_id: str, **params: Any) -> dict[str, Any]:
        request = TaskRequest(method=method, params={"taskId": task_id, **params})
        return (await context.session.send_request(request, Anything)).model_dump(by_alias=True, mode="json")


async def test_the_sdks_client_works_over_stdio_with_and_without_tasks() -> None:
    parameters = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    tasks = TaskClient()
    async with Client(stdio_client(parameters), extensions=[tasks], elicitation_callback=accept) as client:
        result = await client.call_tool("confirm_delete", {"filename": "it"})
        assert result.structured_content == {"result": "it is deleted"}
        assert "input_required" in tasks.statuses
    async with Client(stdio_client(parameters), mode="legacy") as client:
        result = await client.call_tool("slow_compute", {"seconds": 0, "label": "it"})
        assert result.structured_content == {"result": "it: done after 0 s"}


async def test_fastmcps_client_gets_values_of_the_tools_return_types() -> None:
    example = build()
    async with FastClient(example.mcp) as client:
        receipt = (await client.call_tool("buy", {"number": 3})).data
        assert (receipt.number, receipt.lines) == (3, ["bread"])
        assert (await client.call_tool("look", {"what": "bread"})).data == "bread is there"
