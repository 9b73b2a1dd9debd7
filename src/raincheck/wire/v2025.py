"""Translate stored records to the messages of protocol version 2025-11-25.

A task differs in two ways from 2026-07-28. A result that reports a tool error makes its task `failed`, with the error's
text as the status message, since some hosts show nothing else. The result is not part of the task, so the caller
fetches it separately. The result names the task that it belongs to, as does every message about a task that does not
contain the task itself.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from raincheck.core.lifecycle import Status
from raincheck.core.records import InputRequest, Task, View
from raincheck.core.values import Json
from raincheck.wire import v2025_types as shapes
from raincheck.wire.errors import CANCELLED, error_of
from raincheck.wire.fields import (
    INPUT_META_KEY,
    RELATED_TASK,
    CallerRequest,
    as_object,
    clamp_positive,
    format_timestamp,
    request_of,
    state_meta,
    to_milliseconds,
)

VERSION = "2025-11-25"

IMMEDIATE_META_KEY = "io.modelcontextprotocol/model-immediate-response"
"""The `_meta` key of a text that a host may pass to its model immediately, while the result is not ready."""


def status_of(task: Task) -> shapes.TaskStatus:
    """Return the status on the wire, which differs from the stored one for a result that reports an error."""
    return "failed" if task.status is Status.COMPLETED and task.is_error else task.status.value


def task_fields(task: Task, *, poll_ms: int, now: datetime) -> shapes.Task:
    """Return the fields that every message with a task contains."""
    fields: shapes.Task = {
        "taskId": task.id,
        "status": status_of(task),
        "createdAt": format_timestamp(task.created_at),
        "lastUpdatedAt": format_timestamp(task.updated_at),
        "ttl": _ttl(task, now),
        "pollInterval": clamp_positive(poll_ms),
    }
    if task.status_message:
        fields["statusMessage"] = task.status_message
    return fields


def _ttl(task: Task, now: datetime) -> int | None:
    """Return the ttl that the caller may rely on: the requested one until that has passed, else the granted one."""
    requested = task.retention.ttl
    if task.ttl is None and requested is not None and now < task.created_at + requested:
        return to_milliseconds(requested)
    return None if task.ttl is None else to_milliseconds(task.ttl)


def create_result(task: Task, *, poll_ms: int, now: datetime, immediate_text: str) -> shapes.CreateTaskResult:
    """Return the answer to a call that requested a task. It contains the task, so it needs no related-task `_meta`."""
    return {
        "task": task_fields(task, poll_ms=poll_ms, now=now),
        "_meta": {IMMEDIATE_META_KEY: immediate_text, **state_meta(task)},
    }


def get_result(view: View, *, poll_ms: int, now: datetime) -> shapes.GetTaskResult:
    """Return the answer to `tasks/get`, which is also the content of status notifications."""
    fields = task_result(view.task, poll_ms=poll_ms, now=now)
    if view.task.status is Status.FAILED and "statusMessage" not in fields:
        fields["statusMessage"] = error_of(view)["message"]
    return fields


def task_result(task: Task, *, poll_ms: int, now: datetime) -> shapes.GetTaskResult:
    """Return a task as the whole answer to a request."""
    result: shapes.GetTaskResult = {**task_fields(task, poll_ms=poll_ms, now=now)}
    if task.state is not None:
        result["_meta"] = state_meta(task)
    return result


def list_result(tasks: Iterable[shapes.Task], cursor: str | None) -> shapes.ListTasksResult:
    """Return the answer to `tasks/list`."""
    result: shapes.ListTasksResult = {"tasks": list(tasks)}
    if cursor is not None:
        result["nextCursor"] = cursor
    return result


def related_meta(task_id: str, meta: Json = None) -> dict[str, Json]:
    """Return the `_meta` of a message that belongs to a task, merged with the message's own `_meta`."""
    return {**as_object(meta), RELATED_TASK: {"taskId": task_id}}


def progress_params(task: Task, token: str | int) -> shapes.ProgressNotificationParams | None:
    """Return the task's progress for the token of its call; None if the task has reported no progress."""
    if task.progress is None:
        return None
    params: shapes.ProgressNotificationParams = {
        "progressToken": token,
        "progress": task.progress.done,
        "_meta": related_meta(task.id),
    }
    if task.progress.total is not None:
        params["total"] = task.progress.total
    if task.status_message:
        params["message"] = task.status_message
    return params


def input_request(open_input: InputRequest, task_id: str) -> CallerRequest:
    """Return the request for a question, with a key by which a client recognizes a repeated request."""
    request = request_of(open_input)
    meta = {**related_meta(task_id, request["params"].get("_meta")), INPUT_META_KEY: open_input.key}
    request["params"] = {**request["params"], "_meta": meta}
    return request


def call_result(view: View, returned: Mapping[str, Json]) -> dict[str, Json]:
    """Return the answer to `tasks/result`: the result of the call in this version's form, with a related task."""
    result = {name: value for name, value in returned.items() if name != "resultType"}
    if not isinstance(result.get("structuredContent", {}), Mapping):
        # In this version structured content is always an object. The value is also in the content.
        del result["structuredContent"]
    return result | {"_meta": related_meta(view.task.id, result.get("_meta"))}


def cancelled_error(task: Task) -> tuple[int, str, dict[str, Json]]:
    """Return code, message and data of the error that answers `tasks/result` for a cancelled task."""
    reason = f": {task.status_message}" if task.status_message not in (None, "", "cancelled") else ""
    return CANCELLED, f"Task cancelled{reason}", {"_meta": related_meta(task.id)}


def capability(*, may_list: bool) -> dict[str, Json]:
    """Return the capability that a server declares in the handshake. Anonymous callers get no `tasks/list`."""
    return {**({"list": {}} if may_list else {}), "cancel": {}, "requests": {"tools": {"call": {}}}}
