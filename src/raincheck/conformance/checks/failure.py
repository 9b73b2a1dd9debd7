"""Tasks whose work fails: with a result that is an error, or with an error of the protocol."""

from raincheck.conformance.caller import Caller
from raincheck.conformance.check import check, has
from raincheck.conformance.messages import shorten
from raincheck.conformance.outcome import Level, Unmet
from raincheck.conformance.shapes import expect_error, expect_result

SECTION = "Task Execution Errors"


@check(
    "g1-tool-error-failed",
    Level.SHOULD,
    SECTION,
    "A task whose tool ends with isError is failed.",
    "calls",
    "tool_error",
)
async def tool_error_failed(caller: Caller) -> None:
    begun = await caller.begin("tool_error")
    status = (await caller.ended(begun.id))["status"]
    if status != "failed":
        raise Unmet(f"the task is {status}, and failed was due")


@check(
    "g1-tool-error-result",
    Level.MUST,
    SECTION,
    "tasks/result of such a task gives the tool's result, with isError and its content.",
    "calls",
    "tool_error",
)
async def tool_error_result(caller: Caller) -> None:
    reply = await caller.result((await caller.begin("tool_error")).id)
    result = expect_result(reply)
    if result.get("isError") is not True or not isinstance(result.get("content"), list):
        raise Unmet(f"tasks/result gave {reply}, and a result with isError and content was due")


@check(
    "g1-protocol-error-failed",
    Level.MUST,
    SECTION,
    "A task whose call ends with a JSON-RPC error is failed.",
    "calls",
    "protocol_error",
)
async def protocol_error_failed(caller: Caller) -> None:
    begun = await caller.begin("protocol_error")
    status = (await caller.ended(begun.id))["status"]
    if status != "failed":
        raise Unmet(f"the task is {status}, and failed was due")


@check(
    "g1-protocol-error-result",
    Level.MUST,
    SECTION,
    "tasks/result of such a task gives the same JSON-RPC error as the call without a task.",
    "calls",
    "protocol_error",
)
async def protocol_error_result(caller: Caller) -> None:
    error = expect_error(await caller.result((await caller.begin("protocol_error")).id), None, "tasks/result")
    if caller.support(caller.role("protocol_error").tool) != "optional":
        return
    plain = expect_error(await caller.call("protocol_error"), None, "the call without a task")
    # Not by its message: that may say something of the very request.
    if error.get("code") != plain.get("code"):
        raise Unmet(f"the error is {shorten(error)}, and without a task {shorten(plain)}")


@check(
    "g1-failed-message",
    Level.SHOULD,
    SECTION,
    "tasks/get of a failed task says in statusMessage what went wrong.",
    "calls",
    "protocol_error",
)
async def failed_message(caller: Caller) -> None:
    roles = [role for role in ("tool_error", "protocol_error") if has(caller, role)]
    for role in roles:
        task = await caller.ended((await caller.begin(role)).id)
        if task["status"] == "failed" and not task.get("statusMessage"):
            raise Unmet(
                f"the task of the role {role!r} is failed, and statusMessage is {shorten(task.get('statusMessage'))}"
            )


CHECKS = (
    tool_error_failed,
    tool_error_result,
    protocol_error_failed,
    protocol_error_result,
    failed_message,
)
