"""Checks of unsolicited status notifications: `notifications/tasks/status`."""

from itertools import pairwise

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import MUST, MUST_NOT, SHOULD_NOT, Topic, has_role
from raincheck.conformance.connection import ReceivedMessage
from raincheck.conformance.requirements import TERMINAL, NotApplicable, RequirementNotMet, expect_task, expect_unrelated

topic = Topic("Status notifications", "Task Status Notification", "calls", "quick")

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
    notifications = caller.received_since(0, METHOD)
    if not notifications:
        raise NotApplicable(f"the server sends no {METHOD}, which are optional")
    return notifications


@topic.check(MUST, "v2025-status-shape")
async def status_shape(caller: ConformanceClient) -> None:
    """notifications/tasks/status, if sent, contains the complete task."""
    for notification in await _status_notifications(caller):
        expect_task(notification.params, METHOD)


@topic.check(SHOULD_NOT, "v2025-status-no-related-task", section="Task Notifications")
async def status_no_related_task(caller: ConformanceClient) -> None:
    """notifications/tasks/status does not repeat the task's id in its _meta."""
    for notification in await _status_notifications(caller):
        expect_unrelated(notification.params, METHOD)


@topic.check(MUST_NOT, "v2025-status-final", section="Task Status Lifecycle")
async def status_final(caller: ConformanceClient) -> None:
    """After notifications/tasks/status reported that a task has ended, it reports no other status of that task."""
    # Grouped by stream: notifications on different streams have no order.
    statuses: dict[tuple[object, str], list[object]] = {}
    for notification in await _status_notifications(caller):
        key = notification.stream, str(notification.params.get("taskId"))
        statuses.setdefault(key, []).append(notification.params.get("status"))
    for reported in statuses.values():
        for before, after in pairwise(reported):
            if before in TERMINAL and after != before:
                raise RequirementNotMet(f"a task was reported as {before}, and then as {after}")


@topic.check(MUST, "v2025-status-true")
async def status_true(caller: ConformanceClient) -> None:
    """notifications/tasks/status reports the same final status as tasks/get."""
    for notification in (await _status_notifications(caller))[-MAX_INSPECTED:]:
        reported, task_id = notification.params.get("status"), notification.params.get("taskId")
        if reported not in TERMINAL or not isinstance(task_id, str):
            continue
        reply = await caller.get_task(task_id)
        if reply.result is not None and reply.result.get("status") != reported:
            raise RequirementNotMet(f"{METHOD} reported {reported}, but tasks/get returned {reply}")
