"""Tasks in the protocol of 2025-11-25: the client requests a task, and fetches its result.

The SDK's client can't request a task: it validates the response to `tools/call` against the result type of the version,
which has no tasks there. Such a call therefore bypasses the validation.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcp.client import Client
from mcp.shared.dispatcher import CallOptions  # noqa: TC002 - with the runtime imports
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult, Result

from raincheck.client.connection import classify_loss
from raincheck.client.errors import InvalidResponse
from raincheck.client.inputs import Question
from raincheck.client.protocols.base import (
    Answers,
    AnyResult,
    CallOutcome,
    CallRequest,
    InitialStatus,
    Seconds,
    TaskProtocol,
    TaskResult,
    ToolCache,
    call_tool,
    map_schema_errors,
    map_validation_errors,
    parse_cancel_refusal,
    read_call_result,
    read_result,
    send_task_request,
)
from raincheck.client.tracker import TrackedTask, Update
from raincheck.core.lifecycle import Status


class Task2025(TaskResult):
    """A task of 2025-11-25."""

    poll_interval: Seconds = None


class _NewTask2025(Task2025):
    status: InitialStatus = Status.WORKING


class CreatedTask2025(Result):
    """The response of 2025-11-25 to a call that asked for a task."""

    task: _NewTask2025


@dataclass(frozen=True, slots=True)
class Protocol2025(TaskProtocol):
    """For servers that declare tasks for tool calls. They send notifications without a subscription, if at all."""

    tool_cache: ToolCache

    async def start(self, client: Client, call: CallRequest) -> CallOutcome:
        was_cached = self.tool_cache.is_cached(client)
        try:
            return await self._start(client, call)
        except MCPError as error:
            # A server sends this error, before any work is done, if the tool does not support the call. The support may
            # have changed since the tool was listed. If not, the error is the tool's own, and the tool is not called
            # a second time.
            if error.error.code != METHOD_NOT_FOUND or not was_cached:
                raise
            before = (await self.tool_cache.find(client, call.tool)).task_support
            self.tool_cache.invalidate(client)
            if (await self.tool_cache.find(client, call.tool)).task_support == before:
                raise
            return await self._start(client, call)

    async def _start(self, client: Client, call: CallRequest) -> CallOutcome:
        if (await self.tool_cache.find(client, call.tool)).task_support == "forbidden":
            return await call_tool(client, call)
        token = f"raincheck-{secrets.token_hex(8)}"
        params = {
            "name": call.tool,
            "arguments": dict(call.arguments),
            "task": {} if call.ttl is None else {"ttl": round(call.ttl * 1_000)},
            "_meta": {**call.meta, "progressToken": token},
        }
        response = await _call_raw(client, params)
        if "task" in response:
            with map_validation_errors("the created task"):
                task = CreatedTask2025.model_validate(response, by_name=False).task
            return CallOutcome(task_id=task.task_id, protocol="2025-11-25", progress_token=token)
        # A server may always answer at once.
        result = read_result(response)
        if not result.is_error:
            with map_schema_errors(call.tool):
                await client.session.validate_tool_result(call.tool, result)
        return read_call_result(result)

    async def poll(self, client: Client, tracked: TrackedTask) -> Update:
        in_progress = tracked.inputs_2025.in_progress
        task = await send_task_request(client, "tasks/get", tracked.task_id, Task2025)
        update = Update(
            task_id=task.task_id,
            status=task.status,
            message=task.status_message,
            server_asks=True,
            poll_after=task.poll_interval,
        )
        update = tracked.with_progress(update)
        if update.status is not Status.INPUT_REQUIRED:
            tracked.inputs_2025.cancel_disconnected(in_progress)
            return update
        return replace(update, questions=tuple(tracked.inputs_2025.awaiting_answer.values()))

    async def fetch_result(self, client: Client, tracked: TrackedTask, update: Update) -> CallToolResult:
        response = await send_task_request(client, "tasks/result", tracked.task_id, AnyResult)
        result = response.model_dump(by_alias=True, mode="json", exclude_unset=True)
        if update.status is Status.FAILED and "content" not in result:
            # Some servers report a failed task without its error.
            raise MCPError(INTERNAL_ERROR, update.message or "the task has failed")
        return read_result(result)

    async def run_callbacks(self, client: Client, tracked: TrackedTask, question: Question | None) -> bool:
        del question
        # While a caller waits for the result, the server sends its questions, and the SDK runs the callbacks. The
        # result is fetched when the task has ended.
        before = tracked.inputs_2025.open_requests
        try:
            await send_task_request(client, "tasks/result", tracked.task_id, AnyResult)
        except InvalidResponse:
            raise
        except MCPError as error:
            # A server that has responded, even with an error, can still take answers to its open questions.
            if classify_loss(error) is not None:
                tracked.inputs_2025.mark_disconnected(before)
            return False
        except BaseException:
            tracked.inputs_2025.mark_disconnected(before)
            raise
        return True

    async def answer(self, client: Client, tracked: TrackedTask, answers: Answers) -> None:
        del client
        for key, answer in answers.items():
            tracked.inputs_2025.answer(key, answer)

    async def cancel(self, client: Client, tracked: TrackedTask) -> None:
        try:
            await send_task_request(client, "tasks/cancel", tracked.task_id, AnyResult)
        except MCPError as error:
            if error.error.code != INVALID_PARAMS:
                raise
            if (await self.poll(client, tracked)).is_ended:
                return
            refusal = parse_cancel_refusal(tracked.task_id, error.error.data)
            if refusal is None:
                raise
            raise refusal from error


async def _call_raw(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Call a tool, and return the server's unvalidated response."""
    dispatcher = client.session._dispatcher  # pyright: ignore[reportPrivateUsage] - see the module's docstring
    options: CallOptions = {}
    if client.read_timeout_seconds is not None:
        options["timeout"] = client.read_timeout_seconds
    return await dispatcher.send_raw_request("tools/call", params, options)
