"""Checks of tasks that fail: with a result that is an error, or with a protocol error."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check, has_role
from raincheck.conformance.messages import shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import expect_error, expect_result

SECTION = "Task Execution Errors"


@check(
    "v2025-tool-error-failed",
    RequirementLevel.SHOULD,
    SECTION,
    "A task whose tool returns a result with isError is failed.",
    "calls",
    "tool_error",
)
async def tool_error_failed(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("tool_error")
    status = (await caller.wait_for_end(new_task.id))["status"]
    if status != "failed":
        raise RequirementNotMet(f"the task is {status}; expected failed")


@check(
    "v2025-tool-error-result",
    RequirementLevel.MUST,
    SECTION,
    "tasks/result of such a task returns the tool's result, with isError and its content.",
    "calls",
    "tool_error",
)
async def tool_error_result(caller: ConformanceClient) -> None:
    reply = await caller.get_result((await caller.start_task("tool_error")).id)
    result = expect_result(reply)
    if result.get("isError") is not True or not isinstance(result.get("content"), list):
        raise RequirementNotMet(f"tasks/result returned {reply}; expected a result with isError and content")


@check(
    "v2025-protocol-error-failed",
    RequirementLevel.MUST,
    SECTION,
    "A task whose call ends with a JSON-RPC error is failed.",
    "calls",
    "protocol_error",
)
async def protocol_error_failed(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("protocol_error")
    status = (await caller.wait_for_end(new_task.id))["status"]
    if status != "failed":
        raise RequirementNotMet(f"the task is {status}; expected failed")


@check(
    "v2025-protocol-error-result",
    RequirementLevel.MUST,
    SECTION,
    "tasks/result of such a task returns the same JSON-RPC error as the call without a task.",
    "calls",
    "protocol_error",
)
async def protocol_error_result(caller: ConformanceClient) -> None:
    error = expect_error(await caller.get_result((await caller.start_task("protocol_error")).id), None, "tasks/result")
    if caller.task_support(caller.role("protocol_error").tool) != "optional":
        return
    plain = expect_error(await caller.call("protocol_error"), None, "the call without a task")
    # The messages are not compared: they may contain details of the request.
    if error.get("code") != plain.get("code"):
        raise RequirementNotMet(f"the error is {shorten(error)}, but without a task it is {shorten(plain)}")


@check(
    "v2025-failed-message",
    RequirementLevel.SHOULD,
    SECTION,
    "tasks/get of a failed task has a statusMessage that explains the failure.",
    "calls",
    "protocol_error",
)
async def failed_message(caller: ConformanceClient) -> None:
    roles = [role for role in ("tool_error", "protocol_error") if has_role(caller, role)]
    for role in roles:
        task = await caller.wait_for_end((await caller.start_task(role)).id)
        if task["status"] == "failed" and not task.get("statusMessage"):
            raise RequirementNotMet(
                f"the task of the role {role!r} failed, but its statusMessage is {shorten(task.get('statusMessage'))}"
            )


CHECKS = (
    tool_error_failed,
    tool_error_result,
    protocol_error_failed,
    protocol_error_result,
    failed_message,
)
