"""Ready-made tools with a JSON Schema are listed unchanged, validated by it, and served to every caller."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp_types import CallToolResult, TextContent

from raincheck import RetryPolicy, SyncTaskContext, TaskContext, Tasks
from raincheck.core.values import Json
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, ToolError
from raincheck.server.tools.policy import TaskPolicy
from tests.support.server.caller_v2025 import v2025_caller
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import text_of

pytestmark = pytest.mark.anyio

SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "tag": {"type": "string", "pattern": "^v", "description": "What to release."},
        "copies": {"type": "integer", "minimum": 1, "default": 1},
    },
    "required": ["tag"],
    "additionalProperties": False,
}
TASK = TaskPolicy(inline_for=0, expected=30)
ONCE = RetryPolicy(attempts=1)
CHANGED = "notifications/tools/list_changed"


async def release(task: TaskContext, **arguments: Json) -> Json:
    return {"tag": arguments["tag"], "is_task": bool(task.id)}


def a_tool(body: Any = release, name: str = "release", **settings: Any) -> TaskTool:
    return TaskTool(body, name, retry=ONCE, **settings)


def server_with_tool(body: Any = release, policy: TaskPolicy | None = None) -> ExampleServer:
    server = ExampleServer()
    server.tasks.add(a_tool(body), input_schema=SCHEMA, description="Release it.", policy=policy)
    return server


async def listed(caller: Any) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await caller.request("tools/list"))["tools"]}


async def test_an_added_tool_is_listed_with_exactly_its_schema_in_both_generations() -> None:
    async with server_with_tool().open() as caller:
        tool = (await listed(caller))["release"]
        assert (tool["inputSchema"], tool["description"]) == (SCHEMA, "Release it.")
        assert "outputSchema" not in tool
    async with v2025_caller(server_with_tool()) as caller:
        tool = (await listed(caller))["release"]
        assert (tool["inputSchema"], tool["execution"]) == (SCHEMA, {"taskSupport": "optional"})


async def test_callers_of_2026_get_a_task_and_its_result() -> None:
    async with server_with_tool(policy=TASK).open() as caller:
        result = await caller.result(await caller.start("release", {"tag": "v1"}))
        assert result["structuredContent"] == {"tag": "v1", "is_task": True}
        assert '"tag": "v1"' in text_of(result)


async def test_callers_of_2025_get_a_task_and_its_result() -> None:
    async with v2025_caller(server_with_tool(policy=TASK)) as caller:
        result = await caller.result(await caller.start("release", {"tag": "v1"}))
        assert result["structuredContent"] == {"tag": "v1", "is_task": True}


async def test_callers_without_tasks_get_the_result() -> None:
    async with server_with_tool().open(capabilities={}) as caller:
        assert (await caller.call("release", {"tag": "v1"}))["structuredContent"]["tag"] == "v1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "'tag' is a required property"),
        ({"tag": 5}, "tag: 5 is not of type 'string'"),
        ({"tag": "1"}, "tag: '1' does not match '^v'"),
        ({"tag": "v1", "copies": 0}, "copies: 0 is less than the minimum of 1"),
        ({"tag": "v1", "restored": {}}, "'restored' was unexpected"),
    ],
)
async def test_wrong_arguments_get_the_same_error_as_from_the_sdk(arguments: Mapping[str, Any], says: str) -> None:
    async with server_with_tool(policy=TASK).open() as caller:
        answer = await caller.call("release", arguments)
        assert answer["isError"] is True
        assert text_of(answer).startswith("Error executing tool release: the arguments do not fit its input schema: ")
        assert says in text_of(answer)
    async with v2025_caller(server_with_tool(policy=TASK)) as caller:
        assert says in text_of(await caller.call("release", arguments))
        with pytest.raises(Refused, match="-32602"):
            await caller.start("release", arguments)


async def test_of_many_errors_only_the_first_are_described() -> None:
    schema: Json = {"type": "object", "properties": {f"a{n}": {"type": "string"} for n in range(9)}}
    server = ExampleServer()
    server.tasks.add(a_tool(), input_schema=cast("Mapping[str, Json]", schema))
    async with server.open(capabilities={}) as caller:
        said = text_of(await caller.call("release", {f"a{n}": n for n in range(9)}))
        assert said.count("is not of type") == 5
        assert said.endswith("and 4 more")


@pytest.mark.parametrize(
    ("value", "structured", "text"),
    [
        ("done", {"result": "done"}, "done"),
        ([1, 2], {"result": [1, 2]}, "[\n  1,\n  2\n]"),
        ({"a": 1}, {"a": 1}, '{\n  "a": 1\n}'),
        ({"result": 1}, {"result": {"result": 1}}, '{\n  "result": 1\n}'),
        (None, {"result": None}, None),
    ],
)
async def test_any_json_value_is_a_result_and_a_parent_gets_it_unchanged(
    value: Json, structured: Json, text: str | None
) -> None:
    async def give() -> Json:
        return value

    async def ask(task: TaskContext) -> Json:
        child = await task.spawn("give")
        return {"same": await child.result() == value}

    server = ExampleServer()
    for tool in (a_tool(give, "give"), a_tool(ask, "ask")):
        server.tasks.add(tool, input_schema={"type": "object"})
    async with server.open(capabilities={}) as caller:
        result = await caller.call("give")
        assert result["structuredContent"] == structured
        assert [block["text"] for block in result["content"]] == ([] if text is None else [text])
        assert (await caller.call("ask"))["structuredContent"] == {"same": True}


async def test_a_call_tool_result_is_the_result_and_a_parent_gets_its_value() -> None:
    async def say() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="in words")])

    async def keep_silent() -> CallToolResult:
        return CallToolResult(content=[])

    async def ask(task: TaskContext) -> Json:
        return [await (await task.spawn(name)).result() for name in ("say", "keep_silent")]

    server = ExampleServer()
    for tool in (a_tool(say, "say"), a_tool(keep_silent, "keep_silent"), a_tool(ask, "ask")):
        server.tasks.add(tool, input_schema={"type": "object"})
    async with server.open(capabilities={}) as caller:
        assert text_of(await caller.call("say")) == "in words"
        assert (await caller.call("ask"))["structuredContent"] == {"result": ["in words", None]}


async def test_a_plain_function_runs_in_a_thread_and_its_error_is_reported() -> None:
    def refuse(task: SyncTaskContext, tag: str) -> Json:
        raise ToolError(f"no {tag} from {task.attempt}")

    async with server_with_tool(refuse).open(capabilities={}) as caller:
        answer = await caller.call("release", {"tag": "v1"})
        assert (answer["isError"], text_of(answer)) == (True, "no v1 from 1")


async def test_a_child_of_an_added_tool_with_invalid_arguments_is_refused() -> None:
    async def begin(task: TaskContext) -> Json:
        await task.spawn("release", {"tag": 5})
        return None

    server = server_with_tool()
    server.tasks.add(a_tool(begin, "begin"), input_schema={"type": "object"})
    async with server.open(capabilities={}) as caller:
        answer = await caller.call("begin")
        assert answer["isError"] is True


async def test_the_servers_own_program_can_call_an_added_tool() -> None:
    server = server_with_tool()

    @server.mcp.tool()
    async def both(ctx: Context[Any, Any]) -> str:  # pyright: ignore[reportUnusedFunction]
        result = cast("Any", await server.mcp.call_tool("release", {"tag": "v7"}, ctx))
        with pytest.raises(SdkToolError) as raised:
            await server.mcp.call_tool("release", {"tag": 7}, ctx)
        assert "do not fit" in str(raised.value.__cause__)
        return result.structured_content["tag"]

    async with server.open(capabilities={}) as caller:
        assert text_of(await caller.call("both")) == "v7"


class Gate:
    """Makes tools that wait at a gate, and return their version."""

    def __init__(self) -> None:
        self.started, self.go = asyncio.Event(), asyncio.Event()

    def tool(self, version: str) -> TaskTool:
        async def wait(task: TaskContext, **arguments: Json) -> Json:
            del task, arguments
            self.started.set()
            await self.go.wait()
            return version

        return a_tool(wait, version=version)


async def test_running_tasks_keep_their_version_and_new_calls_get_the_new_one() -> None:
    server, gate = ExampleServer(), Gate()
    server.tasks.add(gate.tool("old"), input_schema=SCHEMA, policy=TASK)
    async with server.open() as caller:
        old = await caller.start("release", {"tag": "v1"})
        await gate.started.wait()
        server.tasks.replace(gate.tool("new"), input_schema={"type": "object"}, description="Anew.", policy=TASK)
        tool = (await listed(caller))["release"]
        assert (tool["inputSchema"], tool["description"]) == ({"type": "object"}, "Anew.")
        new = await caller.start("release", {"other": 1})
        gate.go.set()
        results = [(await caller.result(one))["structuredContent"]["result"] for one in (old, new)]
        assert results == ["old", "new"]


async def test_a_question_that_waits_is_answered_to_the_version_that_asked() -> None:
    async def ask(task: TaskContext) -> Json:
        reply = await task.elicit("Sure?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
        return f"old {reply.action}"

    async def other() -> Json:
        return "new"

    server = ExampleServer()
    server.tasks.add(a_tool(ask, version="old"), input_schema={"type": "object"}, policy=TASK)
    async with server.open() as caller:
        task_id = await caller.start("release")
        asked = await caller.until(task_id, "input_required")
        server.tasks.replace(a_tool(other, version="new"), input_schema={"type": "object"}, policy=TASK)
        await caller.update(task_id, {key: {"action": "decline"} for key in asked["inputRequests"]})
        assert (await caller.result(task_id))["structuredContent"] == {"result": "old decline"}


async def test_a_removed_tool_vanishes_and_its_running_tasks_continue() -> None:
    server, gate = ExampleServer(), Gate()
    server.tasks.add(gate.tool("old"), input_schema=SCHEMA, policy=TASK)
    async with server.open() as caller:
        task_id = await caller.start("release", {"tag": "v1"})
        await gate.started.wait()
        server.tasks.remove("release")
        assert "release" not in await listed(caller)
        assert "Unknown tool" in text_of(await caller.call("release", {"tag": "v1"}))
        gate.go.set()
        assert (await caller.result(task_id))["structuredContent"] == {"result": "old"}
        # Whoever takes it away by mistake puts it back.
        server.tasks.add(gate.tool("old"), input_schema=SCHEMA, policy=TASK)
        assert "release" in await listed(caller)


async def test_callers_of_2025_are_notified_of_changes_as_declared_at_the_handshake() -> None:
    server = server_with_tool()
    async with v2025_caller(server) as caller, v2025_caller(server) as gone:
        assert caller.welcome["capabilities"]["tools"] == {"listChanged": True}
        await gone.ping()
        server.tasks.remove("release")
        await server.tasks.notify_list_changed()
        await caller.seen(lambda message: message.get("method") == CHANGED)
        await gone.seen(lambda message: message.get("method") == CHANGED)
    # No connection is left, so nothing is waited for.
    await server.tasks.notify_list_changed()


async def test_callers_of_2026_are_notified_of_changes_if_they_subscribe() -> None:
    server = server_with_tool()
    async with server.open() as caller:
        messages = await _news_of(caller, server)
        assert messages["method"] == CHANGED


async def _news_of(caller: Caller, server: ExampleServer) -> Mapping[str, Any]:
    message = caller.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    stream = caller.transport.exchange(message, caller.routing(message))
    try:
        agreed = await anext(stream)
        assert agreed["params"]["notifications"] == {"toolsListChanged": True}
        server.tasks.remove("release")
        await server.tasks.notify_list_changed()
        return await anext(stream)
    finally:
        await stream.aclose()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "nothing"}, "its input schema is invalid"),
        ({}, 'its input schema must have "type": "object"'),
        ({"type": "object", "properties": {"raincheck_request": {}}}, "is a reserved name"),
        ({"type": "object", "properties": {"raincheck_context": {}}}, "is a reserved name"),
        (
            {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}},
            "an invalid x-mcp-header in its input",
        ),
    ],
)
def test_an_invalid_schema_is_refused_at_once(schema: Mapping[str, Json], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ExampleServer().tasks.add(a_tool(), input_schema=schema)


def test_invalid_additions_and_replacements_are_refused() -> None:
    server = server_with_tool()
    with pytest.raises(ConfigurationError, match="already has a tool 'release'"):
        server.tasks.add(a_tool(), input_schema=SCHEMA)
    with pytest.raises(ConfigurationError, match=r"no tool 'other' was added, .*\. Added tools: release"):
        server.tasks.replace(a_tool(name="other"), input_schema=SCHEMA)
    with pytest.raises(ConfigurationError, match="no tool 'other' was added"):
        server.tasks.remove("other")
    with pytest.raises(ConfigurationError, match="has no argument 'other'"):
        server.tasks.add(a_tool(name="key"), input_schema=SCHEMA, policy=TaskPolicy(idempotency="other"))
    with pytest.raises(ConfigurationError, match="separate process"):
        server.tasks.add(a_tool(release, "apart", isolation="process"), input_schema=SCHEMA)


def test_tools_of_the_server_itself_can_not_be_replaced() -> None:
    mcp = MCPServer("mine")
    tasks = Tasks(mcp, "memory:", settings=QUICK)

    @tasks.tool
    async def own_tool() -> None:  # pyright: ignore[reportUnusedFunction]
        """Nothing."""

    with pytest.raises(ConfigurationError, match="Added tools: none"):
        tasks.remove("own_tool")
