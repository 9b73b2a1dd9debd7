"""Checks of unsolicited status notifications: `notifications/tasks/status`."""

from itertools import pairwise

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check, has_role
from raincheck.conformance.messages import ReceivedMessage
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import TERMINAL, expect_task, expect_unrelated

METHOD = "notifications/tasks/status"
LAST = 12
"""Notifications to inspect: those of the check's own tasks, and a few earlier ones."""


async def _status_notifications(caller: ConformanceClient) -> list[ReceivedMessage]:
    """Return the notifications received, after one task completed and one was cancelled."""
    quick = await caller.start_task("quick")
    await caller.get_result(quick.id)
    if has_role(caller, "slow") and caller.capability("tasks", "cancel") is not None:
        await caller.cancel_task((await caller.start_task("slow")).id)
    await caller.wait_quiet_period()
    news = caller.connection.received_since(0, METHOD)
    if not news:
        raise NotApplicable(f"the server sends no {METHOD}, which it need not")
    return news


@check(
    "g1-status-shape",
    RequirementLevel.MUST,
    "Task Status Notification",
    f"{METHOD}, if sent, tells the whole task.",
    "calls",
    "quick",
)
async def status_shape(caller: ConformanceClient) -> None:
    for came in await _status_notifications(caller):
        expect_task(came.params, METHOD)


@check(
    "g1-status-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Task Notifications",
    f"{METHOD} does not name the task once more in its _meta.",
    "calls",
    "quick",
)
async def status_no_related_task(caller: ConformanceClient) -> None:
    for came in await _status_notifications(caller):
        expect_unrelated(came.params, METHOD)


@check(
    "g1-status-final",
    RequirementLevel.MUST_NOT,
    "Task Status Lifecycle",
    f"After {METHOD} told that a task has ended, it tells of no other status of it.",
    "calls",
    "quick",
)
async def status_final(caller: ConformanceClient) -> None:
    news = await _status_notifications(caller)
    for key in {(came.stream, str(came.params.get("taskId"))) for came in news}:
        told = [came.params.get("status") for came in news if (came.stream, str(came.params.get("taskId"))) == key]
        for before, after in pairwise(told):
            if before in TERMINAL and after != before:
                raise RequirementNotMet(f"a task was told to be {before}, and then to be {after}")


@check(
    "g1-status-true",
    RequirementLevel.MUST,
    "Task Status Notification",
    f"The end that {METHOD} tells of is the one that tasks/get tells of.",
    "calls",
    "quick",
)
async def status_true(caller: ConformanceClient) -> None:
    for came in (await _status_notifications(caller))[-LAST:]:
        told, task_id = came.params.get("status"), came.params.get("taskId")
        if told not in TERMINAL or not isinstance(task_id, str):
            continue
        reply = await caller.get_task(task_id)
        if reply.result is not None and reply.result.get("status") != told:
            raise RequirementNotMet(f"{METHOD} told {told}, and tasks/get gives {reply}")


CHECKS = (status_shape, status_no_related_task, status_final, status_true)
