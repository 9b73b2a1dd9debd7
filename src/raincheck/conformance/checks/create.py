"""Checks of creating a task, and of the result that its creator receives."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import MUST, SHOULD, Topic
from raincheck.conformance.connection import is_object, shorten
from raincheck.conformance.requirements import (
    IMMEDIATE_RESPONSE,
    INVALID_PARAMS,
    TERMINAL,
    NotApplicable,
    RequirementNotMet,
    expect,
    expect_error,
    expect_result,
    expect_task,
    task_in,
)

topic = Topic("Creating", "Task ID Requirements", "calls")

MIN_ID_LENGTH = 10
MIN_ID_DISTANCE = 1_000_000
RESULT_FIELDS = ("content", "structuredContent", "isError")


@topic.check(MUST, "v2025-create-result", "quick", section="Result Retrieval")
async def create_result(caller: ConformanceClient) -> None:
    """A call that is accepted as a task returns the task, in `task`, and not the tool's result."""
    new_task = await caller.start_task("quick")
    if extra := [field for field in RESULT_FIELDS if field in new_task.result]:
        raise RequirementNotMet(
            f"the result has {', '.join(extra)} beside the task: only tasks/result may return the tool's result"
        )


@topic.check(MUST, "v2025-create-shape", "quick", section="Creating Tasks")
async def create_shape(caller: ConformanceClient) -> None:
    """A created task has a known status, and statusMessage and pollInterval have the right types."""
    expect_task((await caller.start_task("quick")).task, "the created task", "status", "statusMessage", "pollInterval")


@topic.check(MUST, "v2025-create-working", "quick", section="Task Status Lifecycle")
async def create_working(caller: ConformanceClient) -> None:
    """A task starts as working, however soon it ends."""
    status = (await caller.start_task("quick")).task.get("status")
    expect(status == "working", f"a task started as {shorten(status)}; expected working")


@topic.check(SHOULD, "v2025-create-soon", "slow", section="Result Retrieval")
async def create_soon(caller: ConformanceClient) -> None:
    """The call is answered before the work is done."""
    new_task = await caller.start_task("slow")
    status = await caller.get_status(new_task.id)
    expect(status not in TERMINAL, f"the task was already {status} when the call was answered")


@topic.check(MUST, "v2025-task-id-string", "quick")
async def task_id_string(caller: ConformanceClient) -> None:
    """A task's id is a string, and every result has the same one."""
    result = expect_result(await caller.call("quick", task={}))
    task = expect_task(result.get("task"), "the created task", "taskId")
    read = expect_task(expect_result(await caller.get_task(task["taskId"])), "tasks/get", "taskId")
    expect(read["taskId"] == task["taskId"], f"tasks/get of {task['taskId']!r} returned the task {read['taskId']!r}")


@topic.check(MUST, "v2025-task-id-unique", "quick")
async def task_id_unique(caller: ConformanceClient) -> None:
    """No two tasks have the same id."""
    ids = [(await caller.start_task("quick")).id for _ in range(5)]
    if len(set(ids)) < len(ids):
        raise RequirementNotMet(f"five calls of the same tool created tasks with the ids {', '.join(ids)}")


@topic.check(MUST, "v2025-task-id-generated", "quick")
async def task_id_generated(caller: ConformanceClient) -> None:
    """The server generates task ids: it does not use one that the client sends in `task`."""
    requested_id = "an-id-that-the-client-chose"
    reply = await caller.call("quick", task={"ttl": 60_000, "taskId": requested_id})
    if reply.error is None and task_in(expect_result(reply)).get("taskId") == requested_id:
        raise RequirementNotMet(f"the task has the id {requested_id!r}, which the client chose")


@topic.check(
    MUST, "v2025-task-id-unguessable", "quick", "http", "no headers", section="Task Isolation and Access Control"
)
async def task_id_unguessable(caller: ConformanceClient) -> None:
    """If the server can't identify its callers, task ids can't be guessed: they are long and not sequential."""
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


@topic.check(SHOULD, "v2025-task-field-bad-32602", "quick", section="Task Parameters")
async def task_field_bad(caller: ConformanceClient) -> None:
    """A `task` that is not an object is rejected: -32602."""
    for invalid in (True, "yes", [1]):
        reply = await caller.call("quick", task=invalid)
        expect_error(reply, INVALID_PARAMS, f"a call with the task {shorten(invalid)}")


@topic.check(SHOULD, "v2025-progress-token-bad-32602", "quick", section="Progress: Progress Flow")
async def progress_token_bad(caller: ConformanceClient) -> None:
    """A progressToken that is neither a string nor a number is rejected: -32602."""
    for invalid in ({"a": 1}, [1]):
        reply = await caller.call("quick", task={}, _meta={"progressToken": invalid})
        expect_error(reply, INVALID_PARAMS, f"a call with the progressToken {shorten(invalid)}")


@topic.check(SHOULD, "v2025-immediate-response", "slow", section="Creating Tasks")
async def immediate_response(caller: ConformanceClient) -> None:
    """The immediate response for the client's model, if there is one, is a string."""
    meta = (await caller.start_task("slow")).result.get("_meta")
    if not is_object(meta) or IMMEDIATE_RESPONSE not in meta:
        raise NotApplicable(f"the server does not use {IMMEDIATE_RESPONSE}")
    if not isinstance(meta[IMMEDIATE_RESPONSE], str):
        raise RequirementNotMet(f"{IMMEDIATE_RESPONSE} is {shorten(meta[IMMEDIATE_RESPONSE])}; expected a string")
