"""Checks of creating a task, and of the result that its creator receives."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import is_object, shorten
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import (
    IMMEDIATE_RESPONSE,
    INVALID_PARAMS,
    TERMINAL,
    expect_error,
    expect_result,
    expect_task,
    task_in,
)

MIN_ID_LENGTH = 10
MIN_ID_DISTANCE = 1_000_000
RESULT_FIELDS = ("content", "structuredContent", "isError")


@check(
    "v2025-create-result",
    RequirementLevel.MUST,
    "Result Retrieval",
    "A call that is accepted as a task returns the task, in `task`, and not the tool's result.",
    "calls",
    "quick",
)
async def create_result(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    if extra := [field for field in RESULT_FIELDS if field in new_task.result]:
        raise RequirementNotMet(
            f"the result has {', '.join(extra)} beside the task: only tasks/result may return the tool's result"
        )


@check(
    "v2025-create-shape",
    RequirementLevel.MUST,
    "Creating Tasks",
    "A created task has a known status, and statusMessage and pollInterval have the right types.",
    "calls",
    "quick",
)
async def create_shape(caller: ConformanceClient) -> None:
    expect_task((await caller.start_task("quick")).task, "the created task", "status", "statusMessage", "pollInterval")


@check(
    "v2025-create-working",
    RequirementLevel.MUST,
    "Task Status Lifecycle",
    "A task starts as working, however soon it ends.",
    "calls",
    "quick",
)
async def create_working(caller: ConformanceClient) -> None:
    status = (await caller.start_task("quick")).task.get("status")
    if status != "working":
        raise RequirementNotMet(f"a task started as {shorten(status)}; expected working")


@check(
    "v2025-create-soon",
    RequirementLevel.SHOULD,
    "Result Retrieval",
    "The call is answered before the work is done.",
    "calls",
    "slow",
)
async def create_soon(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    status = await caller.get_status(new_task.id)
    if status in TERMINAL:
        raise RequirementNotMet(f"the task was already {status} when the call was answered")


@check(
    "v2025-task-id-string",
    RequirementLevel.MUST,
    "Task ID Requirements",
    "A task's id is a string, and every result has the same one.",
    "calls",
    "quick",
)
async def task_id_string(caller: ConformanceClient) -> None:
    result = expect_result(await caller.call("quick", task={}))
    task = expect_task(result.get("task"), "the created task", "taskId")
    read = expect_task(expect_result(await caller.get_task(task["taskId"])), "tasks/get", "taskId")
    if read["taskId"] != task["taskId"]:
        raise RequirementNotMet(f"tasks/get of {task['taskId']!r} returned the task {read['taskId']!r}")


@check(
    "v2025-task-id-unique",
    RequirementLevel.MUST,
    "Task ID Requirements",
    "No two tasks have the same id.",
    "calls",
    "quick",
)
async def task_id_unique(caller: ConformanceClient) -> None:
    ids = [(await caller.start_task("quick")).id for _ in range(5)]
    if len(set(ids)) < len(ids):
        raise RequirementNotMet(f"five calls of the same tool created tasks with the ids {', '.join(ids)}")


@check(
    "v2025-task-id-generated",
    RequirementLevel.MUST,
    "Task ID Requirements",
    "The server generates task ids: it does not use one that the client sends in `task`.",
    "calls",
    "quick",
)
async def task_id_generated(caller: ConformanceClient) -> None:
    requested_id = "an-id-that-the-client-chose"
    reply = await caller.call("quick", task={"ttl": 60_000, "taskId": requested_id})
    if reply.error is None and task_in(expect_result(reply)).get("taskId") == requested_id:
        raise RequirementNotMet(f"the task has the id {requested_id!r}, which the client chose")


@check(
    "v2025-task-id-unguessable",
    RequirementLevel.MUST,
    "Task Isolation and Access Control",
    "If the server can't identify its callers, task ids can't be guessed: they are long and not sequential.",
    "calls",
    "quick",
    "http",
    "no headers",
)
async def task_id_unguessable(caller: ConformanceClient) -> None:
    first, second = [(await caller.start_task("quick")).id for _ in range(2)]
    if len(first) < MIN_ID_LENGTH:
        raise RequirementNotMet(f"the id {first!r} has only {len(first)} characters, few enough to try them all")
    left, right = (_as_number(task_id) for task_id in (first, second))
    if left is not None and right is not None and abs(left - right) < MIN_ID_DISTANCE:
        raise RequirementNotMet(f"the ids {first!r} and {second!r} are so close that the next can be guessed")


def _as_number(task_id: str) -> int | None:
    try:
        return int(task_id.replace("-", "").replace("_", ""), 36)
    except ValueError:
        return None


@check(
    "v2025-task-field-bad-32602",
    RequirementLevel.SHOULD,
    "Task Parameters",
    "A `task` that is not an object is rejected: -32602.",
    "calls",
    "quick",
)
async def task_field_bad(caller: ConformanceClient) -> None:
    for invalid in (True, "yes", [1]):
        reply = await caller.call("quick", task=invalid)
        expect_error(reply, INVALID_PARAMS, f"a call with the task {shorten(invalid)}")


@check(
    "v2025-progress-token-bad-32602",
    RequirementLevel.SHOULD,
    "Progress: Progress Flow",
    "A progressToken that is neither a string nor a number is rejected: -32602.",
    "calls",
    "quick",
)
async def progress_token_bad(caller: ConformanceClient) -> None:
    for invalid in ({"a": 1}, [1]):
        reply = await caller.call("quick", task={}, _meta={"progressToken": invalid})
        expect_error(reply, INVALID_PARAMS, f"a call with the progressToken {shorten(invalid)}")


@check(
    "v2025-immediate-response",
    RequirementLevel.SHOULD,
    "Creating Tasks",
    "The immediate response for the client's model, if there is one, is a string.",
    "calls",
    "slow",
)
async def immediate_response(caller: ConformanceClient) -> None:
    meta = (await caller.start_task("slow")).result.get("_meta")
    if not is_object(meta) or IMMEDIATE_RESPONSE not in meta:
        raise NotApplicable(f"the server does not use {IMMEDIATE_RESPONSE}")
    if not isinstance(meta[IMMEDIATE_RESPONSE], str):
        raise RequirementNotMet(f"{IMMEDIATE_RESPONSE} is {shorten(meta[IMMEDIATE_RESPONSE])}; expected a string")


CHECKS = (
    create_result,
    create_shape,
    create_working,
    create_soon,
    task_id_string,
    task_id_unique,
    task_id_generated,
    task_id_unguessable,
    task_field_bad,
    progress_token_bad,
    immediate_response,
)
