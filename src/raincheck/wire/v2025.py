"""Tasks as the core protocol of 2025-11-25 has them, from what is stored.

The same task reads differently here in two ways. A result that reports a tool error makes its task `failed`, with the
error's text as the status message, since some hosts show nothing else. And the result is not part of the task: it is
fetched, and then says which task it belongs to, as does every message that is about a task and has no task in it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from raincheck.core.lifecycle import Status
from raincheck.core.payload import Json
from raincheck.core.records import InputRequest, Task, View
from raincheck.wire import v2025_types as shapes
from raincheck.wire.errors import CANCELLED, error_of
from raincheck.wire.fields import Request, as_object, milliseconds, moment, positive, request_of, state_meta
from raincheck.wire.results import INPUT_KEY, RELATED_TASK

VERSION = "2025-11-25"

IMMEDIATE = "io.modelcontextprotocol/model-immediate-response"
"""What a model may be told at once, in the place of the result that is not there yet."""


def status_of(task: Task) -> shapes.TaskStatus:
    """The status, which for a result that reports an error is not the one that is stored."""
    return "failed" if task.status is Status.COMPLETED and task.is_error else task.status.value


def task_fields(task: Task, *, poll_ms: int, now: datetime) -> shapes.Task:
    """What is said of a task wherever one is sent."""
    fields: shapes.Task = {
        "taskId": task.id,
        "status": status_of(task),
        "createdAt": moment(task.created_at),
        "lastUpdatedAt": moment(task.updated_at),
        "ttl": _ttl(task, now),
        "pollInterval": positive(poll_ms),
    }
    if task.status_message:
        fields["statusMessage"] = task.status_message
    return fields


def _ttl(task: Task, now: datetime) -> int | None:
    """What the caller may rely on. It asked for so much, gets at least that, and is told when it got more."""
    asked = task.retention.ttl
    if task.ttl is None and asked is not None and now < task.created_at + asked:
        return milliseconds(asked)
    return None if task.ttl is None else milliseconds(task.ttl)


def create_result(task: Task, *, poll_ms: int, now: datetime, meanwhile: str) -> shapes.CreateTaskResult:
    """The answer to a call that asked for a task. It has the task in it, so it does not say which one it belongs to."""
    return {"task": task_fields(task, poll_ms=poll_ms, now=now), "_meta": {IMMEDIATE: meanwhile, **state_meta(task)}}


def detailed(view: View, *, poll_ms: int, now: datetime) -> shapes.GetTaskResult:
    """The answer to `tasks/get`, and what is pushed."""
    fields = shown(view.task, poll_ms=poll_ms, now=now)
    if view.task.status is Status.FAILED and "statusMessage" not in fields:
        fields["statusMessage"] = error_of(view)["message"]
    return fields


def shown(task: Task, *, poll_ms: int, now: datetime) -> shapes.GetTaskResult:
    """A task as an answer of its own."""
    result: shapes.GetTaskResult = {**task_fields(task, poll_ms=poll_ms, now=now)}
    if task.state is not None:
        result["_meta"] = state_meta(task)
    return result


def page(tasks: Iterable[shapes.Task], cursor: str | None) -> shapes.ListTasksResult:
    """The answer to `tasks/list`."""
    result: shapes.ListTasksResult = {"tasks": list(tasks)}
    if cursor is not None:
        result["nextCursor"] = cursor
    return result


def related(task_id: str, meta: Json = None) -> dict[str, Json]:
    """The `_meta` of a message that belongs to a task, with whatever else it has."""
    return {**as_object(meta), RELATED_TASK: {"taskId": task_id}}


def progress(task: Task, token: str | int) -> shapes.ProgressNotificationParams | None:
    """How far a task is, for the token that came with its call; None if it has not said so."""
    if task.progress is None:
        return None
    params: shapes.ProgressNotificationParams = {
        "progressToken": token,
        "progress": task.progress.done,
        "_meta": related(task.id),
    }
    if task.progress.total is not None:
        params["total"] = task.progress.total
    if task.status_message:
        params["message"] = task.status_message
    return params


def question(asked: InputRequest, task_id: str) -> Request:
    """The request that asks what a task asks, with the key by which a client knows it when it is asked again."""
    request = request_of(asked)
    meta = {**related(task_id, request["params"].get("_meta")), INPUT_KEY: asked.key}
    request["params"] = {**request["params"], "_meta": meta}
    return request


def result(view: View, returned: Mapping[str, Json]) -> dict[str, Json]:
    """The answer to `tasks/result`: what the call would have returned, in words of that version, and whose it is."""
    told = {name: value for name, value in returned.items() if name != "resultType"}
    if not isinstance(told.get("structuredContent", {}), Mapping):
        # Only objects were structured then. What it says is in the content, too.
        del told["structuredContent"]
    return told | {"_meta": related(view.task.id, told.get("_meta"))}


def cancelled(task: Task) -> tuple[int, str, dict[str, Json]]:
    """Code, message and data of the error that is the result of a cancelled task."""
    reason = f": {task.status_message}" if task.status_message not in (None, "", "cancelled") else ""
    return CANCELLED, f"Task cancelled{reason}", {"_meta": related(task.id)}


def capability(*, may_list: bool) -> dict[str, Json]:
    """What a server says of itself in the handshake. Nothing is listed to callers that can't be told apart."""
    return {**({"list": {}} if may_list else {}), "cancel": {}, "requests": {"tools": {"call": {}}}}
