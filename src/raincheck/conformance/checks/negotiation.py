"""What a server says of tasks before there is one: its capabilities, and its tools."""

from raincheck.conformance.caller import Caller
from raincheck.conformance.check import check
from raincheck.conformance.messages import VERSION, Message, is_array, is_object, shorten
from raincheck.conformance.outcome import Inapplicable, Level, Unmet
from raincheck.conformance.shapes import METHOD_NOT_FOUND, expect_error, expect_result

SUPPORT = ("required", "optional", "forbidden")


@check(
    "g1-version",
    Level.MUST,
    "Lifecycle: Version Negotiation",
    f"A client that asks for version {VERSION} gets that version.",
)
async def version(caller: Caller) -> None:
    said = caller.connection.initialized.get("protocolVersion")
    if said != VERSION:
        raise Unmet(f"protocolVersion is {shorten(said)}, and {VERSION} was asked for")


@check(
    "g1-capability-declared",
    Level.MUST,
    "Capabilities",
    "A server with tasks says so when it is greeted, in capabilities.tasks, and names tools/call there.",
)
async def capability_declared(caller: Caller) -> None:
    if caller.capability("tasks") is None:
        raise Unmet("capabilities.tasks is not there: to its callers, this server has no tasks")
    if caller.capability("tasks", "requests", "tools", "call") is None:
        said = shorten(caller.capability("tasks"))
        raise Unmet(f"capabilities.tasks is {said}, without requests.tools.call: nothing can become a task")


@check(
    "g1-capability-shape",
    Level.MUST,
    "Server Capabilities",
    "list, cancel, requests, requests.tools and requests.tools.call are objects where they are declared.",
)
async def capability_shape(caller: Caller) -> None:
    paths = ((), ("list",), ("cancel",), ("requests",), ("requests", "tools"), ("requests", "tools", "call"))
    for path in paths:
        said = caller.capability("tasks", *path)
        if said is not None and not is_object(said):
            raise Unmet(f"capabilities.{'.'.join(('tasks', *path))} is {shorten(said)}, and should be an object")


@check(
    "g1-undeclared-ignored",
    Level.MUST,
    "Task Support and Handling",
    "A server that does not declare tasks for tools/call ignores the task field and answers as usual.",
    "no calls",
    "quick",
)
async def undeclared_ignored(caller: Caller) -> None:
    reply = await caller.call("quick", task={"ttl": 60_000})
    if "content" not in expect_result(reply):
        raise Unmet(f"a call with a task gave {reply}, and the tool's own result was due")


@check(
    "g1-undeclared-list-32601",
    Level.SHOULD,
    "Capability Negotiation",
    "tasks/list is not found on a server that does not declare it.",
    "no list",
)
async def undeclared_list(caller: Caller) -> None:
    expect_error(
        await caller.connection.request("tasks/list", {}), METHOD_NOT_FOUND, "tasks/list, which is not declared,"
    )


@check(
    "g1-undeclared-cancel-32601",
    Level.SHOULD,
    "Capability Negotiation",
    "tasks/cancel is not found on a server that does not declare it.",
    "no cancel",
    "calls",
    "slow",
)
async def undeclared_cancel(caller: Caller) -> None:
    begun = await caller.begin("slow")
    expect_error(await caller.cancel(begun.id), METHOD_NOT_FOUND, "tasks/cancel, which is not declared,")


@check(
    "g1-tool-support-words",
    Level.MUST,
    "Tool-Level Negotiation",
    "A tool's execution.taskSupport, if there, is required, optional or forbidden.",
)
async def tool_support_words(caller: Caller) -> None:
    for name, tool in caller.tools.items():
        execution = tool.get("execution", {})
        if not is_object(execution):
            raise Unmet(f"execution of the tool {name!r} is {shorten(execution)}, and should be an object")
        if "taskSupport" in execution and execution["taskSupport"] not in SUPPORT:
            raise Unmet(f"execution.taskSupport of the tool {name!r} is {shorten(execution['taskSupport'])}")


@check(
    "g1-tool-support-somewhere",
    Level.SHOULD,
    "Tool-Level Negotiation",
    "Where tasks are declared for tools/call, there is a tool whose execution.taskSupport allows them.",
    "calls",
)
async def tool_support_somewhere(caller: Caller) -> None:
    if not caller.tools:
        raise Inapplicable("the server lists no tools")
    if not any(caller.support(name) in ("optional", "required") for name in caller.tools):
        raise Unmet("no tool has an execution.taskSupport of optional or required, so no client will ask for a task")


@check(
    "g1-tool-forbidden-32601",
    Level.SHOULD,
    "Tool-Level Negotiation",
    "A tool that does not allow tasks can't be called as one: -32601.",
    "calls",
    "plain",
)
async def tool_forbidden(caller: Caller) -> None:
    expect_error(await caller.call("plain", task={}), METHOD_NOT_FOUND, "a tool without tasks, called as a task,")


@check(
    "g1-tool-required-32601",
    Level.MUST,
    "Tool-Level Negotiation",
    "A tool that requires a task can't be called without one: -32601.",
    "calls",
    "required",
)
async def tool_required(caller: Caller) -> None:
    expect_error(await caller.call("required"), METHOD_NOT_FOUND, "a tool that requires a task, called without one,")


@check(
    "g1-tool-optional-plain",
    Level.MUST,
    "Tool-Level Negotiation",
    "A tool for which a task is optional answers with its result where no task was asked for.",
    "calls",
    "quick",
)
async def tool_optional_plain(caller: Caller) -> None:
    caller.need_optional("quick")
    reply = await caller.call("quick")
    result = expect_result(reply)
    if "task" in result or not is_array(result.get("content")):
        raise Unmet(f"a call without a task gave {reply}, and the tool's own result was due")


@check(
    "g1-unknown-tool-fails",
    Level.MUST,
    "Task Execution Errors",
    "A task for a tool that does not exist is refused, or fails.",
    "calls",
)
async def unknown_tool_fails(caller: Caller) -> None:
    params: Message = {"name": "no-tool-has-this-name", "arguments": {}, "task": {}}
    reply = await caller.connection.request("tools/call", params)
    if reply.error is not None:
        return
    result = expect_result(reply)
    if result.get("isError") is True:
        return
    task = result.get("task")
    if not is_object(task) or not isinstance(task.get("taskId"), str):
        raise Unmet(f"a call of a tool that does not exist gave {reply}, and an error was due")
    ended = await caller.ended(task["taskId"])
    if ended["status"] != "failed":
        raise Unmet(f"the task of a tool that does not exist is {ended['status']}, and failed was due")


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
