"""Tasks as the extension of 2026-07-28 has them: what `tasks/get` and its notifications say, from what is stored.

Nothing that a body may have left makes this fail: an outcome of an odd shape, or an error without words, is told as
well as it can be, because a caller whose polls fail has lost the task.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import assert_never, cast

from raincheck.core.content import InputKind, View
from raincheck.core.content import InputRequest as Question
from raincheck.core.lifecycle import Status
from raincheck.core.payload import Json, decode
from raincheck.core.records import Task
from raincheck.wire import g2_shapes as shapes
from raincheck.wire.codes import INTERNAL_ERROR, MISSING_CAPABILITY
from raincheck.wire.results import tool_result

EXTENSION = "io.modelcontextprotocol/tasks"

LARGEST_INTEGER = 2**53 - 1
"""Beyond it, a number is not the same for every reader of JSON."""

MAX_TOKENS = 1_000
"""What a model may answer where the tool does not say, because the protocol wants it said."""


def task_fields(task: Task, *, poll_ms: int) -> shapes.Task:
    """What is said of a task wherever one is sent."""
    fields: shapes.Task = {
        "taskId": task.id,
        "status": task.status.value,
        "createdAt": _moment(task.created_at),
        "lastUpdatedAt": _moment(task.updated_at),
        "ttlMs": None if task.ttl is None else _milliseconds(task.ttl),
        "pollIntervalMs": _positive(poll_ms),
    }
    if task.status_message:
        fields["statusMessage"] = task.status_message
    return fields


def create_result(task: Task, *, poll_ms: int) -> shapes.CreateTaskResult:
    """The answer to a call that became a task."""
    return {**task_fields(task, poll_ms=poll_ms), "resultType": "task"}


def detailed(view: View, *, poll_ms: int) -> shapes.DetailedTask:
    """The task with what belongs to its status: its result, its error, or what it asks."""
    task = view.task
    fields = task_fields(task, poll_ms=poll_ms)
    match task.status:
        case Status.WORKING:
            return {**fields, "status": "working"}
        case Status.INPUT_REQUIRED:
            return {**fields, "status": "input_required", "inputRequests": _questions(view)}
        case Status.COMPLETED:
            return {**fields, "status": "completed", "result": tool_result(task, _outcome(view))}
        case Status.FAILED:
            error = _error(task, _outcome(view))
            return {"statusMessage": error["message"], **fields, "status": "failed", "error": error}
        case Status.CANCELLED:
            return {**fields, "status": "cancelled"}
        case _:
            assert_never(task.status)


def chose_its_error(view: View) -> bool:
    """Whether the error of a failed task is one that its body chose, in the protocol's own words."""
    return _object(_outcome(view)).get("kind") == "protocol"


def get_result(view: View, *, poll_ms: int) -> shapes.GetTaskResult:
    """The answer to `tasks/get`."""
    # Each of the five kinds of the one is a kind of the other with this field, which no type checker sees.
    return cast("shapes.GetTaskResult", {**detailed(view, poll_ms=poll_ms), "resultType": "complete"})


def ack() -> shapes.UpdateTaskResult:
    """The answer to `tasks/update` and `tasks/cancel`, whatever comes of them."""
    return {"resultType": "complete"}


def missing_capability() -> tuple[int, str, dict[str, Json]]:
    """Code, message and data of the error for a caller that did not declare the extension on its request."""
    message = f"this needs the extension {EXTENSION}: declare it in the request's client capabilities"
    return MISSING_CAPABILITY, message, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds(duration: timedelta) -> int:
    """Rounded up: what is told is never less than what is kept."""
    return _positive(-(-duration // timedelta(milliseconds=1)))


def _positive(number: int) -> int:
    return min(max(1, int(number)), LARGEST_INTEGER)


def _outcome(view: View) -> Json:
    return None if view.outcome is None else decode(view.outcome)


def _error(task: Task, stored: Json) -> shapes.Error:
    """The JSON-RPC error that a failed task ended with: as its body chose it, or an internal one."""
    told = _object(stored)
    message = told.get("message")
    if not isinstance(message, str) or not message:
        message = task.status_message or "the task failed without a reason"
    code, data = told.get("code"), told.get("data")
    if told.get("kind") != "protocol" or not isinstance(code, int) or isinstance(code, bool):
        error_id = told.get("error_id")
        code, data = INTERNAL_ERROR, None if error_id is None else {"errorId": error_id}
    error: shapes.Error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return error


def _questions(view: View) -> shapes.InputRequests:
    return {question.key: _question(question) for question in view.inputs if question.is_open}


def _question(question: Question) -> shapes.InputRequest:
    # A field without a value is left out: to a strict reader, null is something else than nothing.
    told = {name: value for name, value in _object(decode(question.request)).items() if value is not None}
    match question.kind:
        case InputKind.ELICITATION:
            return {"method": "elicitation/create", "params": _elicitation(told)}
        case InputKind.SAMPLING:
            return {"method": "sampling/createMessage", "params": {"maxTokens": MAX_TOKENS, **told}}
        case InputKind.ROOTS:
            return {"method": "roots/list", "params": told}
        case _:
            assert_never(question.kind)


def _elicitation(told: Mapping[str, Json]) -> Mapping[str, Json]:
    params: dict[str, Json] = {"mode": "form", "message": "", **told}
    if params["mode"] == "form":
        # Both are required, also of a form that asks for nothing but a yes.
        params["requestedSchema"] = {"type": "object", "properties": {}, **_object(told.get("requestedSchema"))}
    return params


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
