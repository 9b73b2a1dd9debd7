"""Checks of task isolation: other callers can't access a task, and its owner can after reconnecting."""

from raincheck.conformance.caller import ENDED_TOO_SOON, UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import Check, check
from raincheck.conformance.messages import RpcResponse, is_object, shorten
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import TERMINAL, expect_error, expect_result, related_task

SECTION = "Task Isolation and Access Control"
OWNERS = ("calls", "http", "headers", "other")


async def _request_as(other: ConformanceClient, method: str, task_id: str) -> RpcResponse:
    return await other.connection.request(f"tasks/{method}", {"taskId": task_id})


def _refused(method: str, *needs: str) -> Check:
    @check(
        f"v2025-owner-{method}-refused",
        RequirementLevel.MUST,
        SECTION,
        f"tasks/{method} of another caller's task is rejected, and changes nothing.",
        *OWNERS,
        "slow",
        *needs,
    )
    async def refused(caller: ConformanceClient) -> None:
        async with caller.open_second(as_other=True) as other:
            new_task = await caller.start_task("slow")
            expect_error(
                await _request_as(other, method, new_task.id), None, f"tasks/{method} of another caller's task"
            )
            status = await caller.get_status(new_task.id)
        if status == "cancelled":
            raise RequirementNotMet(f"tasks/{method} of another caller cancelled the task")
        if method == "cancel" and status in TERMINAL:
            raise NotApplicable(ENDED_TOO_SOON)

    return refused


def _looks_unknown(method: str, *needs: str) -> Check:
    @check(
        f"v2025-owner-{method}-unknown",
        RequirementLevel.SHOULD,
        SECTION,
        f"tasks/{method} of another caller's task returns the same error as for a task that does not exist.",
        *OWNERS,
        "quick",
        *needs,
    )
    async def looks_unknown(caller: ConformanceClient) -> None:
        new_task = await caller.start_task("quick")
        await caller.wait_for_end(new_task.id)
        async with caller.open_second(as_other=True) as other:
            foreign = _without_id(await _request_as(other, method, new_task.id), new_task.id)
            unknown = _without_id(await _request_as(other, method, UNKNOWN_ID), UNKNOWN_ID)
        if foreign is not None and foreign != unknown:
            raise RequirementNotMet(
                f"another caller's task returned {foreign}, and an unknown task {unknown}: callers can probe for tasks"
            )

    return looks_unknown


def _without_id(reply: RpcResponse, task_id: str) -> str | None:
    """Return the error without the task id that it may repeat, or `None` for a result, which another check covers."""
    return None if reply.error is None else shorten(reply.error).replace(task_id, "…")


get_refused = _refused("get")
result_refused = _refused("result")
cancel_refused = _refused("cancel", "cancel")
get_looks_unknown = _looks_unknown("get")
result_looks_unknown = _looks_unknown("result")
cancel_looks_unknown = _looks_unknown("cancel", "cancel")


@check(
    "v2025-owner-list",
    RequirementLevel.MUST,
    SECTION,
    "tasks/list returns only the tasks of its caller.",
    *OWNERS,
    "quick",
    "list",
)
async def owner_list(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    async with caller.open_second(as_other=True) as other:
        await other.start_task("quick")
        if new_task.id in [task.get("taskId") for task in await other.list_tasks()]:
            raise RequirementNotMet("the list of another caller contains the task")


@check(
    "v2025-owner-silence",
    RequirementLevel.MUST_NOT,
    SECTION,
    "Other callers receive nothing about a task: no status, no progress, no input request.",
    *OWNERS,
    "quick",
)
async def owner_silence(caller: ConformanceClient) -> None:
    async with caller.open_second(as_other=True) as other:
        new_task = await caller.start_task("quick", _meta={"progressToken": "v2025-silence"})
        await caller.get_result(new_task.id)
        await caller.wait_quiet_period()
        for received in other.connection.history.received:
            if new_task.id in _named_in(received.message.get("params")):
                raise RequirementNotMet(f"another caller received {shorten(received.message)}")


def _named_in(params: object) -> tuple[object, ...]:
    if not is_object(params):
        return ()
    return params.get("taskId"), related_task(params)


@check(
    "v2025-owner-returns",
    RequirementLevel.SHOULD,
    SECTION,
    "A task belongs to its caller, not to a connection: the caller can access it on another connection.",
    "calls",
    "http",
    "headers",
    "quick",
)
async def owner_returns(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    async with caller.open_second() as reconnected:
        expect_result(await reconnected.get_task(new_task.id))
        expect_result(await reconnected.get_result(new_task.id))


CHECKS = (
    get_refused,
    result_refused,
    cancel_refused,
    get_looks_unknown,
    result_looks_unknown,
    cancel_looks_unknown,
    owner_list,
    owner_silence,
    owner_returns,
)
