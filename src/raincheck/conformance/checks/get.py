"""Checks of reading a task with `tasks/get`, and of all methods that take a task id."""

from raincheck.conformance.caller import UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import Check, check
from raincheck.conformance.messages import Message, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import (
    INVALID_PARAMS,
    RELATED_TASK,
    expect_error,
    expect_result,
    expect_task,
    expect_unrelated,
)


@check(
    "g1-get-at-once",
    RequirementLevel.MUST,
    "Getting Tasks",
    "Whoever has a task's id can look at the task: also at once.",
    "calls",
    "quick",
)
async def get_at_once(caller: ConformanceClient) -> None:
    for _ in range(3):
        begun = await caller.start_task("quick")
        expect_result(await caller.get_task(begun.id))


@check(
    "g1-get-shape",
    RequirementLevel.MUST,
    "Getting Tasks",
    "tasks/get answers with the fields of the task themselves, of the right kinds.",
    "calls",
    "quick",
)
async def get_shape(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    await caller.wait_for_end(begun.id)
    expect_task(expect_result(await caller.get_task(begun.id)), "tasks/get", "status", "statusMessage", "pollInterval")


@check(
    "g1-get-no-related-task",
    RequirementLevel.SHOULD_NOT,
    "Related Task Metadata",
    "The answer of tasks/get does not name the task once more in its _meta.",
    "calls",
    "quick",
)
async def get_no_related_task(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    expect_unrelated(expect_result(await caller.get_task(begun.id)), "the answer of tasks/get")


@check(
    "g1-get-no-stream",
    RequirementLevel.SHOULD_NOT,
    "Input Required Status",
    "tasks/get opens no stream to go on with: nothing but the answer comes, and then it ends.",
    "calls",
    "slow",
    "http",
)
async def get_no_stream(caller: ConformanceClient) -> None:
    # The specification asks for plain JSON where possible. Some SDKs open a stream for every answer: if the stream ends
    # with the answer, the caller is no worse off.
    begun = await caller.start_task("slow")
    pending = await caller.connection.send("tasks/get", {"taskId": begun.id})
    reply = await caller.connection.wait_for_reply(pending)
    await caller.wait_quiet_period()
    is_open, came = caller.connection.stream_of(pending)
    if is_open or len(came) > 1:
        what = "it is still open" if is_open else f"{shorten(came)} came on it"
        raise RequirementNotMet(f"tasks/get was answered on a stream ({reply.source}), and {what}")


@check(
    "g1-terminal-final",
    RequirementLevel.MUST_NOT,
    "Task Status Lifecycle",
    "A task that has ended does not change its status any more, whatever is asked of it.",
    "calls",
    "quick",
)
async def terminal_final(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    status = (await caller.wait_for_end(begun.id))["status"]
    await caller.get_result(begun.id)
    await caller.call("quick", task={})
    again = await caller.get_status(begun.id)
    if again != status:
        raise RequirementNotMet(f"the task was {status}, and is {shorten(again)} now")


def _unknown_id(method: str, section: str, *needs: str) -> Check:
    @check(
        f"g1-{method}-unknown-32602",
        RequirementLevel.MUST,
        section,
        f"tasks/{method} refuses an id that it does not know: -32602.",
        "calls",
        *needs,
    )
    async def unknown_id(caller: ConformanceClient) -> None:
        for wrong in (UNKNOWN_ID, ""):
            reply = await caller.connection.request(f"tasks/{method}", {"taskId": wrong})
            expect_error(reply, INVALID_PARAMS, f"tasks/{method} of the unknown id {wrong!r}")

    return unknown_id


def _invalid_id(method: str, section: str, *needs: str) -> Check:
    @check(
        f"g1-{method}-invalid-32602",
        RequirementLevel.MUST,
        section,
        f"tasks/{method} without a taskId, or with one that is no string, is refused: -32602.",
        "calls",
        *needs,
    )
    async def invalid_id(caller: ConformanceClient) -> None:
        wrongs: list[Message] = [{}, {"taskId": 7}, {"taskId": None}, {"taskId": [UNKNOWN_ID]}]
        for params in wrongs:
            reply = await caller.connection.request(f"tasks/{method}", params)
            expect_error(reply, INVALID_PARAMS, f"tasks/{method} with {shorten(params)}")

    return invalid_id


PROTOCOL_ERRORS = "Protocol Errors"

get_unknown = _unknown_id("get", PROTOCOL_ERRORS)
result_unknown = _unknown_id("result", PROTOCOL_ERRORS)
cancel_unknown = _unknown_id("cancel", PROTOCOL_ERRORS, "cancel")
get_invalid = _invalid_id("get", PROTOCOL_ERRORS)
result_invalid = _invalid_id("result", PROTOCOL_ERRORS)
cancel_invalid = _invalid_id("cancel", PROTOCOL_ERRORS, "cancel")


def _related_to(task_id: str) -> Message:
    return {RELATED_TASK: {"taskId": task_id}}


@check(
    "g1-get-related-task-ignored",
    RequirementLevel.MUST,
    "Associating Task-Related Messages",
    "tasks/get looks at the task in its taskId, also if its _meta names another.",
    "calls",
    "quick",
)
async def get_related_task_ignored(caller: ConformanceClient) -> None:
    asked, named = [await caller.start_task("quick") for _ in range(2)]
    for meta in (_related_to(named.id), _related_to(UNKNOWN_ID)):
        reply = await caller.get_task(asked.id, _meta=meta)
        if expect_result(reply).get("taskId") == named.id:
            raise RequirementNotMet(f"taskId said {asked.id!r}, _meta {shorten(meta)}, and the answer is {reply}")


@check(
    "g1-result-related-task-ignored",
    RequirementLevel.MUST,
    "Associating Task-Related Messages",
    "tasks/result gives the result of the task in its taskId, also if its _meta names another.",
    "calls",
    "quick",
    "tool_error",
)
async def result_related_task_ignored(caller: ConformanceClient) -> None:
    asked, named = await caller.start_task("quick"), await caller.start_task("tool_error")
    reply = await caller.get_result(asked.id, _meta=_related_to(named.id))
    if expect_result(reply).get("isError") is True:
        raise RequirementNotMet(
            f"taskId said {asked.id!r}, _meta another, and the answer is {reply}: the other's result"
        )


@check(
    "g1-cancel-related-task-ignored",
    RequirementLevel.MUST,
    "Associating Task-Related Messages",
    "tasks/cancel cancels the task in its taskId, also if its _meta names another.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_related_task_ignored(caller: ConformanceClient) -> None:
    asked, named = [await caller.start_task("slow") for _ in range(2)]
    expect_result(await caller.cancel_task(asked.id, _meta=_related_to(named.id)))
    if await caller.get_status(named.id) == "cancelled":
        raise RequirementNotMet("the task that _meta named was cancelled, and not the one in taskId")


CHECKS = (
    get_at_once,
    get_shape,
    get_no_related_task,
    get_no_stream,
    terminal_final,
    get_unknown,
    result_unknown,
    cancel_unknown,
    get_invalid,
    result_invalid,
    cancel_invalid,
    get_related_task_ignored,
    result_related_task_ignored,
    cancel_related_task_ignored,
)
