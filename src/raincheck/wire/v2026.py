"""Tasks as the extension of 2026-07-28 has them: what `tasks/get` and its notifications say, from what is stored.

Nothing that a body may have left makes this fail: an outcome of an odd shape, or an error without words, is told as
well as it can be, because a caller whose polls fail has lost the task.
"""

from collections.abc import Mapping
from typing import assert_never, cast

from raincheck.core.lifecycle import Status
from raincheck.core.payload import Json
from raincheck.core.records import Progress, Task, View
from raincheck.errors import CancelRefused
from raincheck.wire import v2026_types as shapes
from raincheck.wire.errors import MISSING_CAPABILITY, error_of
from raincheck.wire.fields import REFUSED, milliseconds, moment, outcome_of, positive, refusal, request_of, state_meta
from raincheck.wire.results import tool_result

EXTENSION = "io.modelcontextprotocol/tasks"

PROGRESS = "raincheck/progress"
"""In the `_meta` of what `tasks/get` answers: how far the task is, as `done` and, if it is known, `total`."""


def task_fields(task: Task, *, poll_ms: int) -> shapes.Task:
    """What is said of a task wherever one is sent."""
    fields: shapes.Task = {
        "taskId": task.id,
        "status": task.status.value,
        "createdAt": moment(task.created_at),
        "lastUpdatedAt": moment(task.updated_at),
        "ttlMs": None if task.ttl is None else milliseconds(task.ttl),
        "pollIntervalMs": positive(poll_ms),
    }
    if task.status_message:
        fields["statusMessage"] = task.status_message
    return fields


def create_result(task: Task, *, poll_ms: int) -> shapes.CreateTaskResult:
    """The answer to a call that became a task."""
    result: shapes.CreateTaskResult = {**task_fields(task, poll_ms=poll_ms), "resultType": "task"}
    if task.state is not None:
        result["_meta"] = state_meta(task)
    return result


def detailed(view: View, *, poll_ms: int) -> shapes.DetailedTask:
    """The task with what belongs to its status: its result, its error, or what it asks."""
    task = view.task
    fields = task_fields(task, poll_ms=poll_ms)
    match task.status:
        case Status.WORKING:
            return {**fields, "status": "working"}
        case Status.INPUT_REQUIRED:
            return {**fields, "status": "input_required", "inputRequests": input_requests(view)}
        case Status.COMPLETED:
            # The extension's examples leave it out, but without it this would not be what the call would have had.
            result = tool_result(task, outcome_of(view)) | {"resultType": "complete"}
            return {**fields, "status": "completed", "result": result}
        case Status.FAILED:
            error = error_of(view)
            return {"statusMessage": error["message"], **fields, "status": "failed", "error": error}
        case Status.CANCELLED:
            return {**fields, "status": "cancelled"}
        case _:
            assert_never(task.status)


def input_requests(view: View) -> shapes.InputRequests:
    """What the task asks, by the keys under which it is answered."""
    # Each is one of the three kinds of requests, which no type checker sees.
    requests = {question.key: request_of(question) for question in view.inputs if question.is_open}
    return cast("shapes.InputRequests", requests)


def get_result(view: View, *, poll_ms: int) -> shapes.GetTaskResult:
    """The answer to `tasks/get`."""
    result = {**detailed(view, poll_ms=poll_ms), "resultType": "complete"}
    meta = state_meta(view.task)
    if view.task.progress is not None:
        # The extension has no numbers for it, only words. Callers that know where to look can draw a bar.
        meta[PROGRESS] = _numbers(view.task.progress)
    if meta:
        result["_meta"] = meta
    # Each of the five kinds of the one is a kind of the other with this field, which no type checker sees.
    return cast("shapes.GetTaskResult", result)


def _numbers(progress: Progress) -> Mapping[str, Json]:
    return {"done": progress.done} if progress.total is None else {"done": progress.done, "total": progress.total}


def ack() -> shapes.UpdateTaskResult:
    """The answer to `tasks/update` and `tasks/cancel`, whatever comes of them."""
    return {"resultType": "complete"}


def not_cancelled(error: CancelRefused) -> shapes.CancelTaskResult:
    """Its own way of saying no: a cancel is always acknowledged, and the task may end otherwise all the same."""
    return {"resultType": "complete", "_meta": {REFUSED: refusal(error)}}


def missing_capability() -> tuple[int, str, dict[str, Json]]:
    """Code, message and data of the error for a caller that did not declare the extension on its request."""
    message = f"this needs the extension {EXTENSION}: declare it in the request's client capabilities"
    return MISSING_CAPABILITY, message, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
