"""Checks of listing tasks: `tasks/list`."""

from raincheck.conformance.caller import ConformanceClient, objects_in
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import INVALID_PARAMS, expect_error, expect_result, expect_task, expect_unrelated

TASK_COUNT = 12
"""Tasks to create, enough that a server with small pages needs several pages."""


async def _start_tasks(caller: ConformanceClient) -> list[str]:
    return [(await caller.start_task("quick")).id for _ in range(TASK_COUNT)]


async def _first_page(caller: ConformanceClient) -> Message:
    await caller.start_task("quick")
    return expect_result(await caller.connection.request("tasks/list", {}))


@check(
    "v2025-list-shape",
    RequirementLevel.MUST,
    "Listing Tasks",
    "The result of tasks/list has `tasks`, which are complete tasks, and a string as nextCursor if there are more.",
    "calls",
    "quick",
    "list",
)
async def list_shape(caller: ConformanceClient) -> None:
    page = await _first_page(caller)
    if not isinstance(page.get("tasks"), list):
        raise RequirementNotMet(f"tasks is {shorten(page.get('tasks'))}; expected a list")
    for index, task in enumerate(page["tasks"]):
        expect_task(task, f"tasks[{index}]")
    if "nextCursor" in page and not isinstance(page["nextCursor"], str):
        raise RequirementNotMet(f"nextCursor is {shorten(page['nextCursor'])}; expected a string, or none")


@check(
    "v2025-list-complete",
    RequirementLevel.MUST,
    "Task Listing",
    "Every task that tasks/get returns is on one of the pages of tasks/list.",
    "calls",
    "quick",
    "list",
)
async def list_complete(caller: ConformanceClient) -> None:
    ids = await _start_tasks(caller)
    listed = {task.get("taskId") for task in await caller.list_tasks()}
    missing = [task_id for task_id in ids if task_id not in listed and (await caller.get_task(task_id)).error is None]
    if missing:
        raise RequirementNotMet(f"{len(missing)} of {len(ids)} tasks are not in the list, such as {missing[0]!r}")


@check(
    "v2025-list-stable",
    RequirementLevel.SHOULD,
    "Pagination: Implementation Guidelines",
    "A task is listed once, even if tasks are created while the pages are read.",
    "calls",
    "quick",
    "list",
)
async def list_stable(caller: ConformanceClient) -> None:
    ids = await _start_tasks(caller)
    listed: list[object] = []
    async for page in caller.list_pages():
        listed += [task.get("taskId") for task in objects_in(page.get("tasks"))]
        await caller.start_task("quick")
    repeated = [task_id for task_id in ids if listed.count(task_id) > 1]
    if repeated:
        raise RequirementNotMet(
            f"{len(repeated)} of {len(ids)} tasks are listed more than once, such as {repeated[0]!r}"
        )


@check(
    "v2025-list-agrees",
    RequirementLevel.MUST,
    "Listing Tasks",
    "A task that has ended has the same status in the list and in tasks/get.",
    "calls",
    "quick",
    "list",
)
async def list_agrees(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    read = await caller.wait_for_end(new_task.id)
    listed = next((task for task in await caller.list_tasks() if task.get("taskId") == new_task.id), read)
    if listed.get("status") != read.get("status"):
        raise RequirementNotMet(
            f"the task is {shorten(listed.get('status'))} in the list, and {read['status']} in tasks/get"
        )


@check(
    "v2025-list-cursor-32602",
    RequirementLevel.MUST,
    "Protocol Errors",
    "A cursor that the server did not return is rejected: -32602.",
    "calls",
    "list",
)
async def list_cursor(caller: ConformanceClient) -> None:
    reply = await caller.connection.request("tasks/list", {"cursor": "no server returns this cursor"})
    expect_error(reply, INVALID_PARAMS, "tasks/list with an invented cursor")


@check(
    "v2025-list-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Related Task Metadata",
    "The result of tasks/list, and the tasks in it, do not repeat a task's id in their _meta.",
    "calls",
    "quick",
    "list",
)
async def list_no_related_task(caller: ConformanceClient) -> None:
    page = await _first_page(caller)
    expect_unrelated(page, "the result of tasks/list")
    for task in objects_in(page.get("tasks")):
        expect_unrelated(task, "a task in the list")


@check(
    "v2025-list-private",
    RequirementLevel.SHOULD_NOT,
    "Task Isolation and Access Control",
    "If the server can't identify its callers, no caller can list the tasks of another one.",
    "calls",
    "quick",
    "list",
    "http",
    "no headers",
)
async def list_private(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    async with caller.open_second() as other:
        if new_task.id in [task.get("taskId") for task in await other.list_tasks()]:
            raise RequirementNotMet(
                "another connection without credentials lists the task: "
                "declare tasks.list only to callers that the server can identify"
            )


CHECKS = (
    list_shape,
    list_complete,
    list_stable,
    list_agrees,
    list_cursor,
    list_no_related_task,
    list_private,
)
