"""Checks of cancelling a task: `tasks/cancel`."""

import asyncio
import time

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import INVALID_PARAMS, expect_error, expect_result, expect_task, expect_unrelated

SECTION = "Task Cancellation"


async def _status_or_gone(caller: ConformanceClient, task_id: str) -> object:
    """Return the status of a cancelled task, which the server may delete at any time."""
    reply = await caller.get_task(task_id)
    if reply.error is not None:
        expect_error(reply, INVALID_PARAMS, "tasks/get of a cancelled task")
        return "cancelled"
    return expect_result(reply).get("status")


@check(
    "v2025-cancel-status",
    RequirementLevel.MUST,
    SECTION,
    "tasks/cancel is answered once the task is cancelled, with the cancelled task.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_status(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    reply = await caller.cancel_running_task(new_task)
    if expect_result(reply).get("status") != "cancelled":
        raise RequirementNotMet(f"tasks/cancel returned {reply}; expected the task with the status cancelled")
    status = await _status_or_gone(caller, new_task.id)
    if status != "cancelled":
        raise RequirementNotMet(f"the task is {shorten(status)} after tasks/cancel was answered; expected cancelled")


@check(
    "v2025-cancel-shape",
    RequirementLevel.MUST,
    "Cancelling Tasks",
    "The result of tasks/cancel is the task, with fields of the right types.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_shape(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    task = expect_task(expect_result(await caller.cancel_running_task(new_task)), "tasks/cancel")
    if task["taskId"] != new_task.id:
        raise RequirementNotMet(f"tasks/cancel of {new_task.id!r} returned the task {task['taskId']!r}")


@check(
    "v2025-cancel-stays",
    RequirementLevel.MUST,
    SECTION,
    "A cancelled task stays cancelled, even after its work would have ended.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_stays(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    expect_result(await caller.cancel_running_task(new_task))
    while (seconds := time.monotonic() - new_task.started_at) < caller.role("slow").takes + caller.timings.quiet_period:
        status = await _status_or_gone(caller, new_task.id)
        if status != "cancelled":
            raise RequirementNotMet(
                f"the cancelled task is {shorten(status)}, {seconds:.1f} s after it started; expected cancelled"
            )
        await asyncio.sleep(caller.timings.poll_interval)


@check(
    "v2025-cancel-again-32602",
    RequirementLevel.MUST,
    SECTION,
    "A cancelled task can't be cancelled again: -32602.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_again(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    expect_result(await caller.cancel_running_task(new_task))
    expect_error(await caller.cancel_task(new_task.id), INVALID_PARAMS, "tasks/cancel of a cancelled task")


@check(
    "v2025-cancel-completed-32602",
    RequirementLevel.MUST,
    SECTION,
    "A completed task can't be cancelled: -32602, and it stays completed.",
    "calls",
    "quick",
    "cancel",
)
async def cancel_completed(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    await caller.wait_for_status(new_task.id, {"completed"})
    expect_error(await caller.cancel_task(new_task.id), INVALID_PARAMS, "tasks/cancel of a completed task")
    status = await caller.get_status(new_task.id)
    if status != "completed":
        raise RequirementNotMet(f"the completed task is {shorten(status)} after a cancellation that was rejected")


@check(
    "v2025-cancel-failed-32602",
    RequirementLevel.MUST,
    SECTION,
    "A failed task can't be cancelled: -32602, and it stays failed.",
    "calls",
    "protocol_error",
    "cancel",
)
async def cancel_failed(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("protocol_error")
    before = (await caller.wait_for_end(new_task.id))["status"]
    expect_error(await caller.cancel_task(new_task.id), INVALID_PARAMS, f"tasks/cancel of a {before} task")
    status = await caller.get_status(new_task.id)
    if status != before:
        raise RequirementNotMet(f"the {before} task is {shorten(status)} after a cancellation that was rejected")


@check(
    "v2025-cancel-result",
    RequirementLevel.MUST,
    "Result Retrieval",
    "tasks/result of a cancelled task returns an error, or a complete result of the tool.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_result(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    expect_result(await caller.cancel_running_task(new_task))
    reply = await caller.get_result(new_task.id)
    if reply.error is None and not isinstance(expect_result(reply).get("content"), list):
        raise RequirementNotMet(
            f"tasks/result of a cancelled task returned {reply}; expected an error, or a result with content"
        )


@check(
    "v2025-cancel-wakes",
    RequirementLevel.MUST,
    "Result Retrieval",
    "A pending tasks/result is answered when the task is cancelled.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_wakes(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    await caller.get_status(new_task.id)  # so that the server receives tasks/result before tasks/cancel
    expect_result(await caller.cancel_running_task(new_task))
    await caller.connection.wait_for_reply(pending)


@check(
    "v2025-cancel-input-required",
    RequirementLevel.MUST,
    "Task Status Lifecycle",
    "A task that waits for input can be cancelled.",
    "calls",
    "asks",
    "cancel",
)
async def cancel_input_required(caller: ConformanceClient) -> None:
    with caller.connection.hold_requests("elicitation/create"):
        new_task = await caller.start_task("asks")
        # Not `wait_for_status`: a server that never reports input_required is at fault elsewhere and may still cancel.
        while time.monotonic() < new_task.started_at + caller.timings.quiet_period:
            if await caller.get_status(new_task.id) == "input_required":
                break
            await asyncio.sleep(caller.timings.poll_interval)
        reply = await caller.cancel_task(new_task.id)
        if expect_result(reply).get("status") != "cancelled":
            raise RequirementNotMet(f"tasks/cancel returned {reply}; expected the task with the status cancelled")
        await caller.wait_quiet_period()
        status = await _status_or_gone(caller, new_task.id)
        if status != "cancelled":
            raise RequirementNotMet(f"a task that was cancelled while it waited for input is {shorten(status)}")


@check(
    "v2025-cancel-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Related Task Metadata",
    "The result of tasks/cancel does not repeat the task's id in its _meta.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_no_related_task(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    expect_unrelated(expect_result(await caller.cancel_running_task(new_task)), "the result of tasks/cancel")


CHECKS = (
    cancel_status,
    cancel_shape,
    cancel_stays,
    cancel_again,
    cancel_completed,
    cancel_failed,
    cancel_result,
    cancel_wakes,
    cancel_input_required,
    cancel_no_related_task,
)
