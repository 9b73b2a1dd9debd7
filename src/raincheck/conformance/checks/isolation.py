"""Checks of task isolation: another caller sees nothing of a task, and its owner finds it after reconnecting."""

from raincheck.conformance.caller import TOO_SOON, UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import Check, check
from raincheck.conformance.messages import RpcResponse, is_object, shorten
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import TERMINAL, expect_error, expect_result, related_task

SECTION = "Task Isolation and Access Control"
OWNERS = ("calls", "http", "headers", "other")


async def _ask_other(other: ConformanceClient, method: str, task_id: str) -> RpcResponse:
    return await other.connection.request(f"tasks/{method}", {"taskId": task_id})


def _refused(method: str, *needs: str) -> Check:
    @check(
        f"g1-owner-{method}-refused",
        RequirementLevel.MUST,
        SECTION,
        f"tasks/{method} of somebody else's task is refused, and changes nothing.",
        *OWNERS,
        "slow",
        *needs,
    )
    async def refused(caller: ConformanceClient) -> None:
        async with caller.open_second(as_other=True) as other:
            begun = await caller.start_task("slow")
            expect_error(await _ask_other(other, method, begun.id), None, f"tasks/{method} of somebody else's task")
            status = await caller.get_status(begun.id)
        if status == "cancelled":
            raise RequirementNotMet(f"tasks/{method} of somebody else cancelled the task")
        if method == "cancel" and status in TERMINAL:
            raise NotApplicable(TOO_SOON)

    return refused


def _looks_unknown(method: str, *needs: str) -> Check:
    @check(
        f"g1-owner-{method}-unknown",
        RequirementLevel.SHOULD,
        SECTION,
        f"To tasks/{method} of somebody else, a task looks exactly as one that does not exist.",
        *OWNERS,
        "quick",
        *needs,
    )
    async def looks_unknown(caller: ConformanceClient) -> None:
        begun = await caller.start_task("quick")
        await caller.wait_for_end(begun.id)
        async with caller.open_second(as_other=True) as other:
            theirs = _without_id(await _ask_other(other, method, begun.id), begun.id)
            unknown = _without_id(await _ask_other(other, method, UNKNOWN_ID), UNKNOWN_ID)
        if theirs is not None and theirs != unknown:
            raise RequirementNotMet(
                f"somebody else's task gave {theirs}, and an unknown one {unknown}: so it can be probed for"
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
    "g1-owner-list",
    RequirementLevel.MUST,
    SECTION,
    "tasks/list has the tasks of its caller alone.",
    *OWNERS,
    "quick",
    "list",
)
async def owner_list(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    async with caller.open_second(as_other=True) as other:
        await other.start_task("quick")
        if begun.id in [task.get("taskId") for task in await other.list_tasks()]:
            raise RequirementNotMet("somebody else's list has the task")


@check(
    "g1-owner-silence",
    RequirementLevel.MUST_NOT,
    SECTION,
    "Nobody else hears of a task: no status, no progress, no question.",
    *OWNERS,
    "quick",
)
async def owner_silence(caller: ConformanceClient) -> None:
    async with caller.open_second(as_other=True) as other:
        begun = await caller.start_task("quick", _meta={"progressToken": "g1-silence"})
        await caller.get_result(begun.id)
        await caller.wait_quiet_period()
        for came in other.connection.history.received:
            if begun.id in _named_in(came.message.get("params")):
                raise RequirementNotMet(f"somebody else got {shorten(came.message)}")


def _named_in(params: object) -> tuple[object, ...]:
    if not is_object(params):
        return ()
    return params.get("taskId"), related_task(params)


@check(
    "g1-owner-returns",
    RequirementLevel.SHOULD,
    SECTION,
    "A task belongs to who made it, and not to the connection: the same caller finds it on another one.",
    "calls",
    "http",
    "headers",
    "quick",
)
async def owner_returns(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    async with caller.open_second() as again:
        expect_result(await again.get_task(begun.id))
        expect_result(await again.get_result(begun.id))


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
