"""Checks of task isolation: other callers can't access a task, and its owner can after reconnecting."""

from raincheck.conformance.caller import ENDED_TOO_SOON, UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import MUST, MUST_NOT, SHOULD, Topic
from raincheck.conformance.connection import RpcResponse, is_object, shorten
from raincheck.conformance.requirements import (
    TERMINAL,
    NotApplicable,
    RequirementNotMet,
    expect,
    expect_error,
    expect_result,
    related_task,
)

topic = Topic("Isolation", "Task Isolation and Access Control", "calls", "http", "headers")


async def _request_as(other: ConformanceClient, method: str, task_id: str) -> RpcResponse:
    return await other.request(f"tasks/{method}", {"taskId": task_id})


def _add_refused(method: str, *needs: str) -> None:
    @topic.check(
        MUST,
        f"v2025-owner-{method}-refused",
        "other",
        "slow",
        *needs,
        requirement=f"tasks/{method} of another caller's task is rejected, and changes nothing.",
    )
    async def refused(caller: ConformanceClient) -> None:
        async with caller.open_second(as_other=True) as other:
            new_task = await caller.start_task("slow")
            expect_error(
                await _request_as(other, method, new_task.id), None, f"tasks/{method} of another caller's task"
            )
            status = await caller.get_status(new_task.id)
        expect(status != "cancelled", f"tasks/{method} of another caller cancelled the task")
        if method == "cancel" and status in TERMINAL:
            raise NotApplicable(ENDED_TOO_SOON)


def _add_looks_unknown(method: str, *needs: str) -> None:
    @topic.check(
        SHOULD,
        f"v2025-owner-{method}-unknown",
        "other",
        "quick",
        *needs,
        requirement=(
            f"tasks/{method} of another caller's task returns the same error as for a task that does not exist."
        ),
    )
    async def looks_unknown(caller: ConformanceClient) -> None:
        new_task, _ = await caller.run_task("quick")
        async with caller.open_second(as_other=True) as other:
            foreign = _without_id(await _request_as(other, method, new_task.id), new_task.id)
            unknown = _without_id(await _request_as(other, method, UNKNOWN_ID), UNKNOWN_ID)
        if foreign is not None and foreign != unknown:
            raise RequirementNotMet(
                f"another caller's task returned {foreign}, and an unknown task {unknown}: callers can probe for tasks"
            )


def _without_id(reply: RpcResponse, task_id: str) -> str | None:
    """Return the error without the task id that it may repeat, or `None` for a result, which another check covers."""
    return None if reply.error is None else shorten(reply.error).replace(task_id, "…")


for add in (_add_refused, _add_looks_unknown):
    add("get")
    add("result")
    add("cancel", "cancel")


@topic.check(MUST, "v2025-owner-list", "other", "quick", "list")
async def owner_list(caller: ConformanceClient) -> None:
    """tasks/list returns only the tasks of its caller."""
    new_task = await caller.start_task("quick")
    async with caller.open_second(as_other=True) as other:
        await other.start_task("quick")
        expect(
            new_task.id not in [task.get("taskId") for task in await other.list_tasks()],
            "the list of another caller contains the task",
        )


@topic.check(MUST_NOT, "v2025-owner-silence", "other", "quick")
async def owner_silence(caller: ConformanceClient) -> None:
    """Other callers receive nothing about a task: no status, no progress, no input request."""
    async with caller.open_second(as_other=True) as other:
        new_task = await caller.start_task("quick", _meta={"progressToken": "v2025-silence"})
        await caller.get_result(new_task.id)
        await caller.wait_quiet_period()
        for received in other.history.received:
            expect(
                new_task.id not in _named_in(received.message.get("params")),
                f"another caller received {shorten(received.message)}",
            )


def _named_in(params: object) -> tuple[object, ...]:
    if not is_object(params):
        return ()
    return params.get("taskId"), related_task(params)


@topic.check(SHOULD, "v2025-owner-returns", "quick")
async def owner_returns(caller: ConformanceClient) -> None:
    """A task belongs to its caller, not to a connection: the caller can access it on another connection."""
    new_task = await caller.start_task("quick")
    async with caller.open_second() as reconnected:
        expect_result(await reconnected.get_task(new_task.id))
        expect_result(await reconnected.get_result(new_task.id))
