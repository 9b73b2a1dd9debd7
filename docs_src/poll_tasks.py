"""A client of the `mcp` SDK that takes tasks: it polls them at the pace they name, and answers what they ask."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Request, Result
from pydantic import ConfigDict, Field

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Created(Result):
    """What a call answers that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str


class Shown(Result):
    """A task as `tasks/get` shows it."""

    model_config = ConfigDict(extra="allow")
    status: str
    status_message: str | None = None
    poll_interval_ms: int = 1_000
    input_requests: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    result: dict[str, Any] = Field(default_factory=dict[str, Any])
    error: dict[str, Any] = Field(default_factory=dict[str, Any])


class TaskRequest(Request[dict[str, Any], str]):
    name_param: ClassVar[str | None] = "taskId"  # so that the header Mcp-Name names the task


async def get(session: ClientSession, task_id: str) -> Shown:
    return await session.send_request(TaskRequest(method="tasks/get", params={"taskId": task_id}), Shown)


async def update(session: ClientSession, task_id: str, answers: dict[str, Any]) -> None:
    params = {"taskId": task_id, "inputResponses": answers}
    await session.send_request(TaskRequest(method="tasks/update", params=params), Result)


async def cancel(session: ClientSession, task_id: str) -> None:
    await session.send_request(TaskRequest(method="tasks/cancel", params={"taskId": task_id}), Result)


class PollTasks(ClientExtension):
    """For `Client(…, extensions=[PollTasks()])`: `call_tool` then waits for tasks, however long they take."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, answer: Answer | None = None) -> None:
        self._answer = answer

    def claims(self) -> list[ResultClaim[Created]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self.finish)]

    async def finish(self, created: Created, ctx: ClaimContext) -> CallToolResult:
        while True:
            shown = await get(ctx.session, created.task_id)
            match shown.status:
                case "completed":
                    return CallToolResult.model_validate(shown.result)
                case "failed":
                    raise MCPError(shown.error["code"], shown.error["message"], shown.error.get("data"))
                case "cancelled":
                    raise MCPError(-32000, shown.status_message or "the task was cancelled")
                case "input_required" if self._answer is not None:
                    answers = {key: await self._answer(asked) for key, asked in shown.input_requests.items()}
                    await update(ctx.session, created.task_id, answers)
                case _:
                    await asyncio.sleep(shown.poll_interval_ms / 1_000)
