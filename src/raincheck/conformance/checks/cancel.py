"""Checks of cancelling a task: `tasks/cancel`."""

import asyncio
import time

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import MUST, SHOULD_NOT, Topic
from raincheck.conformance.connection import shorten
from raincheck.conformance.requirements import (
    INVALID_PARAMS,
    RequirementNotMet,
    expect,
    expect_error,
    expect_result,
    expect_task,
    expect_unrelated,
)

topic = Topic("Cancelling", "Task Cancellation", "calls")


async def _status_or_gone(caller: ConformanceClient, task_id: str) -> object:
    """Return the status of a cancelled task, which the server may delete at any time."""
    reply = await caller.get_task(task_id)
    if reply.error is not None:
        expect_error(reply, INVALID_PARAMS, "tasks/get of a cancelled task")
        return "cancelled"
    return expect_result(reply).get("status")


@topic.check(MUST, "v2025-cancel-status", "slow", "cancel")
async def cancel_status(caller: ConformanceClient) -> None:
    """tasks/cancel is answered once the task is cancelled, with the cancelled task."""
    new_task = await caller.start_task("slow")
    reply = await caller.cancel_running_task(new_task)
    expect(
        expect_result(reply).get("status") == "cancelled",
        f"tasks/cancel returned {reply}; expected the task with the status cancelled",
    )
    status = await _status_or_gone(caller, new_task.id)
    expect(status == "cancelled", f"the task is {shorten(status)} after tasks/cancel was answered; expected cancelled")


@topic.check(MUST, "v2025-cancel-shape", "slow", "cancel", section="Cancelling Tasks")
async def cancel_shape(caller: ConformanceClient) -> None:
    """The result of tasks/cancel is the task, with fields of the right types."""
    new_task, result = await caller.start_and_cancel("slow")
    task = expect_task(result, "tasks/cancel")
    expect(task["taskId"] == new_task.id, f"tasks/cancel of {new_task.id!r} returned the task {task['taskId']!r}")


@topic.check(MUST, "v2025-cancel-stays", "slow", "cancel")
async def cancel_stays(caller: ConformanceClient) -> None:
    """A cancelled task stays cancelled, even after its work would have ended."""
    new_task, _ = await caller.start_and_cancel("slow")
    while (seconds := time.monotonic() - new_task.started_at) < caller.role("slow").takes + caller.timings.quiet_period:
        status = await _status_or_gone(caller, new_task.id)
        expect(
            status == "cancelled",
            f"the cancelled task is {shorten(status)}, {seconds:.1f} s after it started; expected cancelled",
        )
        await asyncio.sleep(caller.timings.poll_interval)


@topic.check(MUST, "v2025-cancel-again-32602", "slow", "cancel")
async def cancel_again(caller: ConformanceClient) -> None:
    """A cancelled task can't be cancelled again: -32602."""
    new_task, _ = await caller.start_and_cancel("slow")
    expect_error(await caller.cancel_task(new_task.id), INVALID_PARAMS, "tasks/cancel of a cancelled task")


@topic.check(MUST, "v2025-cancel-completed-32602", "quick", "cancel")
async def cancel_completed(caller: ConformanceClient) -> None:
    """A completed task can't be cancelled: -32602, and it stays completed."""
    new_task = await caller.start_task("quick")
    await caller.wait_for_status(new_task.id, {"completed"})
    expect_error(await caller.cancel_task(new_task.id), INVALID_PARAMS, "tasks/cancel of a completed task")
    status = await caller.get_status(new_task.id)
    expect(status == "completed", f"the completed task is {shorten(status)} after a cancellation that was rejected")


@topic.check(MUST, "v2025-cancel-failed-32602", "protocol_error", "cancel")
async def cancel_failed(caller: ConformanceClient) -> None:
    """A failed task can't be cancelled: -32602, and it stays failed."""
    new_task, ended = await caller.run_task("protocol_error")
    before = ended["status"]
    expect_error(await caller.cancel_task(new_task.id), INVALID_PARAMS, f"tasks/cancel of a {before} task")
    status = await caller.get_status(new_task.id)
    expect(status == before, f"the {before} task is {shorten(status)} after a cancellation that was rejected")


@topic.check(MUST, "v2025-cancel-result", "slow", "cancel", section="Result Retrieval")
async def cancel_result(caller: ConformanceClient) -> None:
    """tasks/result of a cancelled task returns an error, or a complete result of the tool."""
    new_task, _ = await caller.start_and_cancel("slow")
    reply = await caller.get_result(new_task.id)
    if reply.error is None and not isinstance(expect_result(reply).get("content"), list):
        raise RequirementNotMet(
            f"tasks/result of a cancelled task returned {reply}; expected an error, or a result with content"
        )


@topic.check(MUST, "v2025-cancel-wakes", "slow", "cancel", section="Result Retrieval")
async def cancel_wakes(caller: ConformanceClient) -> None:
    """A pending tasks/result is answered when the task is cancelled."""
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    await caller.get_status(new_task.id)  # so that the server receives tasks/result before tasks/cancel
    expect_result(await caller.cancel_running_task(new_task))
    await caller.wait_for_reply(pending)


@topic.check(MUST, "v2025-cancel-input-required", "asks", "cancel", section="Task Status Lifecycle")
async def cancel_input_required(caller: ConformanceClient) -> None:
    """A task that waits for input can be cancelled."""
    with caller.hold_requests("elicitation/create"):
        new_task = await caller.start_task("asks")
        # Not `wait_for_status`: a server that never reports input_required is at fault elsewhere and may still cancel.
        while time.monotonic() < new_task.started_at + caller.timings.quiet_period:
            if await caller.get_status(new_task.id) == "input_required":
                break
            await asyncio.sleep(caller.timings.poll_interval)
        reply = await caller.cancel_task(new_task.id)
        expect(
            expect_result(reply).get("status") == "cancelled",
            f"tasks/cancel returned {reply}; expected the task with the status cancelled",
        )
        await caller.wait_quiet_period()
        status = await _status_or_gone(caller, new_task.id)
        expect(status == "cancelled", f"a task that was cancelled while it waited for input is {shorten(status)}")


@topic.check(SHOULD_NOT, "v2025-cancel-no-related-task", "slow", "cancel", section="Related Task Metadata")
async def cancel_no_related_task(caller: ConformanceClient) -> None:
    """The result of tasks/cancel does not repeat the task's id in its _meta."""
    _, result = await caller.start_and_cancel("slow")
    expect_unrelated(result, "the result of tasks/cancel")
