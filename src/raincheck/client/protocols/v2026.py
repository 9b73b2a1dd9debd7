"""Tasks in the extension of 2026-07-28."""

from typing import Any

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ErrorData, Request
from pydantic import BaseModel

from raincheck.client.errors import InvalidResponse
from raincheck.client.options import REQUEST_TYPES
from raincheck.client.protocols.base import (
    Answers,
    AnyResult,
    CallOutcome,
    CallRequest,
    call_tool,
    map_validation_errors,
    read_result,
    send_task_request,
)
from raincheck.client.protocols.models import TaskSnapshot2026
from raincheck.client.tracker import TrackedTask
from raincheck.client.transport_errors import check_cancel_meta, classify_loss
from raincheck.client.updates import Question, Update


class ListenRequest(Request[dict[str, Any], str]):
    """A long-lived request during which the server sends change notifications."""


class Protocol2026:
    """For servers that declare the extension."""

    async def start(self, client: Client, call: CallRequest) -> CallOutcome:
        return await call_tool(client, call)

    async def poll(self, client: Client, tracked: TrackedTask) -> Update:
        in_progress = tracked.inputs_2026.in_progress
        update = (await send_task_request(client, "tasks/get", tracked.task_id, TaskSnapshot2026)).to_update()
        # Another client has answered, so these callbacks are not needed. Questions asked during the poll are not in
        # its response.
        tracked.inputs_2026.cancel(in_progress - {question.key for question in update.questions})
        return update

    async def fetch_result(self, client: Client, tracked: TrackedTask, update: Update) -> CallToolResult:
        del client
        if update.error is not None:
            raise update.error
        if update.result is None:
            raise InvalidResponse(
                f"task {tracked.task_id!r} has ended ({update.status}), but the server sent no result"
            )
        return read_result(update.result)

    async def run_callbacks(self, client: Client, tracked: TrackedTask, question: Question | None) -> bool:
        if question is None:
            return False
        key, inputs = question.key, tracked.inputs_2026
        # An earlier answer is sent again: it did not arrive, or not before this poll.
        if key not in inputs.answers:
            if not inputs.is_answered(key):
                await inputs.run_callback(key, lambda: _ask_callback(client, question))
            if inputs.is_answered(key):
                # Answered with `Handle.answer`, or by a concurrent waiter.
                return False
        await self.answer(client, tracked, {key: inputs.answers[key]})
        return True

    async def answer(self, client: Client, tracked: TrackedTask, answers: Answers) -> None:
        responses = {key: dict(answer) for key, answer in answers.items()}
        with tracked.inputs_2026.sending(responses):
            await send_task_request(client, "tasks/update", tracked.task_id, AnyResult, inputResponses=responses)

    async def cancel(self, client: Client, tracked: TrackedTask) -> None:
        response = await send_task_request(client, "tasks/cancel", tracked.task_id, AnyResult)
        check_cancel_meta(tracked.task_id, response.meta)

    async def listen(self, client: Client, tracked: TrackedTask, update: Update) -> bool:
        del update
        params = {"notifications": {"taskIds": [tracked.task_id]}}
        try:
            await client.session.send_request(ListenRequest(method="subscriptions/listen", params=params), AnyResult)
        except MCPError as error:
            return classify_loss(error) is not None
        return True


async def _ask_callback(client: Client, question: Question) -> dict[str, Any]:
    """Run the client's callback for a question, and return its answer.

    Raises:
        MCPError: the callback refuses to answer.
    """
    with map_validation_errors(f"the question {question.key!r}"):
        request = REQUEST_TYPES[question.method].model_validate(dict(question.request), by_name=False)
    context = ClientRequestContext(session=client.session, request_id=question.key)
    answer = await client.session.dispatch_input_request(context, request)
    if isinstance(answer, ErrorData):
        raise MCPError.from_error_data(answer)
    assert isinstance(answer, BaseModel)  # noqa: S101 - by the SDK's types
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
