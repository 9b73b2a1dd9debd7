"""Tasks in the extension of 2026-07-28.

`TasksExtension` declares to the SDK that the client accepts tasks, and handles the tasks that it receives.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, CreateMessageRequest, ElicitRequest, ErrorData, ListRootsRequest, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from raincheck.client.connection import classify_loss
from raincheck.client.errors import InvalidResponse
from raincheck.client.inputs import Question
from raincheck.client.protocols.base import (
    Answers,
    AnyResult,
    InitialStatus,
    Seconds,
    TaskPlaceholder,
    TaskProtocol,
    TaskResult,
    map_validation_errors,
    parse_cancel_refusal,
    read_progress,
    read_result,
    send_task_request,
)
from raincheck.client.tracker import TrackedTask, Update
from raincheck.core.lifecycle import Status
from raincheck.wire.fields import CANCEL_REFUSED_META_KEY, as_object
from raincheck.wire.v2026 import EXTENSION, PROGRESS_META_KEY

ALREADY_COMPLETED = "already-completed"
"""The reason of a refused cancel of a task that has already ended."""

FIELD_BY_STATUS = {"input_required": "inputRequests", "completed": "result", "failed": "error"}
"""The additional field of a task, by its status."""


class TaskSnapshot2026(TaskResult):
    """A task of 2026-07-28, with the details of its status."""

    poll_interval_ms: Seconds = None
    input_requests: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    result: dict[str, Any] | None = None
    error: ErrorData | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_foreign_fields(cls, data: object) -> object:
        """Drop fields that do not belong to the task's status, since some servers send empty ones."""
        if not isinstance(data, dict):
            return data
        fields = cast("dict[str, object]", data)
        foreign = {
            name
            for status, name in FIELD_BY_STATUS.items()
            if status != fields.get("status") or fields.get(name) is None
        }
        return {name: value for name, value in fields.items() if name not in foreign}

    def to_update(self) -> Update:
        progress = as_object((self.meta or {}).get(PROGRESS_META_KEY))
        return Update(
            task_id=self.task_id,
            status=self.status,
            message=self.status_message,
            progress=read_progress(progress.get("done"), progress.get("total")),
            poll_after=self.poll_interval_ms,
            questions=tuple(Question(key, request) for key, request in self.input_requests.items()),
            result=self.result,
            error=None if self.error is None else MCPError.from_error_data(self.error),
        )


class ListenRequest(Request[dict[str, Any], str]):
    """A long-lived request during which the server sends change notifications."""


class Protocol2026(TaskProtocol):
    """For servers that declare the extension."""

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
        refused = parse_cancel_refusal(tracked.task_id, (response.meta or {}).get(CANCEL_REFUSED_META_KEY))
        if refused is not None and refused.reason != ALREADY_COMPLETED:
            raise refused

    async def listen(self, client: Client, tracked: TrackedTask, update: Update) -> bool:
        del update
        params = {"notifications": {"taskIds": [tracked.task_id]}}
        try:
            await client.session.send_request(ListenRequest(method="subscriptions/listen", params=params), AnyResult)
        except MCPError as error:
            return classify_loss(error) is not None
        return True


_REQUEST_TYPES: dict[str, type[ElicitRequest | CreateMessageRequest | ListRootsRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}


async def _ask_callback(client: Client, question: Question) -> dict[str, Any]:
    """Run the client's callback for a question, and return its answer.

    Raises:
        MCPError: the callback refuses to answer.
    """
    with map_validation_errors(f"the question {question.key!r}"):
        request = _REQUEST_TYPES[question.method].model_validate(dict(question.request), by_name=False)
    context = ClientRequestContext(session=client.session, request_id=question.key)
    answer = await client.session.dispatch_input_request(context, request)
    if isinstance(answer, ErrorData):
        raise MCPError.from_error_data(answer)
    assert isinstance(answer, BaseModel)  # noqa: S101 - by the SDK's types
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


class CreatedTask2026(TaskResult):
    """The response of 2026-07-28 to a call that became a task."""

    result_type: Literal["task"] = "task"
    status: InitialStatus = Status.WORKING


class _StatusNotification(BaseModel):
    model_config = ConfigDict(extra="allow")
    taskId: str  # noqa: N815 - the name on the wire


class TasksExtension(ClientExtension):
    """Declares the tasks extension to the SDK, and forwards created tasks and notifications."""

    identifier = EXTENSION

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        """Called with the id of a task that has changed."""

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask2026, resolve=_wrap_task)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        methods = ("notifications/tasks", "notifications/tasks/status")
        return [
            NotificationBinding(method=method, params_type=_StatusNotification, handler=self._handle_notification)
            for method in methods
        ]

    async def _handle_notification(self, changed: _StatusNotification) -> None:
        self._on_change(changed.taskId)


async def _wrap_task(created: CreatedTask2026, ctx: ClaimContext) -> CallToolResult:
    del ctx
    return TaskPlaceholder(content=[], task_id=created.task_id)
