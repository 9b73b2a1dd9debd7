"""Checks of what a server declares about tasks before one exists: its capabilities and its tools."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import PROTOCOL_VERSION, Message, is_array, is_object, shorten
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import METHOD_NOT_FOUND, expect_error, expect_result

SUPPORT = ("required", "optional", "forbidden")


@check(
    "v2025-version",
    RequirementLevel.MUST,
    "Lifecycle: Version Negotiation",
    f"A client that requests version {PROTOCOL_VERSION} gets that version.",
)
async def version(caller: ConformanceClient) -> None:
    negotiated = caller.connection.initialized.get("protocolVersion")
    if negotiated != PROTOCOL_VERSION:
        raise RequirementNotMet(f"protocolVersion is {shorten(negotiated)}; requested {PROTOCOL_VERSION}")


@check(
    "v2025-capability-declared",
    RequirementLevel.MUST,
    "Capabilities",
    "A server with tasks declares capabilities.tasks with requests.tools.call when it is initialized.",
)
async def capability_declared(caller: ConformanceClient) -> None:
    if caller.capability("tasks") is None:
        raise RequirementNotMet("capabilities.tasks is missing: clients assume that this server has no tasks")
    if caller.capability("tasks", "requests", "tools", "call") is None:
        declared = shorten(caller.capability("tasks"))
        raise RequirementNotMet(f"capabilities.tasks is {declared}, without requests.tools.call: no call can be a task")


@check(
    "v2025-capability-shape",
    RequirementLevel.MUST,
    "Server Capabilities",
    "list, cancel, requests, requests.tools and requests.tools.call are objects where they are declared.",
)
async def capability_shape(caller: ConformanceClient) -> None:
    paths = ((), ("list",), ("cancel",), ("requests",), ("requests", "tools"), ("requests", "tools", "call"))
    for path in paths:
        value = caller.capability("tasks", *path)
        if value is not None and not is_object(value):
            raise RequirementNotMet(
                f"capabilities.{'.'.join(('tasks', *path))} is {shorten(value)}; expected an object"
            )


@check(
    "v2025-undeclared-ignored",
    RequirementLevel.MUST,
    "Task Support and Handling",
    "A server that does not declare tasks for tools/call ignores the task field and returns the tool's result.",
    "no calls",
    "quick",
)
async def undeclared_ignored(caller: ConformanceClient) -> None:
    reply = await caller.call("quick", task={"ttl": 60_000})
    if "content" not in expect_result(reply):
        raise RequirementNotMet(f"a call with a task returned {reply}; expected the tool's own result")


@check(
    "v2025-undeclared-list-32601",
    RequirementLevel.SHOULD,
    "Capability Negotiation",
    "A server that does not declare tasks/list rejects it as an unknown method: -32601.",
    "no list",
)
async def undeclared_list(caller: ConformanceClient) -> None:
    expect_error(
        await caller.connection.request("tasks/list", {}), METHOD_NOT_FOUND, "tasks/list, which is undeclared,"
    )


@check(
    "v2025-undeclared-cancel-32601",
    RequirementLevel.SHOULD,
    "Capability Negotiation",
    "A server that does not declare tasks/cancel rejects it as an unknown method: -32601.",
    "no cancel",
    "calls",
    "slow",
)
async def undeclared_cancel(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    expect_error(await caller.cancel_task(new_task.id), METHOD_NOT_FOUND, "tasks/cancel, which is undeclared,")


@check(
    "v2025-tool-support-values",
    RequirementLevel.MUST,
    "Tool-Level Negotiation",
    "A tool's execution.taskSupport, if it has one, is required, optional or forbidden.",
)
async def tool_support_values(caller: ConformanceClient) -> None:
    for name, tool in caller.tools.items():
        execution = tool.get("execution", {})
        if not is_object(execution):
            raise RequirementNotMet(f"execution of the tool {name!r} is {shorten(execution)}; expected an object")
        if "taskSupport" in execution and execution["taskSupport"] not in SUPPORT:
            raise RequirementNotMet(
                f"execution.taskSupport of the tool {name!r} is {shorten(execution['taskSupport'])}; "
                f"expected {', '.join(SUPPORT)}"
            )


@check(
    "v2025-tool-support-exists",
    RequirementLevel.SHOULD,
    "Tool-Level Negotiation",
    "A server that declares tasks for tools/call has a tool whose execution.taskSupport allows them.",
    "calls",
)
async def tool_support_exists(caller: ConformanceClient) -> None:
    if not caller.tools:
        raise NotApplicable("the server lists no tools")
    if not any(caller.task_support(name) in ("optional", "required") for name in caller.tools):
        raise RequirementNotMet(
            "no tool has an execution.taskSupport of optional or required, so no client will request a task"
        )


@check(
    "v2025-tool-forbidden-32601",
    RequirementLevel.SHOULD,
    "Tool-Level Negotiation",
    "A tool that does not allow tasks can't be called as one: -32601.",
    "calls",
    "plain",
)
async def tool_forbidden(caller: ConformanceClient) -> None:
    expect_error(await caller.call("plain", task={}), METHOD_NOT_FOUND, "a tool without tasks, called as a task,")


@check(
    "v2025-tool-required-32601",
    RequirementLevel.MUST,
    "Tool-Level Negotiation",
    "A tool that requires a task can't be called without one: -32601.",
    "calls",
    "required",
)
async def tool_required(caller: ConformanceClient) -> None:
    expect_error(await caller.call("required"), METHOD_NOT_FOUND, "a tool that requires a task, called without one,")


@check(
    "v2025-tool-optional-plain",
    RequirementLevel.MUST,
    "Tool-Level Negotiation",
    "A tool for which a task is optional returns its own result to a call without a task.",
    "calls",
    "quick",
)
async def tool_optional_plain(caller: ConformanceClient) -> None:
    caller.require_optional_task("quick")
    reply = await caller.call("quick")
    result = expect_result(reply)
    if "task" in result or not is_array(result.get("content")):
        raise RequirementNotMet(f"a call without a task returned {reply}; expected the tool's own result")


@check(
    "v2025-unknown-tool-fails",
    RequirementLevel.MUST,
    "Task Execution Errors",
    "A call of an unknown tool as a task is rejected, or the task fails.",
    "calls",
)
async def unknown_tool_fails(caller: ConformanceClient) -> None:
    params: Message = {"name": "no-tool-has-this-name", "arguments": {}, "task": {}}
    reply = await caller.connection.request("tools/call", params)
    if reply.error is not None:
        return
    result = expect_result(reply)
    if result.get("isError") is True:
        return
    task = result.get("task")
    if not is_object(task) or not isinstance(task.get("taskId"), str):
        raise RequirementNotMet(f"a call of a tool that does not exist returned {reply}; expected an error")
    ended = await caller.wait_for_end(task["taskId"])
    if ended["status"] != "failed":
        raise RequirementNotMet(f"the task of a tool that does not exist is {ended['status']}; expected failed")


CHECKS = (
    version,
    capability_declared,
    capability_shape,
    undeclared_ignored,
    undeclared_list,
    undeclared_cancel,
    tool_support_values,
    tool_support_exists,
    tool_forbidden,
    tool_required,
    tool_optional_plain,
    unknown_tool_fails,
)
