"""Checks of listing tasks: `tasks/list`."""

from raincheck.conformance.caller import ConformanceClient, objects_in
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import INVALID_PARAMS, expect_error, expect_result, expect_task, expect_unrelated

TASK_COUNT = 12
"""Tasks to create, enough that a server with small pages needs several pages."""


async def _begin_some(caller: ConformanceClient) -> list[str]:
    return [(await caller.start_task("quick")).id for _ in range(TASK_COUNT)]


async def _first_page(caller: ConformanceClient) -> Message:
    await caller.start_task("quick")
    return expect_result(await caller.connection.request("tasks/list", {}))


@check(
    "g1-list-shape",
    RequirementLevel.MUST,
    "Listing Tasks",
    "tasks/list answers with `tasks`, which are whole tasks, and with a string for nextCursor if there is more.",
    "calls",
    "quick",
    "list",
)
async def list_shape(caller: ConformanceClient) -> None:
    page = await _first_page(caller)
    if not isinstance(page.get("tasks"), list):
        raise RequirementNotMet(f"tasks is {shorten(page.get('tasks'))}, and should be a list")
    for index, task in enumerate(page["tasks"]):
        expect_task(task, f"tasks[{index}]")
    if "nextCursor" in page and not isinstance(page["nextCursor"], str):
        raise RequirementNotMet(f"nextCursor is {shorten(page['nextCursor'])}, and should be a string, or not there")


@check(
    "g1-list-complete",
    RequirementLevel.MUST,
    "Task Listing",
    "A task that tasks/get tells of is in the list: whoever follows nextCursor to the end finds it.",
    "calls",
    "quick",
    "list",
)
async def list_complete(caller: ConformanceClient) -> None:
    ids = await _begin_some(caller)
    listed = {task.get("taskId") for task in await caller.list_tasks()}
    missing = [one for one in ids if one not in listed and (await caller.get_task(one)).error is None]
    if missing:
        raise RequirementNotMet(f"{len(missing)} of {len(ids)} tasks are not in the list, such as {missing[0]!r}")


@check(
    "g1-list-stable",
    RequirementLevel.SHOULD,
    "Pagination: Implementation Guidelines",
    "A task is listed once, also if others come while the pages are read.",
    "calls",
    "quick",
    "list",
)
async def list_stable(caller: ConformanceClient) -> None:
    ids = await _begin_some(caller)
    found: list[object] = []
    async for page in caller.list_pages():
        found += [task.get("taskId") for task in objects_in(page.get("tasks"))]
        await caller.start_task("quick")
    again = [one for one in ids if found.count(one) > 1]
    if again:
        raise RequirementNotMet(f"{len(again)} of {len(ids)} tasks are listed more than once, such as {again[0]!r}")


@check(
    "g1-list-agrees",
    RequirementLevel.MUST,
    "Listing Tasks",
    "A task that has ended has the same status in the list and in tasks/get.",
    "calls",
    "quick",
    "list",
)
async def list_agrees(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    alone = await caller.wait_for_end(begun.id)
    listed = next((task for task in await caller.list_tasks() if task.get("taskId") == begun.id), alone)
    if listed.get("status") != alone.get("status"):
        raise RequirementNotMet(
            f"the task is {shorten(listed.get('status'))} in the list, and {alone['status']} in tasks/get"
        )


@check(
    "g1-list-cursor-32602",
    RequirementLevel.MUST,
    "Protocol Errors",
    "A cursor that the server did not hand out is refused: -32602.",
    "calls",
    "list",
)
async def list_cursor(caller: ConformanceClient) -> None:
    reply = await caller.connection.request("tasks/list", {"cursor": "no server hands out this cursor"})
    expect_error(reply, INVALID_PARAMS, "tasks/list with an invented cursor")


@check(
    "g1-list-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Related Task Metadata",
    "The answer of tasks/list, and the tasks in it, do not name a task once more in their _meta.",
    "calls",
    "quick",
    "list",
)
async def list_no_related_task(caller: ConformanceClient) -> None:
    page = await _first_page(caller)
    expect_unrelated(page, "the answer of tasks/list")
    for task in objects_in(page.get("tasks")):
        expect_unrelated(task, "a task in the list")


@check(
    "g1-list-private",
    RequirementLevel.SHOULD_NOT,
    "Task Isolation and Access Control",
    "Where callers can't be told apart, nobody lists the tasks of others.",
    "calls",
    "quick",
    "list",
    "http",
    "no headers",
)
async def list_private(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    async with caller.open_second() as stranger:
        if begun.id in [task.get("taskId") for task in await stranger.list_tasks()]:
            raise RequirementNotMet(
                "another connection, without credentials too, lists the task: declare tasks.list where you know callers"
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
