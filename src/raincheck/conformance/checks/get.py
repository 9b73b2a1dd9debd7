"""Looking at a task: `tasks/get`, and what all methods that take an id have in common."""

from raincheck.conformance.caller import UNKNOWN_ID, Caller
from raincheck.conformance.check import Check, check
from raincheck.conformance.messages import Message, shorten
from raincheck.conformance.outcome import Level, Unmet
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
    Level.MUST,
    "Getting Tasks",
    "Whoever has a task's id can look at the task: also at once.",
    "calls",
    "quick",
)
async def get_at_once(caller: Caller) -> None:
    for _ in range(3):
        begun = await caller.begin("quick")
        expect_result(await caller.get(begun.id))


@check(
    "g1-get-shape",
    Level.MUST,
    "Getting Tasks",
    "tasks/get answers with the fields of the task themselves, of the right kinds.",
    "calls",
    "quick",
)
async def get_shape(caller: Caller) -> None:
    begun = await caller.begin("quick")
    await caller.ended(begun.id)
    expect_task(expect_result(await caller.get(begun.id)), "tasks/get", "status", "statusMessage", "pollInterval")


@check(
    "g1-get-no-related-task",
    Level.SHOULD_NOT,
    "Related Task Metadata",
    "The answer of tasks/get does not name the task once more in its _meta.",
    "calls",
    "quick",
)
async def get_no_related_task(caller: Caller) -> None:
    begun = await caller.begin("quick")
    expect_unrelated(expect_result(await caller.get(begun.id)), "the answer of tasks/get")


@check(
    "g1-get-no-stream",
    Level.SHOULD_NOT,
    "Input Required Status",
    "tasks/get opens no stream to go on with: nothing but the answer comes, and then it ends.",
    "calls",
    "slow",
    "http",
)
async def get_no_stream(caller: Caller) -> None:
    # Where possible, says the specification, it is plain JSON. Some SDKs have streams for all answers: if such a one
    # ends with the answer, its caller is no worse off.
    begun = await caller.begin("slow")
    pending = await caller.connection.send("tasks/get", {"taskId": begun.id})
    reply = await caller.connection.reply_to(pending)
    await caller.stay_quiet()
    is_open, came = caller.connection.stream_of(pending)
    if is_open or len(came) > 1:
        what = "it is still open" if is_open else f"{shorten(came)} came on it"
        raise Unmet(f"tasks/get was answered on a stream ({reply.how}), and {what}")


@check(
    "g1-terminal-final",
    Level.MUST_NOT,
    "Task Status Lifecycle",
    "A task that has ended does not change its status any more, whatever is asked of it.",
    "calls",
    "quick",
)
async def terminal_final(caller: Caller) -> None:
    begun = await caller.begin("quick")
    status = (await caller.ended(begun.id))["status"]
    await caller.result(begun.id)
    await caller.call("quick", task={})
    again = await caller.status(begun.id)
    if again != status:
        raise Unmet(f"the task was {status}, and is {shorten(again)} now")


def _unknown_id(method: str, section: str, *needs: str) -> Check:
    @check(
        f"g1-{method}-unknown-32602",
        Level.MUST,
        section,
        f"tasks/{method} refuses an id that it does not know: -32602.",
        "calls",
        *needs,
    )
    async def unknown_id(caller: Caller) -> None:
        for wrong in (UNKNOWN_ID, ""):
            reply = await caller.connection.request(f"tasks/{method}", {"taskId": wrong})
            expect_error(reply, INVALID_PARAMS, f"tasks/{method} of the unknown id {wrong!r}")

    return unknown_id


def _invalid_id(method: str, section: str, *needs: str) -> Check:
    @check(
        f"g1-{method}-invalid-32602",
        Level.MUST,
        section,
        f"tasks/{method} without a taskId, or with one that is no string, is refused: -32602.",
        "calls",
        *needs,
    )
    async def invalid_id(caller: Caller) -> None:
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
    Level.MUST,
    "Associating Task-Related Messages",
    "tasks/get looks at the task in its taskId, also if its _meta names another.",
    "calls",
    "quick",
)
async def get_related_task_ignored(caller: Caller) -> None:
    asked, named = [await caller.begin("quick") for _ in range(2)]
    for meta in (_related_to(named.id), _related_to(UNKNOWN_ID)):
        reply = await caller.get(asked.id, _meta=meta)
        if expect_result(reply).get("taskId") == named.id:
            raise Unmet(f"taskId said {asked.id!r}, _meta {shorten(meta)}, and the answer is {reply}")


@check(
    "g1-result-related-task-ignored",
    Level.MUST,
    "Associating Task-Related Messages",
    "tasks/result gives the result of the task in its taskId, also if its _meta names another.",
    "calls",
    "quick",
    "tool_error",
)
async def result_related_task_ignored(caller: Caller) -> None:
    asked, named = await caller.begin("quick"), await caller.begin("tool_error")
    reply = await caller.result(asked.id, _meta=_related_to(named.id))
    if expect_result(reply).get("isError") is True:
        raise Unmet(f"taskId said {asked.id!r}, _meta another, and the answer is {reply}: the other's result")


@check(
    "g1-cancel-related-task-ignored",
    Level.MUST,
    "Associating Task-Related Messages",
    "tasks/cancel cancels the task in its taskId, also if its _meta names another.",
    "calls",
    "slow",
    "cancel",
)
async def cancel_related_task_ignored(caller: Caller) -> None:
    asked, named = [await caller.begin("slow") for _ in range(2)]
    expect_result(await caller.cancel(asked.id, _meta=_related_to(named.id)))
    if await caller.status(named.id) == "cancelled":
        raise Unmet("the task that _meta named was cancelled, and not the one in taskId")


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
