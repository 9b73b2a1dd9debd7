"""The SDK's own client drives tasks with a small extension, and sees none of them without it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, cast

import pytest
from mcp.client import Client, ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Request,
    RequestParams,
    Result,
)
from pydantic import BaseModel, ConfigDict, Field

from raincheck import TaskContext
from tests.support.server.caller_v2026 import EXTENSION
from tests.support.server.example import ExampleServer
from tests.support.server.transports import over_http

pytestmark = pytest.mark.anyio


class Created(Result):
    """The task that a call became."""

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str


class Anything(Result):
    model_config = ConfigDict(extra="allow")


class TaskParams(RequestParams):
    task_id: str = Field(serialization_alias="taskId")
    input_responses: dict[str, Any] | None = Field(default=None, serialization_alias="inputResponses")


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param: ClassVar[str | None] = "taskId"


class UpdateTask(Request[TaskParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: TaskParams
    name_param: ClassVar[str | None] = "taskId"


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param: ClassVar[str | None] = "taskId"


class TaskClient(ClientExtension):
    """Polls a task to its end, and answers whatever it asks with yes."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self.resolve)]

    async def resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        self.started.set_result(created.task_id)
        while True:
            task = await ask(context.session, GetTask(params=TaskParams(task_id=created.task_id)))
            self.statuses.append(task["status"])
            match task["status"]:
                case "completed":
                    return CallToolResult.model_validate(task["result"])
                case "failed":
                    raise MCPError(task["error"]["code"], task["error"]["message"])
                case "cancelled":
                    raise MCPError(-32000, "cancelled")
                case "input_required":
                    yes = {"action": "accept", "content": {"sure": True}}
                    answers = dict.fromkeys(task["inputRequests"], yes)
                    params = TaskParams(task_id=created.task_id, input_responses=answers)
                    await ask(context.session, UpdateTask(params=params))
                case _:
                    await asyncio.sleep(0.01)


async def ask(session: ClientSession, request: Request[Any, Any]) -> dict[str, Any]:
    answer = await session.send_request(cast("Any", request), Anything)
    return answer.model_dump(by_alias=True, mode="json")


class Sure(BaseModel):
    sure: bool


def build() -> ExampleServer:
    server = ExampleServer()

    @server.tasks.tool
    async def add(a: int, b: int, task: TaskContext) -> int:
        await task.progress(1, 2, "adding")
        return a + b

    @server.tasks.tool
    async def confirm(task: TaskContext) -> str:
        reply = await task.elicit("Sure?", Sure)
        again = await task.elicit("Really?", Sure)
        return f"{reply.action} {again.action}"

    @server.tasks.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    @server.mcp.tool()
    async def enabled(ctx: Context[Any, Any]) -> str:
        return (await ctx.elicit("Sure?", Sure)).action

    server.tasks.enable("enabled")
    return server


@asynccontextmanager
async def connected(way: str, **options: Any) -> AsyncGenerator[Client]:
    server = build()
    if way == "memory":
        async with Client(server.mcp, **options) as client:
            yield client
    else:
        async with over_http(server.mcp.streamable_http_app()) as transport, Client(transport.url, **options) as client:
            yield client


ways = pytest.mark.parametrize("way", ["memory", "http"])


@ways
async def test_a_client_with_the_extension_drives_a_task_to_its_result(way: str) -> None:
    tasks = TaskClient()
    async with connected(way, extensions=[tasks]) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3}
        assert EXTENSION in (client.server_capabilities.extensions or {})
    assert tasks.statuses[-1] == "completed"


@ways
async def test_a_client_with_the_extension_answers_what_a_task_asks(way: str) -> None:
    tasks, user = TaskClient(), User()
    async with connected(way, extensions=[tasks], elicitation_callback=user.answer) as client:
        result = await client.call_tool("confirm", {})
        assert getattr(result.content[0], "text", None) == "accept accept"
    assert "input_required" in tasks.statuses
    assert user.asked == []


@ways
async def test_a_client_with_the_extension_cancels_a_task(way: str) -> None:
    tasks = TaskClient()
    async with connected(way, extensions=[tasks]) as client:
        calling = asyncio.create_task(client.call_tool("wait", {}))
        await ask(client.session, CancelTask(params=TaskParams(task_id=await tasks.started)))
        with pytest.raises(MCPError, match="cancelled"):
            await calling


class User:
    """Answers questions, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, _: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"sure": True})


modes = pytest.mark.parametrize("mode", ["auto", "legacy"])


@ways
@modes
async def test_a_client_without_tasks_gets_results_as_if_there_were_no_tasks(way: str, mode: str) -> None:
    async with connected(way, mode=mode) as client:
        assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        bad = await client.call_tool("add", {"a": "one", "b": 2})
        assert bad.is_error


@ways
@modes
async def test_a_client_without_tasks_is_asked_each_question_once_through_its_callback(way: str, mode: str) -> None:
    user = User()
    async with connected(way, mode=mode, elicitation_callback=user.answer) as client:
        result = await client.call_tool("confirm", {})
        assert getattr(result.content[0], "text", None) == "accept accept"
        assert user.asked == ["Sure?", "Really?"]
        result = await client.call_tool("enabled", {})
        assert getattr(result.content[0], "text", None) == "accept"
        assert user.asked == ["Sure?", "Really?", "Sure?"]


@ways
@modes
async def test_a_client_without_tasks_gets_progress(way: str, mode: str) -> None:
    received: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))
        gate.set()

    server = ExampleServer()
    gate = asyncio.Event()

    @server.tasks.tool
    async def work(task: TaskContext) -> str:
        await task.progress(1, 2, "half-way")
        await gate.wait()
        return "done"

    async with (
        over_http(server.mcp.streamable_http_app()) as transport,
        Client(transport.url if way == "http" else server.mcp, mode=mode) as client,
    ):
        result = await client.call_tool("work", {}, progress_callback=hear)
        assert getattr(result.content[0], "text", None) == "done"
    assert received[0] == (1, 2, "half-way")


@modes
async def test_a_client_without_tasks_that_disconnects_stops_the_work(mode: str) -> None:
    server = ExampleServer()
    began, stopped = asyncio.Event(), asyncio.Event()

    @server.tasks.tool
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with Client(server.mcp, mode=mode) as client:
        calling = asyncio.create_task(client.call_tool("work", {}))
        await began.wait()
        calling.cancel()
        await asyncio.wait_for(stopped.wait(), 20)
