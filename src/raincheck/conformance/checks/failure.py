"""Checks of tasks that fail: with a result that is an error, or with a protocol error."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import MUST, SHOULD, Topic, has_role
from raincheck.conformance.connection import shorten
from raincheck.conformance.requirements import RequirementNotMet, expect, expect_error, expect_result

topic = Topic("Failing", "Task Execution Errors", "calls")


async def _expect_failed(caller: ConformanceClient, role: str) -> None:
    _, task = await caller.run_task(role)
    expect(task["status"] == "failed", f"the task is {task['status']}; expected failed")


@topic.check(SHOULD, "v2025-tool-error-failed", "tool_error")
async def tool_error_failed(caller: ConformanceClient) -> None:
    """A task whose tool returns a result with isError is failed."""
    await _expect_failed(caller, "tool_error")


@topic.check(MUST, "v2025-tool-error-result", "tool_error")
async def tool_error_result(caller: ConformanceClient) -> None:
    """tasks/result of such a task returns the tool's result, with isError and its content."""
    reply = await caller.get_result((await caller.start_task("tool_error")).id)
    result = expect_result(reply)
    if result.get("isError") is not True or not isinstance(result.get("content"), list):
        raise RequirementNotMet(f"tasks/result returned {reply}; expected a result with isError and content")


@topic.check(MUST, "v2025-protocol-error-failed", "protocol_error")
async def protocol_error_failed(caller: ConformanceClient) -> None:
    """A task whose call ends with a JSON-RPC error is failed."""
    await _expect_failed(caller, "protocol_error")


@topic.check(MUST, "v2025-protocol-error-result", "protocol_error")
async def protocol_error_result(caller: ConformanceClient) -> None:
    """tasks/result of such a task returns the same JSON-RPC error as the call without a task."""
    error = expect_error(await caller.get_result((await caller.start_task("protocol_error")).id), None, "tasks/result")
    if caller.task_support(caller.role("protocol_error").tool) != "optional":
        return
    plain = expect_error(await caller.call("protocol_error"), None, "the call without a task")
    # The messages are not compared: they may contain details of the request.
    expect(
        error.get("code") == plain.get("code"),
        f"the error is {shorten(error)}, but without a task it is {shorten(plain)}",
    )


@topic.check(SHOULD, "v2025-failed-message", "protocol_error")
async def failed_message(caller: ConformanceClient) -> None:
    """tasks/get of a failed task has a statusMessage that explains the failure."""
    roles = [role for role in ("tool_error", "protocol_error") if has_role(caller, role)]
    for role in roles:
        _, task = await caller.run_task(role)
        if task["status"] == "failed" and not task.get("statusMessage"):
            raise RequirementNotMet(
                f"the task of the role {role!r} failed, but its statusMessage is {shorten(task.get('statusMessage'))}"
            )
