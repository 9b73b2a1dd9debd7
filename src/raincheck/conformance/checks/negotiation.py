"""Checks of what a server declares about tasks before one exists: its capabilities and its tools."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import PROTOCOL_VERSION, Message, is_array, is_object, shorten
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import METHOD_NOT_FOUND, expect_error, expect_result

SUPPORT = ("required", "optional", "forbidden")


@check(
    "g1-version",
    RequirementLevel.MUST,
    "Lifecycle: Version Negotiation",
    f"A client that asks for version {PROTOCOL_VERSION} gets that version.",
)
async def version(caller: ConformanceClient) -> None:
    said = caller.connection.initialized.get("protocolVersion")
    if said != PROTOCOL_VERSION:
        raise RequirementNotMet(f"protocolVersion is {shorten(said)}, and {PROTOCOL_VERSION} was asked for")


@check(
    "g1-capability-declared",
    RequirementLevel.MUST,
    "Capabilities",
    "A server with tasks says so when it is greeted, in capabilities.tasks, and names tools/call there.",
)
async def capability_declared(caller: ConformanceClient) -> None:
    if caller.capability("tasks") is None:
        raise RequirementNotMet("capabilities.tasks is not there: to its callers, this server has no tasks")
    if caller.capability("tasks", "requests", "tools", "call") is None:
        said = shorten(caller.capability("tasks"))
        raise RequirementNotMet(f"capabilities.tasks is {said}, without requests.tools.call: nothing can become a task")


@check(
    "g1-capability-shape",
    RequirementLevel.MUST,
    "Server Capabilities",
    "list, cancel, requests, requests.tools and requests.tools.call are objects where they are declared.",
)
async def capability_shape(caller: ConformanceClient) -> None:
    paths = ((), ("list",), ("cancel",), ("requests",), ("requests", "tools"), ("requests", "tools", "call"))
    for path in paths:
        said = caller.capability("tasks", *path)
        if said is not None and not is_object(said):
            raise RequirementNotMet(
                f"capabilities.{'.'.join(('tasks', *path))} is {shorten(said)}, and should be an object"
            )


@check(
    "g1-undeclared-ignored",
    RequirementLevel.MUST,
    "Task Support and Handling",
    "A server that does not declare tasks for tools/call ignores the task field and answers as usual.",
    "no calls",
    "quick",
)
async def undeclared_ignored(caller: ConformanceClient) -> None:
    reply = await caller.call("quick", task={"ttl": 60_000})
    if "content" not in expect_result(reply):
        raise RequirementNotMet(f"a call with a task gave {reply}, and the tool's own result was due")


@check(
    "g1-undeclared-list-32601",
    RequirementLevel.SHOULD,
    "Capability Negotiation",
    "tasks/list is not found on a server that does not declare it.",
    "no list",
)
async def undeclared_list(caller: ConformanceClient) -> None:
    expect_error(
        await caller.connection.request("tasks/list", {}), METHOD_NOT_FOUND, "tasks/list, which is not declared,"
    )


@check(
    "g1-undeclared-cancel-32601",
    RequirementLevel.SHOULD,
    "Capability Negotiation",
    "tasks/cancel is not found on a server that does not declare it.",
    "no cancel",
    "calls",
    "slow",
)
async def undeclared_cancel(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    expect_error(await caller.cancel_task(begun.id), METHOD_NOT_FOUND, "tasks/cancel, which is not declared,")


@check(
    "g1-tool-support-words",
    RequirementLevel.MUST,
    "Tool-Level Negotiation",
    "A tool's execution.taskSupport, if there, is required, optional or forbidden.",
)
async def tool_support_words(caller: ConformanceClient) -> None:
    for name, tool in caller.tools.items():
        execution = tool.get("execution", {})
        if not is_object(execution):
            raise RequirementNotMet(f"execution of the tool {name!r} is {shorten(execution)}, and should be an object")
        if "taskSupport" in execution and execution["taskSupport"] not in SUPPORT:
            raise RequirementNotMet(
                f"execution.taskSupport of the tool {name!r} is {shorten(execution['taskSupport'])}"
            )


@check(
    "g1-tool-support-somewhere",
    RequirementLevel.SHOULD,
    "Tool-Level Negotiation",
    "Where tasks are declared for tools/call, there is a tool whose execution.taskSupport allows them.",
    "calls",
)
async def tool_support_somewhere(caller: ConformanceClient) -> None:
    if not caller.tools:
        raise NotApplicable("the server lists no tools")
    if not any(caller.task_support(name) in ("optional", "required") for name in caller.tools):
        raise RequirementNotMet(
            "no tool has an execution.taskSupport of optional or required, so no client will ask for a task"
        )


@check(
    "g1-tool-forbidden-32601",
    RequirementLevel.SHOULD,
    "Tool-Level Negotiation",
    "A tool that does not allow tasks can't be called as one: -32601.",
    "calls",
    "plain",
)
async def tool_forbidden(caller: ConformanceClient) -> None:
    expect_error(await caller.call("plain", task={}), METHOD_NOT_FOUND, "a tool without tasks, called as a task,")


@check(
    "g1-tool-required-32601",
    RequirementLevel.MUST,
    "Tool-Level Negotiation",
    "A tool that requires a task can't be called without one: -32601.",
    "calls",
    "required",
)
async def tool_required(caller: ConformanceClient) -> None:
    expect_error(await caller.call("required"), METHOD_NOT_FOUND, "a tool that requires a task, called without one,")


@check(
    "g1-tool-optional-plain",
    RequirementLevel.MUST,
    "Tool-Level Negotiation",
    "A tool for which a task is optional answers with its result where no task was asked for.",
    "calls",
    "quick",
)
async def tool_optional_plain(caller: ConformanceClient) -> None:
    caller.require_optional_task("quick")
    reply = await caller.call("quick")
    result = expect_result(reply)
    if "task" in result or not is_array(result.get("content")):
        raise RequirementNotMet(f"a call without a task gave {reply}, and the tool's own result was due")


@check(
    "g1-unknown-tool-fails",
    RequirementLevel.MUST,
    "Task Execution Errors",
    "A task for a tool that does not exist is refused, or fails.",
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
        raise RequirementNotMet(f"a call of a tool that does not exist gave {reply}, and an error was due")
    ended = await caller.wait_for_end(task["taskId"])
    if ended["status"] != "failed":
        raise RequirementNotMet(f"the task of a tool that does not exist is {ended['status']}, and failed was due")


CHECKS = (
    version,
    capability_declared,
    capability_shape,
    undeclared_ignored,
    undeclared_list,
    undeclared_cancel,
    tool_support_words,
    tool_support_somewhere,
    tool_forbidden,
    tool_required,
    tool_optional_plain,
    unknown_tool_fails,
)
