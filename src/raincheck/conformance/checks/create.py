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

SHORTEST_ID = 10
MIN_ID_DISTANCE = 1_000_000
RESULT_FIELDS = ("content", "structuredContent", "isError")


@check(
    "g1-create-result",
    RequirementLevel.MUST,
    "Result Retrieval",
    "A call that is accepted as a task is answered with the task, in `task`, and not with the tool's result.",
    "calls",
    "quick",
)
async def create_result(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    if found := [field for field in RESULT_FIELDS if field in begun.result]:
        raise RequirementNotMet(
            f"the answer has {', '.join(found)} beside the task: the tool's result is for tasks/result alone"
        )


@check(
    "g1-create-shape",
    RequirementLevel.MUST,
    "Creating Tasks",
    "The task that a creator is told has a known status, and statusMessage and pollInterval of the right kinds.",
    "calls",
    "quick",
)
async def create_shape(caller: ConformanceClient) -> None:
    expect_task((await caller.start_task("quick")).task, "the task", "status", "statusMessage", "pollInterval")


@check(
    "g1-create-working",
    RequirementLevel.MUST,
    "Task Status Lifecycle",
    "A task begins as working, however soon it ends.",
    "calls",
    "quick",
)
async def create_working(caller: ConformanceClient) -> None:
    status = (await caller.start_task("quick")).task.get("status")
    if status != "working":
        raise RequirementNotMet(f"a task began as {shorten(status)}, and working was due")


@check(
    "g1-create-soon",
    RequirementLevel.SHOULD,
    "Result Retrieval",
    "The creator is answered before the work is done.",
    "calls",
    "slow",
)
async def create_soon(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    status = await caller.get_status(begun.id)
    if status in TERMINAL:
        raise RequirementNotMet(f"when the call was answered, the task was {status} already")


@check(
    "g1-task-id-string",
    RequirementLevel.MUST,
    "Task ID Requirements",
    "A task's id is a string, and the same string wherever the task is told of.",
    "calls",
    "quick",
)
async def task_id_string(caller: ConformanceClient) -> None:
    result = expect_result(await caller.call("quick", task={}))
    task = expect_task(result.get("task"), "the created task", "taskId")
    told = expect_task(expect_result(await caller.get_task(task["taskId"])), "tasks/get", "taskId")
    if told["taskId"] != task["taskId"]:
        raise RequirementNotMet(f"tasks/get of {task['taskId']!r} told of {told['taskId']!r}")


@check(
    "g1-task-id-unique",
    RequirementLevel.MUST,
    "Task ID Requirements",
    "No two tasks have the same id.",
    "calls",
    "quick",
)
async def task_id_unique(caller: ConformanceClient) -> None:
    ids = [(await caller.start_task("quick")).id for _ in range(5)]
    if len(set(ids)) < len(ids):
        raise RequirementNotMet(f"five calls of the same tool made tasks with the ids {', '.join(ids)}")


@check(
    "g1-task-id-generated",
    RequirementLevel.MUST,
    "Task ID Requirements",
    "The server makes the ids: one that the caller writes into `task` is not used.",
    "calls",
    "quick",
)
async def task_id_generated(caller: ConformanceClient) -> None:
    wish = "an-id-that-the-caller-would-like"
    reply = await caller.call("quick", task={"ttl": 60_000, "taskId": wish})
    if reply.error is None and task_in(expect_result(reply)).get("taskId") == wish:
        raise RequirementNotMet(f"the task has the id {wish!r}, which the caller chose")


@check(
    "g1-task-id-unguessable",
    RequirementLevel.MUST,
    "Task Isolation and Access Control",
    "Where callers can't be told apart, ids can't be guessed: they are long, and no counters.",
    "calls",
    "quick",
    "http",
    "no headers",
)
async def task_id_unguessable(caller: ConformanceClient) -> None:
    first, second = [(await caller.start_task("quick")).id for _ in range(2)]
    if len(first) < SHORTEST_ID:
        raise RequirementNotMet(f"the id {first!r} has {len(first)} characters: so few can be tried out")
    left, right = (_as_number(one) for one in (first, second))
    if left is not None and right is not None and abs(left - right) < MIN_ID_DISTANCE:
        raise RequirementNotMet(f"the ids {first!r} and {second!r} are close: the next can be guessed")


def _as_number(task_id: str) -> int | None:
    try:
        return int(task_id.replace("-", "").replace("_", ""), 36)
    except ValueError:
        return None


@check(
    "g1-task-field-bad-32602",
    RequirementLevel.SHOULD,
    "Task Parameters",
    "A `task` that is not an object is refused: -32602.",
    "calls",
    "quick",
)
async def task_field_bad(caller: ConformanceClient) -> None:
    for wrong in (True, "yes", [1]):
        reply = await caller.call("quick", task=wrong)
        expect_error(reply, INVALID_PARAMS, f"a call with the task {shorten(wrong)}")


@check(
    "g1-progress-token-bad-32602",
    RequirementLevel.SHOULD,
    "Progress: Progress Flow",
    "A progressToken that is neither a string nor a number is refused: -32602.",
    "calls",
    "quick",
)
async def progress_token_bad(caller: ConformanceClient) -> None:
    for wrong in ({"a": 1}, [1]):
        reply = await caller.call("quick", task={}, _meta={"progressToken": wrong})
        expect_error(reply, INVALID_PARAMS, f"a call with the progressToken {shorten(wrong)}")


@check(
    "g1-immediate-response",
    RequirementLevel.SHOULD,
    "Creating Tasks",
    "What the creator gets for its model to read meanwhile, if anything, is a string.",
    "calls",
    "slow",
)
async def immediate_response(caller: ConformanceClient) -> None:
    meta = (await caller.start_task("slow")).result.get("_meta")
    if not is_object(meta) or IMMEDIATE_RESPONSE not in meta:
        raise NotApplicable(f"the server does not use {IMMEDIATE_RESPONSE}")
    if not isinstance(meta[IMMEDIATE_RESPONSE], str):
        raise RequirementNotMet(f"{IMMEDIATE_RESPONSE} is {shorten(meta[IMMEDIATE_RESPONSE])}, and should be a string")


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
