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
    "g1-cancel-status",
    RequirementLevel.MUST,
    SECTION,
    "tasks/cancel answers when the task is cancelled, with the task.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_status(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    reply = await caller.cancel_running_task(begun)
    if expect_result(reply).get("status") != "cancelled":
        raise RequirementNotMet(f"tasks/cancel gave {reply}, and the task with the status cancelled was due")
    status = await _status_or_gone(caller, begun.id)
    if status != "cancelled":
        raise RequirementNotMet(f"after tasks/cancel was answered, the task is {shorten(status)}")


@check(
    "g1-cancel-shape",
    RequirementLevel.MUST,
    "Cancelling Tasks",
    "tasks/cancel answers with the fields of the task themselves, of the right kinds.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_shape(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    task = expect_task(expect_result(await caller.cancel_running_task(begun)), "tasks/cancel")
    if task["taskId"] != begun.id:
        raise RequirementNotMet(f"tasks/cancel of {begun.id!r} told of {task['taskId']!r}")


@check(
    "g1-cancel-stays",
    RequirementLevel.MUST,
    SECTION,
    "A cancelled task stays cancelled, also when its work would have ended.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_stays(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    expect_result(await caller.cancel_running_task(begun))
    while time.monotonic() < begun.started_at + caller.role("slow").takes + caller.timings.quiet_period:
        status = await _status_or_gone(caller, begun.id)
        if status != "cancelled":
            raise RequirementNotMet(
                f"{time.monotonic() - begun.started_at:.1f} s after it began, the cancelled task is {shorten(status)}"
            )
        await asyncio.sleep(caller.timings.poll_interval)


@check(
    "g1-cancel-again-32602",
    RequirementLevel.MUST,
    SECTION,
    "A cancelled task can't be cancelled again: -32602.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_again(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    expect_result(await caller.cancel_running_task(begun))
    expect_error(await caller.cancel_task(begun.id), INVALID_PARAMS, "tasks/cancel of a cancelled task")


@check(
    "g1-cancel-completed-32602",
    RequirementLevel.MUST,
    SECTION,
    "A completed task can't be cancelled: -32602, and it stays completed.",
    "calls",
    "quick",
    "cancel",
)
async def cancel_completed(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    await caller.wait_for_status(begun.id, {"completed"})
    expect_error(await caller.cancel_task(begun.id), INVALID_PARAMS, "tasks/cancel of a completed task")
    status = await caller.get_status(begun.id)
    if status != "completed":
        raise RequirementNotMet(f"after a cancel that was refused, the completed task is {shorten(status)}")


@check(
    "g1-cancel-failed-32602",
    RequirementLevel.MUST,
    SECTION,
    "A failed task can't be cancelled: -32602, and it stays failed.",
    "calls",
    "protocol_error",
    "cancel",
)
async def cancel_failed(caller: ConformanceClient) -> None:
    begun = await caller.start_task("protocol_error")
    before = (await caller.wait_for_end(begun.id))["status"]
    expect_error(await caller.cancel_task(begun.id), INVALID_PARAMS, f"tasks/cancel of a {before} task")
    status = await caller.get_status(begun.id)
    if status != before:
        raise RequirementNotMet(f"after a cancel that was refused, the {before} task is {shorten(status)}")


@check(
    "g1-cancel-result",
    RequirementLevel.MUST,
    "Result Retrieval",
    "tasks/result of a cancelled task is answered: with an error, or with a whole result of the tool.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_result(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    expect_result(await caller.cancel_running_task(begun))
    reply = await caller.get_result(begun.id)
    if reply.error is None and not isinstance(expect_result(reply).get("content"), list):
        raise RequirementNotMet(
            f"tasks/result of a cancelled task gave {reply}, and an error was due, or a result with content"
        )


@check(
    "g1-cancel-wakes",
    RequirementLevel.MUST,
    "Result Retrieval",
    "Who waits in tasks/result is answered when the task is cancelled.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_wakes(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    waiting = await caller.request_result(begun.id)
    await caller.get_status(begun.id)  # so that the server receives tasks/result before tasks/cancel
    expect_result(await caller.cancel_running_task(begun))
    await caller.connection.wait_for_reply(waiting)


@check(
    "g1-cancel-input-required",
    RequirementLevel.MUST,
    "Task Status Lifecycle",
    "A task that waits for input can be cancelled too.",
    "calls",
    "asks",
    "cancel",
)
async def cancel_input_required(caller: ConformanceClient) -> None:
    with caller.connection.hold_requests("elicitation/create"):
        begun = await caller.start_task("asks")
        # Not `wait_for_status`: a server that never reports input_required is at fault elsewhere and may still cancel.
        while time.monotonic() < begun.started_at + caller.timings.quiet_period:
            if await caller.get_status(begun.id) == "input_required":
                break
            await asyncio.sleep(caller.timings.poll_interval)
        reply = await caller.cancel_task(begun.id)
        if expect_result(reply).get("status") != "cancelled":
            raise RequirementNotMet(f"tasks/cancel gave {reply}, and the task with the status cancelled was due")
        await caller.wait_quiet_period()
        status = await _status_or_gone(caller, begun.id)
        if status != "cancelled":
            raise RequirementNotMet(f"a task that was cancelled while it waited for input is {shorten(status)} now")


@check(
    "g1-cancel-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Related Task Metadata",
    "The answer of tasks/cancel does not name the task once more in its _meta.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_no_related_task(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    expect_unrelated(expect_result(await caller.cancel_running_task(begun)), "the answer of tasks/cancel")


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
