"""Translate stored records to the messages of the tasks extension of 2026-07-28.

The translation accepts every stored outcome. An outcome of an unexpected shape, or an error without a message, is
reported as well as possible, because a caller whose polls fail has lost the task.
"""

from collections.abc import Mapping
from typing import assert_never, cast

from raincheck.core.lifecycle import Status
from raincheck.core.records import Progress, Task, View
from raincheck.core.values import Json
from raincheck.errors import CancelRefused
from raincheck.wire import v2026_types as shapes
from raincheck.wire.errors import MISSING_CAPABILITY, error_of
from raincheck.wire.fields import (
    CANCEL_REFUSED_META_KEY,
    clamp_positive,
    describe_refusal,
    format_timestamp,
    outcome_of,
    request_of,
    state_meta,
    to_milliseconds,
)

EXTENSION = "io.modelcontextprotocol/tasks"

STATE_PREFIX = "raincheck:"
"""Prefix of the request state of a call that waits for its task. The task's id follows."""

PROGRESS_META_KEY = "raincheck/progress"
"""The `_meta` key of the answer to `tasks/get` for progress: `done` and, if it is known, `total`."""


def task_fields(task: Task, *, poll_ms: int) -> shapes.Task:
    """Return the fields that every message with a task contains."""
    fields: shapes.Task = {
        "taskId": task.id,
        "status": task.status.value,
        "createdAt": format_timestamp(task.created_at),
        "lastUpdatedAt": format_timestamp(task.updated_at),
        "ttlMs": None if task.ttl is None else to_milliseconds(task.ttl),
        "pollIntervalMs": clamp_positive(poll_ms),
    }
    if task.status_message:
        fields["statusMessage"] = task.status_message
    return fields


def create_result(task: Task, *, poll_ms: int) -> shapes.CreateTaskResult:
    """Return the answer to a call that became a task."""
    result: shapes.CreateTaskResult = {**task_fields(task, poll_ms=poll_ms), "resultType": "task"}
    if task.state is not None:
        result["_meta"] = state_meta(task)
    return result


def detailed_task(view: View, *, poll_ms: int) -> shapes.DetailedTask:
    """Return the task with the details of its status: its result, its error or its input requests."""
    task = view.task
    fields = task_fields(task, poll_ms=poll_ms)
    match task.status:
        case Status.WORKING:
            return {**fields, "status": "working"}
        case Status.INPUT_REQUIRED:
            return {**fields, "status": "input_required", "inputRequests": input_requests(view)}
        case Status.COMPLETED:
            # Imported here, since clients import this module and never build a result.
            from raincheck.wire.results import tool_result

            # The extension's examples omit `resultType`, but the result of a direct call has it.
            result = tool_result(task, outcome_of(view)) | {"resultType": "complete"}
            return {**fields, "status": "completed", "result": result}
        case Status.FAILED:
            error = error_of(view)
            return {"statusMessage": error["message"], **fields, "status": "failed", "error": error}
        case Status.CANCELLED:
            return {**fields, "status": "cancelled"}
        case _:
            assert_never(task.status)


def input_requests(view: View) -> Mapping[str, Mapping[str, Json]]:
    """Return the task's open questions as input requests, by the keys under which they are answered."""
    requests = {question.key: request_of(question) for question in view.inputs if question.is_open}
    return cast("Mapping[str, Mapping[str, Json]]", requests)


def input_required(view: View) -> shapes.InputRequiredResult:
    """Return the answer to a call that requires the input that its task asks for, in its next round."""
    state = STATE_PREFIX + view.task.id
    return {"resultType": "input_required", "inputRequests": input_requests(view), "requestState": state}


def is_next_round(request_state: str | None) -> bool:
    """Return whether a call with this request state brings answers to the input requests of a task."""
    return (request_state or "").startswith(STATE_PREFIX)


def get_result(view: View, *, poll_ms: int) -> dict[str, object]:
    """Return the answer to `tasks/get`."""
    result: dict[str, object] = {**detailed_task(view, poll_ms=poll_ms), "resultType": "complete"}
    meta = state_meta(view.task)
    if view.task.progress is not None:
        # The extension has no numeric field for progress, only text. Callers that know this key can draw a progress
        # bar.
        meta[PROGRESS_META_KEY] = _numbers(view.task.progress)
    if meta:
        result["_meta"] = meta
    return result


def _numbers(progress: Progress) -> Mapping[str, Json]:
    return {"done": progress.done} if progress.total is None else {"done": progress.done, "total": progress.total}


def ack() -> shapes.UpdateTaskResult:
    """Return the answer to `tasks/update` and `tasks/cancel`, which does not depend on their effect."""
    return {"resultType": "complete"}


def cancel_refused(error: CancelRefused) -> shapes.CancelTaskResult:
    """Return the answer to a refused cancel. The protocol always acknowledges a cancel; the refusal is in `_meta`."""
    return {"resultType": "complete", "_meta": {CANCEL_REFUSED_META_KEY: describe_refusal(error)}}


def missing_capability() -> tuple[int, str, dict[str, Json]]:
    """Return code, message and data of the error for a request that did not declare the extension."""
    message = f"this request needs the extension {EXTENSION}: declare it in the request's client capabilities"
    return MISSING_CAPABILITY, message, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
