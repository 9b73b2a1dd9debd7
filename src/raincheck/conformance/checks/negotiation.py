"""Checks of what a server declares about tasks before one exists: its capabilities and its tools."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import MUST, SHOULD, Topic
from raincheck.conformance.connection import PROTOCOL_VERSION, Message, is_array, is_object, shorten
from raincheck.conformance.requirements import (
    METHOD_NOT_FOUND,
    NotApplicable,
    RequirementNotMet,
    expect,
    expect_error,
    expect_result,
)

topic = Topic("Negotiation", "Tool-Level Negotiation")

SUPPORT = ("required", "optional", "forbidden")


@topic.check(
    MUST,
    "v2025-version",
    section="Lifecycle: Version Negotiation",
    requirement=f"A client that requests version {PROTOCOL_VERSION} gets that version.",
)
async def version(caller: ConformanceClient) -> None:
    negotiated = caller.initialized.get("protocolVersion")
    expect(negotiated == PROTOCOL_VERSION, f"protocolVersion is {shorten(negotiated)}; requested {PROTOCOL_VERSION}")


@topic.check(MUST, "v2025-capability-declared", section="Capabilities")
async def capability_declared(caller: ConformanceClient) -> None:
    """A server with tasks declares capabilities.tasks with requests.tools.call when it is initialized."""
    if caller.capability("tasks") is None:
        raise RequirementNotMet("capabilities.tasks is missing: clients assume that this server has no tasks")
    if caller.capability("tasks", "requests", "tools", "call") is None:
        declared = shorten(caller.capability("tasks"))
        raise RequirementNotMet(f"capabilities.tasks is {declared}, without requests.tools.call: no call can be a task")


@topic.check(MUST, "v2025-capability-shape", section="Server Capabilities")
async def capability_shape(caller: ConformanceClient) -> None:
    """list, cancel, requests, requests.tools and requests.tools.call are objects where they are declared."""
    paths = ((), ("list",), ("cancel",), ("requests",), ("requests", "tools"), ("requests", "tools", "call"))
    for path in paths:
        value = caller.capability("tasks", *path)
        if value is not None and not is_object(value):
            raise RequirementNotMet(
                f"capabilities.{'.'.join(('tasks', *path))} is {shorten(value)}; expected an object"
            )


@topic.check(MUST, "v2025-undeclared-ignored", "no calls", "quick", section="Task Support and Handling")
async def undeclared_ignored(caller: ConformanceClient) -> None:
    """A server that does not declare tasks for tools/call ignores the task field and returns the tool's result."""
    reply = await caller.call("quick", task={"ttl": 60_000})
    expect("content" in expect_result(reply), f"a call with a task returned {reply}; expected the tool's own result")


@topic.check(SHOULD, "v2025-undeclared-list-32601", "no list", section="Capability Negotiation")
async def undeclared_list(caller: ConformanceClient) -> None:
    """A server that does not declare tasks/list rejects it as an unknown method: -32601."""
    expect_error(await caller.request("tasks/list", {}), METHOD_NOT_FOUND, "tasks/list, which is undeclared,")


@topic.check(SHOULD, "v2025-undeclared-cancel-32601", "no cancel", "calls", "slow", section="Capability Negotiation")
async def undeclared_cancel(caller: ConformanceClient) -> None:
    """A server that does not declare tasks/cancel rejects it as an unknown method: -32601."""
    new_task = await caller.start_task("slow")
    expect_error(await caller.cancel_task(new_task.id), METHOD_NOT_FOUND, "tasks/cancel, which is undeclared,")


@topic.check(MUST, "v2025-tool-support-values")
async def tool_support_values(caller: ConformanceClient) -> None:
    """A tool's execution.taskSupport, if it has one, is required, optional or forbidden."""
    for name, tool in caller.tools.items():
        execution = tool.get("execution", {})
        if not is_object(execution):
            raise RequirementNotMet(f"execution of the tool {name!r} is {shorten(execution)}; expected an object")
        if "taskSupport" in execution and execution["taskSupport"] not in SUPPORT:
            raise RequirementNotMet(
                f"execution.taskSupport of the tool {name!r} is {shorten(execution['taskSupport'])}; "
                f"expected {', '.join(SUPPORT)}"
            )


@topic.check(SHOULD, "v2025-tool-support-exists", "calls")
async def tool_support_exists(caller: ConformanceClient) -> None:
    """A server that declares tasks for tools/call has a tool whose execution.taskSupport allows them."""
    if not caller.tools:
        raise NotApplicable("the server lists no tools")
    if not any(caller.task_support(name) in ("optional", "required") for name in caller.tools):
        raise RequirementNotMet(
            "no tool has an execution.taskSupport of optional or required, so no client will request a task"
        )


@topic.check(SHOULD, "v2025-tool-forbidden-32601", "calls", "plain")
async def tool_forbidden(caller: ConformanceClient) -> None:
    """A tool that does not allow tasks can't be called as one: -32601."""
    expect_error(await caller.call("plain", task={}), METHOD_NOT_FOUND, "a tool without tasks, called as a task,")


@topic.check(MUST, "v2025-tool-required-32601", "calls", "required")
async def tool_required(caller: ConformanceClient) -> None:
    """A tool that requires a task can't be called without one: -32601."""
    expect_error(await caller.call("required"), METHOD_NOT_FOUND, "a tool that requires a task, called without one,")


@topic.check(MUST, "v2025-tool-optional-plain", "calls", "quick")
async def tool_optional_plain(caller: ConformanceClient) -> None:
    """A tool for which a task is optional returns its own result to a call without a task."""
    caller.require_optional_task("quick")
    reply = await caller.call("quick")
    result = expect_result(reply)
    if "task" in result or not is_array(result.get("content")):
        raise RequirementNotMet(f"a call without a task returned {reply}; expected the tool's own result")


@topic.check(MUST, "v2025-unknown-tool-fails", "calls", section="Task Execution Errors")
async def unknown_tool_fails(caller: ConformanceClient) -> None:
    """A call of an unknown tool as a task is rejected, or the task fails."""
    params: Message = {"name": "no-tool-has-this-name", "arguments": {}, "task": {}}
    reply = await caller.request("tools/call", params)
    if reply.error is not None:
        return
    result = expect_result(reply)
    if result.get("isError") is True:
        return
    task = result.get("task")
    if not is_object(task) or not isinstance(task.get("taskId"), str):
        raise RequirementNotMet(f"a call of a tool that does not exist returned {reply}; expected an error")
    ended = await caller.wait_for_end(task["taskId"])
    expect(ended["status"] == "failed", f"the task of a tool that does not exist is {ended['status']}; expected failed")
