"""Checks of listing tasks: `tasks/list`."""

from raincheck.conformance.caller import ConformanceClient, objects_in
from raincheck.conformance.check import MUST, SHOULD, SHOULD_NOT, Topic
from raincheck.conformance.connection import Message, shorten
from raincheck.conformance.requirements import (
    INVALID_PARAMS,
    RequirementNotMet,
    expect,
    expect_error,
    expect_result,
    expect_task,
    expect_unrelated,
)

topic = Topic("Listing", "Listing Tasks", "calls")

TASK_COUNT = 12
"""Tasks to create, enough that a server with small pages needs several pages."""


async def _start_tasks(caller: ConformanceClient) -> list[str]:
    return [(await caller.start_task("quick")).id for _ in range(TASK_COUNT)]


async def _first_page(caller: ConformanceClient) -> Message:
    await caller.start_task("quick")
    return expect_result(await caller.request("tasks/list", {}))


@topic.check(MUST, "v2025-list-shape", "quick", "list")
async def list_shape(caller: ConformanceClient) -> None:
    """The result of tasks/list has `tasks`, which are complete tasks, and a string as nextCursor if there are more."""
    page = await _first_page(caller)
    if not isinstance(page.get("tasks"), list):
        raise RequirementNotMet(f"tasks is {shorten(page.get('tasks'))}; expected a list")
    for index, task in enumerate(page["tasks"]):
        expect_task(task, f"tasks[{index}]")
    if "nextCursor" in page and not isinstance(page["nextCursor"], str):
        raise RequirementNotMet(f"nextCursor is {shorten(page['nextCursor'])}; expected a string, or none")


@topic.check(MUST, "v2025-list-complete", "quick", "list", section="Task Listing")
async def list_complete(caller: ConformanceClient) -> None:
    """Every task that tasks/get returns is on one of the pages of tasks/list."""
    ids = await _start_tasks(caller)
    listed = {task.get("taskId") for task in await caller.list_tasks()}
    missing = [task_id for task_id in ids if task_id not in listed and (await caller.get_task(task_id)).error is None]
    if missing:
        raise RequirementNotMet(f"{len(missing)} of {len(ids)} tasks are not in the list, such as {missing[0]!r}")


@topic.check(SHOULD, "v2025-list-stable", "quick", "list", section="Pagination: Implementation Guidelines")
async def list_stable(caller: ConformanceClient) -> None:
    """A task is listed once, even if tasks are created while the pages are read."""
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


@topic.check(MUST, "v2025-list-agrees", "quick", "list")
async def list_agrees(caller: ConformanceClient) -> None:
    """A task that has ended has the same status in the list and in tasks/get."""
    new_task, read = await caller.run_task("quick")
    listed = next((task for task in await caller.list_tasks() if task.get("taskId") == new_task.id), read)
    expect(
        listed.get("status") == read.get("status"),
        f"the task is {shorten(listed.get('status'))} in the list, and {read['status']} in tasks/get",
    )


@topic.check(MUST, "v2025-list-cursor-32602", "list", section="Protocol Errors")
async def list_cursor(caller: ConformanceClient) -> None:
    """A cursor that the server did not return is rejected: -32602."""
    reply = await caller.request("tasks/list", {"cursor": "no server returns this cursor"})
    expect_error(reply, INVALID_PARAMS, "tasks/list with an invented cursor")


@topic.check(SHOULD_NOT, "v2025-list-no-related-task", "quick", "list", section="Related Task Metadata")
async def list_no_related_task(caller: ConformanceClient) -> None:
    """The result of tasks/list, and the tasks in it, do not repeat a task's id in their _meta."""
    page = await _first_page(caller)
    expect_unrelated(page, "the result of tasks/list")
    for task in objects_in(page.get("tasks")):
        expect_unrelated(task, "a task in the list")


@topic.check(
    SHOULD_NOT, "v2025-list-private", "quick", "list", "http", "no headers", section="Task Isolation and Access Control"
)
async def list_private(caller: ConformanceClient) -> None:
    """If the server can't identify its callers, no caller can list the tasks of another one."""
    new_task = await caller.start_task("quick")
    async with caller.open_second() as other:
        expect(
            new_task.id not in [task.get("taskId") for task in await other.list_tasks()],
            "another connection without credentials lists the task: "
            "declare tasks.list only to callers that the server can identify",
        )
