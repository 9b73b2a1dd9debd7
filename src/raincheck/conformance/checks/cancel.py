"""Cancelling a task: `tasks/cancel`."""

import asyncio
import time

from raincheck.conformance.caller import Caller
from raincheck.conformance.check import check
from raincheck.conformance.messages import shorten
from raincheck.conformance.outcome import Level, Unmet
from raincheck.conformance.shapes import INVALID_PARAMS, expect_error, expect_result, expect_task, expect_unrelated

SECTION = "Task Cancellation"


async def _status_or_gone(caller: Caller, task_id: str) -> object:
    """The status of a task that may be deleted at any time, since it was cancelled."""
    reply = await caller.get(task_id)
    if reply.error is not None:
        expect_error(reply, INVALID_PARAMS, "tasks/get of a cancelled task")
        return "cancelled"
    return expect_result(reply).get("status")


@check(
    "g1-cancel-status",
    Level.MUST,
    SECTION,
    "tasks/cancel answers when the task is cancelled, with the task.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_status(caller: Caller) -> None:
    begun = await caller.begin("slow")
    reply = await caller.cancel_live(begun)
    if expect_result(reply).get("status") != "cancelled":
        raise Unmet(f"tasks/cancel gave {reply}, and the task with the status cancelled was due")
    status = await _status_or_gone(caller, begun.id)
    if status != "cancelled":
        raise Unmet(f"after tasks/cancel was answered, the task is {shorten(status)}")


@check(
    "g1-cancel-shape",
    Level.MUST,
    "Cancelling Tasks",
    "tasks/cancel answers with the fields of the task themselves, of the right kinds.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_shape(caller: Caller) -> None:
    begun = await caller.begin("slow")
    task = expect_task(expect_result(await caller.cancel_live(begun)), "tasks/cancel")
    if task["taskId"] != begun.id:
        raise Unmet(f"tasks/cancel of {begun.id!r} told of {task['taskId']!r}")


@check(
    "g1-cancel-stays",
    Level.MUST,
    SECTION,
    "A cancelled task stays cancelled, also when its work would have ended.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_stays(caller: Caller) -> None:
    begun = await caller.begin("slow")
    expect_result(await caller.cancel_live(begun))
    while time.monotonic() < begun.at + caller.role("slow").takes + caller.pace.quiet:
        status = await _status_or_gone(caller, begun.id)
        if status != "cancelled":
            raise Unmet(f"{time.monotonic() - begun.at:.1f} s after it began, the cancelled task is {shorten(status)}")
        await asyncio.sleep(caller.pace.poll)


@check(
    "g1-cancel-again-32602",
    Level.MUST,
    SECTION,
    "A cancelled task can't be cancelled again: -32602.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_again(caller: Caller) -> None:
    begun = await caller.begin("slow")
    expect_result(await caller.cancel_live(begun))
    expect_error(await caller.cancel(begun.id), INVALID_PARAMS, "tasks/cancel of a cancelled task")


@check(
    "g1-cancel-completed-32602",
    Level.MUST,
    SECTION,
    "A completed task can't be cancelled: -32602, and it stays completed.",
    "calls",
    "quick",
    "cancel",
)
async def cancel_completed(caller: Caller) -> None:
    begun = await caller.begin("quick")
    await caller.until(begun.id, {"completed"})
    expect_error(await caller.cancel(begun.id), INVALID_PARAMS, "tasks/cancel of a completed task")
    status = await caller.status(begun.id)
    if status != "completed":
        raise Unmet(f"after a cancel that was refused, the completed task is {shorten(status)}")


@check(
    "g1-cancel-failed-32602",
    Level.MUST,
    SECTION,
    "A failed task can't be cancelled: -32602, and it stays failed.",
    "calls",
    "protocol_error",
    "cancel",
)
async def cancel_failed(caller: Caller) -> None:
    begun = await caller.begin("protocol_error")
    before = (await caller.ended(begun.id))["status"]
    expect_error(await caller.cancel(begun.id), INVALID_PARAMS, f"tasks/cancel of a {before} task")
    status = await caller.status(begun.id)
    if status != before:
        raise Unmet(f"after a cancel that was refused, the {before} task is {shorten(status)}")


@check(
    "g1-cancel-result",
    Level.MUST,
    "Result Retrieval",
    "tasks/result of a cancelled task is answered: with an error, or with a whole result of the tool.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_result(caller: Caller) -> None:
    begun = await caller.begin("slow")
    expect_result(await caller.cancel_live(begun))
    reply = await caller.result(begun.id)
    if reply.error is None and not isinstance(expect_result(reply).get("content"), list):
        raise Unmet(f"tasks/result of a cancelled task gave {reply}, and an error was due, or a result with content")


@check(
    "g1-cancel-wakes",
    Level.MUST,
    "Result Retrieval",
    "Who waits in tasks/result is answered when the task is cancelled.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_wakes(caller: Caller) -> None:
    begun = await caller.begin("slow")
    waiting = await caller.wait(begun.id)
    await caller.status(begun.id)  # so that the server has seen the one before the other
    expect_result(await caller.cancel_live(begun))
    await caller.connection.reply_to(waiting)


@check(
    "g1-cancel-input-required",
    Level.MUST,
    "Task Status Lifecycle",
    "A task that waits for input can be cancelled too.",
    "calls",
    "asks",
    "cancel",
)
async def cancel_input_required(caller: Caller) -> None:
    with caller.connection.holding("elicitation/create"):
        begun = await caller.begin("asks")
        # Not `until`: a server that never says input_required has other faults, and can cancel all the same.
        while time.monotonic() < begun.at + caller.pace.quiet:
            if await caller.status(begun.id) == "input_required":
                break
            await asyncio.sleep(caller.pace.poll)
        reply = await caller.cancel(begun.id)
        if expect_result(reply).get("status") != "cancelled":
            raise Unmet(f"tasks/cancel gave {reply}, and the task with the status cancelled was due")
        await caller.stay_quiet()
        status = await _status_or_gone(caller, begun.id)
        if status != "cancelled":
            raise Unmet(f"a task that was cancelled while it waited for input is {shorten(status)} now")


@check(
    "g1-cancel-no-related-task",
    Level.SHOULD_NOT,
    "Related Task Metadata",
    "The answer of tasks/cancel does not name the task once more in its _meta.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_no_related_task(caller: Caller) -> None:
    begun = await caller.begin("slow")
    expect_unrelated(expect_result(await caller.cancel_live(begun)), "the answer of tasks/cancel")


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
