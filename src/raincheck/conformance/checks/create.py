"""How a task begins, and what its creator is told."""

from raincheck.conformance.caller import Caller
from raincheck.conformance.check import check
from raincheck.conformance.messages import is_object, shorten
from raincheck.conformance.outcome import Inapplicable, Level, Unmet
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
NEARBY = 1_000_000
RESULT_FIELDS = ("content", "structuredContent", "isError")


@check(
    "g1-create-result",
    Level.MUST,
    "Result Retrieval",
    "A call that is accepted as a task is answered with the task, in `task`, and not with the tool's result.",
    "calls",
    "quick",
)
async def create_result(caller: Caller) -> None:
    begun = await caller.begin("quick")
    if found := [field for field in RESULT_FIELDS if field in begun.result]:
        raise Unmet(f"the answer has {', '.join(found)} beside the task: the tool's result is for tasks/result alone")


@check(
    "g1-create-shape",
    Level.MUST,
    "Creating Tasks",
    "The task that a creator is told has a known status, and statusMessage and pollInterval of the right kinds.",
    "calls",
    "quick",
)
async def create_shape(caller: Caller) -> None:
    expect_task((await caller.begin("quick")).task, "the task", "status", "statusMessage", "pollInterval")


@check(
    "g1-create-working",
    Level.MUST,
    "Task Status Lifecycle",
    "A task begins as working, however soon it ends.",
    "calls",
    "quick",
)
async def create_working(caller: Caller) -> None:
    status = (await caller.begin("quick")).task.get("status")
    if status != "working":
        raise Unmet(f"a task began as {shorten(status)}, and working was due")


@check(
    "g1-create-soon",
    Level.SHOULD,
    "Result Retrieval",
    "The creator is answered before the work is done.",
    "calls",
    "slow",
)
async def create_soon(caller: Caller) -> None:
    begun = await caller.begin("slow")
    status = await caller.status(begun.id)
    if status in TERMINAL:
        raise Unmet(f"when the call was answered, the task was {status} already")


@check(
    "g1-task-id-string",
    Level.MUST,
    "Task ID Requirements",
    "A task's id is a string, and the same string wherever the task is told of.",
    "calls",
    "quick",
)
async def task_id_string(caller: Caller) -> None:
    result = expect_result(await caller.call("quick", task={}))
    task = expect_task(result.get("task"), "the created task", "taskId")
    told = expect_task(expect_result(await caller.get(task["taskId"])), "tasks/get", "taskId")
    if told["taskId"] != task["taskId"]:
        raise Unmet(f"tasks/get of {task['taskId']!r} told of {told['taskId']!r}")


@check(
    "g1-task-id-unique",
    Level.MUST,
    "Task ID Requirements",
    "No two tasks have the same id.",
    "calls",
    "quick",
)
async def task_id_unique(caller: Caller) -> None:
    ids = [(await caller.begin("quick")).id for _ in range(5)]
    if len(set(ids)) < len(ids):
        raise Unmet(f"five calls of the same tool made tasks with the ids {', '.join(ids)}")


@check(
    "g1-task-id-generated",
    Level.MUST,
    "Task ID Requirements",
    "The server makes the ids: one that the caller writes into `task` is not used.",
    "calls",
    "quick",
)
async def task_id_generated(caller: Caller) -> None:
    wish = "an-id-that-the-caller-would-like"
    reply = await caller.call("quick", task={"ttl": 60_000, "taskId": wish})
    if reply.error is None and task_in(expect_result(reply)).get("taskId") == wish:
        raise Unmet(f"the task has the id {wish!r}, which the caller chose")


@check(
    "g1-task-id-unguessable",
    Level.MUST,
    "Task Isolation and Access Control",
    "Where callers can't be told apart, ids can't be guessed: they are long, and no counters.",
    "calls",
    "quick",
    "http",
    "no headers",
)
async def task_id_unguessable(caller: Caller) -> None:
    first, second = [(await caller.begin("quick")).id for _ in range(2)]
    if len(first) < SHORTEST_ID:
        raise Unmet(f"the id {first!r} has {len(first)} characters: so few can be tried out")
    left, right = (_as_number(one) for one in (first, second))
    if left is not None and right is not None and abs(left - right) < NEARBY:
        raise Unmet(f"the ids {first!r} and {second!r} are close: the next can be guessed")


def _as_number(task_id: str) -> int | None:
    try:
        return int(task_id.replace("-", "").replace("_", ""), 36)
    except ValueError:
        return None


@check(
    "g1-task-field-bad-32602",
    Level.SHOULD,
    "Task Parameters",
    "A `task` that is not an object is refused: -32602.",
    "calls",
    "quick",
)
async def task_field_bad(caller: Caller) -> None:
    for wrong in (True, "yes", [1]):
        reply = await caller.call("quick", task=wrong)
        expect_error(reply, INVALID_PARAMS, f"a call with the task {shorten(wrong)}")


@check(
    "g1-progress-token-bad-32602",
    Level.SHOULD,
    "Progress: Progress Flow",
    "A progressToken that is neither a string nor a number is refused: -32602.",
    "calls",
    "quick",
)
async def progress_token_bad(caller: Caller) -> None:
    for wrong in ({"a": 1}, [1]):
        reply = await caller.call("quick", task={}, _meta={"progressToken": wrong})
        expect_error(reply, INVALID_PARAMS, f"a call with the progressToken {shorten(wrong)}")


@check(
    "g1-immediate-response",
    Level.SHOULD,
    "Creating Tasks",
    "What the creator gets for its model to read meanwhile, if anything, is a string.",
    "calls",
    "slow",
)
async def immediate_response(caller: Caller) -> None:
    meta = (await caller.begin("slow")).result.get("_meta")
    if not is_object(meta) or IMMEDIATE_RESPONSE not in meta:
        raise Inapplicable(f"the server does not use {IMMEDIATE_RESPONSE}")
    if not isinstance(meta[IMMEDIATE_RESPONSE], str):
        raise Unmet(f"{IMMEDIATE_RESPONSE} is {shorten(meta[IMMEDIATE_RESPONSE])}, and should be a string")


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
