"""What a server tells of a task unasked: `notifications/tasks/status`."""

from itertools import pairwise

from raincheck.conformance.caller import Caller
from raincheck.conformance.check import check, has
from raincheck.conformance.messages import Came
from raincheck.conformance.outcome import Inapplicable, Level, Unmet
from raincheck.conformance.shapes import TERMINAL, expect_task, expect_unrelated

METHOD = "notifications/tasks/status"
LAST = 12
"""So many notifications are looked into: those of the check's own tasks, and a few before."""


async def _news(caller: Caller) -> list[Came]:
    """What the server tells of a task that completes, and of one that is cancelled."""
    quick = await caller.begin("quick")
    await caller.result(quick.id)
    if has(caller, "slow") and caller.capability("tasks", "cancel") is not None:
        await caller.cancel((await caller.begin("slow")).id)
    await caller.stay_quiet()
    news = caller.connection.since(0, METHOD)
    if not news:
        raise Inapplicable(f"the server sends no {METHOD}, which it need not")
    return news


@check(
    "g1-status-shape",
    Level.MUST,
    "Task Status Notification",
    f"{METHOD}, if sent, tells the whole task.",
    "calls",
    "quick",
)
async def status_shape(caller: Caller) -> None:
    for came in await _news(caller):
        expect_task(came.params, METHOD)


@check(
    "g1-status-no-related-task",
    Level.SHOULD_NOT,
    "Task Notifications",
    f"{METHOD} does not name the task once more in its _meta.",
    "calls",
    "quick",
)
async def status_no_related_task(caller: Caller) -> None:
    for came in await _news(caller):
        expect_unrelated(came.params, METHOD)


@check(
    "g1-status-final",
    Level.MUST_NOT,
    "Task Status Lifecycle",
    f"After {METHOD} told that a task has ended, it tells of no other status of it.",
    "calls",
    "quick",
)
async def status_final(caller: Caller) -> None:
    news = await _news(caller)
    for key in {(came.stream, str(came.params.get("taskId"))) for came in news}:
        told = [came.params.get("status") for came in news if (came.stream, str(came.params.get("taskId"))) == key]
        for before, after in pairwise(told):
            if before in TERMINAL and after != before:
                raise Unmet(f"a task was told to be {before}, and then to be {after}")


@check(
    "g1-status-true",
    Level.MUST,
    "Task Status Notification",
    f"The end that {METHOD} tells of is the one that tasks/get tells of.",
    "calls",
    "quick",
)
async def status_true(caller: Caller) -> None:
    for came in (await _news(caller))[-LAST:]:
        told, task_id = came.params.get("status"), came.params.get("taskId")
        if told not in TERMINAL or not isinstance(task_id, str):
            continue
        reply = await caller.get(task_id)
        if reply.result is not None and reply.result.get("status") != told:
            raise Unmet(f"{METHOD} told {told}, and tasks/get gives {reply}")


CHECKS = (status_shape, status_no_related_task, status_final, status_true)
