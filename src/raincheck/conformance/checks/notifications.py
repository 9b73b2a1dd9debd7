"""Checks of unsolicited status notifications: `notifications/tasks/status`."""

from itertools import pairwise

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check, has_role
from raincheck.conformance.messages import ReceivedMessage
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import TERMINAL, expect_task, expect_unrelated

METHOD = "notifications/tasks/status"
MAX_INSPECTED = 12
"""Notifications to inspect: those of the check's own tasks, and a few earlier ones."""


async def _status_notifications(caller: ConformanceClient) -> list[ReceivedMessage]:
    """Return the notifications received, after one task completed and one was cancelled."""
    quick = await caller.start_task("quick")
    await caller.get_result(quick.id)
    if has_role(caller, "slow") and caller.capability("tasks", "cancel") is not None:
        await caller.cancel_task((await caller.start_task("slow")).id)
    await caller.wait_quiet_period()
    notifications = caller.connection.received_since(0, METHOD)
    if not notifications:
        raise NotApplicable(f"the server sends no {METHOD}, which are optional")
    return notifications


@check(
    "v2025-status-shape",
    RequirementLevel.MUST,
    "Task Status Notification",
    f"{METHOD}, if sent, contains the complete task.",
    "calls",
    "quick",
)
async def status_shape(caller: ConformanceClient) -> None:
    for notification in await _status_notifications(caller):
        expect_task(notification.params, METHOD)


@check(
    "v2025-status-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Task Notifications",
    f"{METHOD} does not repeat the task's id in its _meta.",
    "calls",
    "quick",
)
async def status_no_related_task(caller: ConformanceClient) -> None:
    for notification in await _status_notifications(caller):
        expect_unrelated(notification.params, METHOD)


@check(
    "v2025-status-final",
    RequirementLevel.MUST_NOT,
    "Task Status Lifecycle",
    f"After {METHOD} reported that a task has ended, it reports no other status of that task.",
    "calls",
    "quick",
)
async def status_final(caller: ConformanceClient) -> None:
    # Grouped by stream: notifications on different streams have no order.
    statuses: dict[tuple[object, str], list[object]] = {}
    for notification in await _status_notifications(caller):
        key = notification.stream, str(notification.params.get("taskId"))
        statuses.setdefault(key, []).append(notification.params.get("status"))
    for reported in statuses.values():
        for before, after in pairwise(reported):
            if before in TERMINAL and after != before:
                raise RequirementNotMet(f"a task was reported as {before}, and then as {after}")


@check(
    "v2025-status-true",
    RequirementLevel.MUST,
    "Task Status Notification",
    f"{METHOD} reports the same final status as tasks/get.",
    "calls",
    "quick",
)
async def status_true(caller: ConformanceClient) -> None:
    for notification in (await _status_notifications(caller))[-MAX_INSPECTED:]:
        reported, task_id = notification.params.get("status"), notification.params.get("taskId")
        if reported not in TERMINAL or not isinstance(task_id, str):
            continue
        reply = await caller.get_task(task_id)
        if reply.result is not None and reply.result.get("status") != reported:
            raise RequirementNotMet(f"{METHOD} reported {reported}, but tasks/get returned {reply}")


CHECKS = (status_shape, status_no_related_task, status_final, status_true)
