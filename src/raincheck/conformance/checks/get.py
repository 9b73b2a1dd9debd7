"""Checks of reading a task with `tasks/get`, and of all methods that take a task id."""

from raincheck.conformance.caller import UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import MUST, MUST_NOT, SHOULD_NOT, Topic
from raincheck.conformance.connection import Message, shorten
from raincheck.conformance.requirements import (
    INVALID_PARAMS,
    RELATED_TASK,
    RequirementNotMet,
    expect,
    expect_error,
    expect_result,
    expect_task,
    expect_unrelated,
)

topic = Topic("Getting", "Getting Tasks", "calls")


@topic.check(MUST, "v2025-get-at-once", "quick")
async def get_at_once(caller: ConformanceClient) -> None:
    """A task can be read as soon as its id is returned."""
    for _ in range(3):
        new_task = await caller.start_task("quick")
        expect_result(await caller.get_task(new_task.id))


@topic.check(MUST, "v2025-get-shape", "quick")
async def get_shape(caller: ConformanceClient) -> None:
    """The result of tasks/get is the task, with fields of the right types."""
    new_task, _ = await caller.run_task("quick")
    expect_task(
        expect_result(await caller.get_task(new_task.id)), "tasks/get", "status", "statusMessage", "pollInterval"
    )


@topic.check(SHOULD_NOT, "v2025-get-no-related-task", "quick", section="Related Task Metadata")
async def get_no_related_task(caller: ConformanceClient) -> None:
    """The result of tasks/get does not repeat the task's id in its _meta."""
    new_task = await caller.start_task("quick")
    expect_unrelated(expect_result(await caller.get_task(new_task.id)), "the result of tasks/get")


@topic.check(SHOULD_NOT, "v2025-get-no-stream", "slow", "http", section="Input Required Status")
async def get_no_stream(caller: ConformanceClient) -> None:
    """tasks/get opens no lasting stream: it carries only the response, and then ends."""
    # The specification asks for plain JSON where possible. Some SDKs open a stream for every answer: if the stream ends
    # with the answer, the caller is no worse off.
    new_task = await caller.start_task("slow")
    pending = await caller.send("tasks/get", {"taskId": new_task.id})
    reply = await caller.wait_for_reply(pending)
    await caller.wait_quiet_period()
    is_open, messages = caller.stream_of(pending)
    if is_open or len(messages) > 1:
        problem = "is still open" if is_open else f"carried {shorten(messages)}"
        raise RequirementNotMet(f"tasks/get was answered on a stream ({reply.source}) that {problem}")


@topic.check(MUST_NOT, "v2025-terminal-final", "quick", section="Task Status Lifecycle")
async def terminal_final(caller: ConformanceClient) -> None:
    """A task that has ended never changes its status, whatever requests follow."""
    new_task, ended = await caller.run_task("quick")
    await caller.get_result(new_task.id)
    await caller.call("quick", task={})
    later_status = await caller.get_status(new_task.id)
    expect(later_status == ended["status"], f"the task was {ended['status']}, and is now {shorten(later_status)}")


def _add_unknown_id(method: str, *needs: str) -> None:
    @topic.check(
        MUST,
        f"v2025-{method}-unknown-32602",
        *needs,
        section="Protocol Errors",
        requirement=f"tasks/{method} rejects an unknown task id: -32602.",
    )
    async def unknown_id(caller: ConformanceClient) -> None:
        for task_id in (UNKNOWN_ID, ""):
            reply = await caller.request(f"tasks/{method}", {"taskId": task_id})
            expect_error(reply, INVALID_PARAMS, f"tasks/{method} of the unknown id {task_id!r}")


def _add_invalid_id(method: str, *needs: str) -> None:
    @topic.check(
        MUST,
        f"v2025-{method}-invalid-32602",
        *needs,
        section="Protocol Errors",
        requirement=f"tasks/{method} rejects a taskId that is missing or not a string: -32602.",
    )
    async def invalid_id(caller: ConformanceClient) -> None:
        invalid: list[Message] = [{}, {"taskId": 7}, {"taskId": None}, {"taskId": [UNKNOWN_ID]}]
        for params in invalid:
            reply = await caller.request(f"tasks/{method}", params)
            expect_error(reply, INVALID_PARAMS, f"tasks/{method} with {shorten(params)}")


for add in (_add_unknown_id, _add_invalid_id):
    add("get")
    add("result")
    add("cancel", "cancel")


def _related_to(task_id: str) -> Message:
    return {RELATED_TASK: {"taskId": task_id}}


@topic.check(MUST, "v2025-get-related-task-ignored", "quick", section="Associating Task-Related Messages")
async def get_related_task_ignored(caller: ConformanceClient) -> None:
    """tasks/get returns the task in its taskId, even if its _meta names another one."""
    requested, related = [await caller.start_task("quick") for _ in range(2)]
    for meta in (_related_to(related.id), _related_to(UNKNOWN_ID)):
        reply = await caller.get_task(requested.id, _meta=meta)
        expect(
            expect_result(reply).get("taskId") != related.id,
            f"with the taskId {requested.id!r} and the _meta {shorten(meta)}, tasks/get returned {reply}",
        )


@topic.check(
    MUST, "v2025-result-related-task-ignored", "quick", "tool_error", section="Associating Task-Related Messages"
)
async def result_related_task_ignored(caller: ConformanceClient) -> None:
    """tasks/result returns the result of the task in its taskId, even if its _meta names another one."""
    requested, related = await caller.start_task("quick"), await caller.start_task("tool_error")
    reply = await caller.get_result(requested.id, _meta=_related_to(related.id))
    if expect_result(reply).get("isError") is True:
        raise RequirementNotMet(
            f"with the taskId {requested.id!r} and another task in _meta, "
            f"tasks/result returned {reply}, which is of the other task"
        )


@topic.check(MUST, "v2025-cancel-related-task-ignored", "slow", "cancel", section="Associating Task-Related Messages")
async def cancel_related_task_ignored(caller: ConformanceClient) -> None:
    """tasks/cancel cancels the task in its taskId, even if its _meta names another one."""
    requested, related = [await caller.start_task("slow") for _ in range(2)]
    expect_result(await caller.cancel_task(requested.id, _meta=_related_to(related.id)))
    expect(
        await caller.get_status(related.id) != "cancelled",
        "the task that _meta names was cancelled, not the one in taskId",
    )
