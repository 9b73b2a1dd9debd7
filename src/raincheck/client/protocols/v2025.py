"""Tasks in the protocol of 2025-11-25: the client requests a task, and fetches its result."""

from dataclasses import replace

from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
)

from raincheck.client.errors import InvalidResponse
from raincheck.client.protocols.base import (
    Answers,
    AnyResult,
    CallOutcome,
    CallRequest,
    ToolCache,
    call_raw,
    call_tool,
    map_schema_errors,
    map_validation_errors,
    read_call_result,
    read_result,
    send_task_request,
)
from raincheck.client.protocols.models import CreatedTask2025, Task2025
from raincheck.client.tracker import TaskTracker, TrackedTask
from raincheck.client.transport_errors import classify_loss, parse_cancel_refusal
from raincheck.client.updates import Question, Update
from raincheck.core.lifecycle import Status


class Protocol2025:
    """For servers that declare tasks for tool calls."""

    def __init__(self, tracker: TaskTracker, tool_cache: ToolCache) -> None:
        self._tracker = tracker
        self._tool_cache = tool_cache

    async def start(self, client: Client, call: CallRequest) -> CallOutcome:
        was_cached = self._tool_cache.is_cached(client)
        try:
            return await self._start(client, call)
        except MCPError as error:
            # A server sends this error, before any work is done, if the tool does not support the call. The support may
            # have changed since the tool was listed. If not, the error is the tool's own, and the tool is not called
            # a second time.
            if error.error.code != METHOD_NOT_FOUND or not was_cached:
                raise
            before = (await self._tool_cache.find(client, call.tool)).task_support
            self._tool_cache.invalidate(client)
            if (await self._tool_cache.find(client, call.tool)).task_support == before:
                raise
            return await self._start(client, call)

    async def _start(self, client: Client, call: CallRequest) -> CallOutcome:
        if (await self._tool_cache.find(client, call.tool)).task_support == "forbidden":
            return await call_tool(client, call)
        token = self._tracker.new_progress_token()
        params = {
            "name": call.tool,
            "arguments": dict(call.arguments),
            "task": {} if call.ttl is None else {"ttl": round(call.ttl * 1_000)},
            "_meta": {**call.meta, "progressToken": token},
        }
        response = await call_raw(client, params)
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
        update = replace(tracked.with_progress(task.to_update()), server_asks=True)
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

    async def listen(self, client: Client, tracked: TrackedTask, update: Update) -> bool:
        """Do nothing: servers of 2025-11-25 send notifications without a subscription, if at all."""
        del client, tracked, update
        return False
