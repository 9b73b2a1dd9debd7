"""Checks of reading a task with `tasks/get`, and of all methods that take a task id."""

from raincheck.conformance.caller import UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import Check, check
from raincheck.conformance.messages import Message, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import (
    INVALID_PARAMS,
    RELATED_TASK,
    expect_error,
    expect_result,
    expect_task,
    expect_unrelated,
)


@check(
    "v2025-get-at-once",
    RequirementLevel.MUST,
    "Getting Tasks",
    "A task can be read as soon as its id is returned.",
    "calls",
    "quick",
)
async def get_at_once(caller: ConformanceClient) -> None:
    for _ in range(3):
        new_task = await caller.start_task("quick")
        expect_result(await caller.get_task(new_task.id))


@check(
    "v2025-get-shape",
    RequirementLevel.MUST,
    "Getting Tasks",
    "The result of tasks/get is the task, with fields of the right types.",
    "calls",
    "quick",
)
async def get_shape(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    await caller.wait_for_end(new_task.id)
    expect_task(
        expect_result(await caller.get_task(new_task.id)), "tasks/get", "status", "statusMessage", "pollInterval"
    )


@check(
    "v2025-get-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Related Task Metadata",
    "The result of tasks/get does not repeat the task's id in its _meta.",
    "calls",
    "quick",
)
async def get_no_related_task(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    expect_unrelated(expect_result(await caller.get_task(new_task.id)), "the result of tasks/get")


@check(
    "v2025-get-no-stream",
    RequirementLevel.SHOULD_NOT,
    "Input Required Status",
    "tasks/get opens no lasting stream: it carries only the response, and then ends.",
    "calls",
    "slow",
    "http",
)
async def get_no_stream(caller: ConformanceClient) -> None:
    # The specification asks for plain JSON where possible. Some SDKs open a stream for every answer: if the stream ends
    # with the answer, the caller is no worse off.
    new_task = await caller.start_task("slow")
    pending = await caller.connection.send("tasks/get", {"taskId": new_task.id})
    reply = await caller.connection.wait_for_reply(pending)
    await caller.wait_quiet_period()
    is_open, messages = caller.connection.stream_of(pending)
    if is_open or len(messages) > 1:
        problem = "is still open" if is_open else f"carried {shorten(messages)}"
        raise RequirementNotMet(f"tasks/get was answered on a stream ({reply.source}) that {problem}")


@check(
    "v2025-terminal-final",
    RequirementLevel.MUST_NOT,
    "Task Status Lifecycle",
    "A task that has ended never changes its status, whatever requests follow.",
    "calls",
    "quick",
)
async def terminal_final(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    status = (await caller.wait_for_end(new_task.id))["status"]
    await caller.get_result(new_task.id)
    await caller.call("quick", task={})
    later_status = await caller.get_status(new_task.id)
    if later_status != status:
        raise RequirementNotMet(f"the task was {status}, and is now {shorten(later_status)}")


def _unknown_id(method: str, section: str, *needs: str) -> Check:
    @check(
        f"v2025-{method}-unknown-32602",
        RequirementLevel.MUST,
        section,
        f"tasks/{method} rejects an unknown task id: -32602.",
        "calls",
        *needs,
    )
    async def unknown_id(caller: ConformanceClient) -> None:
        for task_id in (UNKNOWN_ID, ""):
            reply = await caller.connection.request(f"tasks/{method}", {"taskId": task_id})
            expect_error(reply, INVALID_PARAMS, f"tasks/{method} of the unknown id {task_id!r}")

    return unknown_id


def _invalid_id(method: str, section: str, *needs: str) -> Check:
    @check(
        f"v2025-{method}-invalid-32602",
        RequirementLevel.MUST,
        section,
        f"tasks/{method} rejects a taskId that is missing or not a string: -32602.",
        "calls",
        *needs,
    )
    async def invalid_id(caller: ConformanceClient) -> None:
        invalid: list[Message] = [{}, {"taskId": 7}, {"taskId": None}, {"taskId": [UNKNOWN_ID]}]
        for params in invalid:
            reply = await caller.connection.request(f"tasks/{method}", params)
            expect_error(reply, INVALID_PARAMS, f"tasks/{method} with {shorten(params)}")

    return invalid_id


PROTOCOL_ERRORS = "Protocol Errors"

get_unknown = _unknown_id("get", PROTOCOL_ERRORS)
result_unknown = _unknown_id("result", PROTOCOL_ERRORS)
cancel_unknown = _unknown_id("cancel", PROTOCOL_ERRORS, "cancel")
get_invalid = _invalid_id("get", PROTOCOL_ERRORS)
result_invalid = _invalid_id("result", PROTOCOL_ERRORS)
cancel_invalid = _invalid_id("cancel", PROTOCOL_ERRORS, "cancel")


def _related_to(task_id: str) -> Message:
    return {RELATED_TASK: {"taskId": task_id}}


@check(
    "v2025-get-related-task-ignored",
    RequirementLevel.MUST,
    "Associating Task-Related Messages",
    "tasks/get returns the task in its taskId, even if its _meta names another one.",
    "calls",
    "quick",
)
async def get_related_task_ignored(caller: ConformanceClient) -> None:
    requested, related = [await caller.start_task("quick") for _ in range(2)]
    for meta in (_related_to(related.id), _related_to(UNKNOWN_ID)):
        reply = await caller.get_task(requested.id, _meta=meta)
        if expect_result(reply).get("taskId") == related.id:
            raise RequirementNotMet(
                f"with the taskId {requested.id!r} and the _meta {shorten(meta)}, tasks/get returned {reply}"
            )


@check(
    "v2025-result-related-task-ignored",
    RequirementLevel.MUST,
    "Associating Task-Related Messages",
    "tasks/result returns the result of the task in its taskId, even if its _meta names another one.",
    "calls",
    "quick",
    "tool_error",
)
async def result_related_task_ignored(caller: ConformanceClient) -> None:
    requested, related = await caller.start_task("quick"), await caller.start_task("tool_error")
    reply = await caller.get_result(requested.id, _meta=_related_to(related.id))
    if expect_result(reply).get("isError") is True:
        raise RequirementNotMet(
            f"with the taskId {requested.id!r} and another task in _meta, "
            f"tasks/result returned {reply}, which is of the other task"
        )


@check(
    "v2025-cancel-related-task-ignored",
    RequirementLevel.MUST,
    "Associating Task-Related Messages",
    "tasks/cancel cancels the task in its taskId, even if its _meta names another one.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_related_task_ignored(caller: ConformanceClient) -> None:
    requested, related = [await caller.start_task("slow") for _ in range(2)]
    expect_result(await caller.cancel_task(requested.id, _meta=_related_to(related.id)))
    if await caller.get_status(related.id) == "cancelled":
        raise RequirementNotMet("the task that _meta names was cancelled, not the one in taskId")


CHECKS = (
    get_at_once,
    get_shape,
    get_no_related_task,
    get_no_stream,
    terminal_final,
    get_unknown,
    result_unknown,
    cancel_unknown,
    get_invalid,
    result_invalid,
    cancel_invalid,
    get_related_task_ignored,
    result_related_task_ignored,
    cancel_related_task_ignored,
)
