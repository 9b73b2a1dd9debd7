"""Tools that are ready to run and have a JSON Schema: listed as they are, checked by it, served to every caller."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp_types import CallToolResult, TextContent

from raincheck import RetryPolicy, SyncTaskContext, TaskContext, Tasks
from raincheck.core.payload import Json
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, ToolError
from raincheck.server.tools.policy import TaskPolicy
from tests.support.server.caller_v2025 import calling
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

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


def a_shop(body: Any = release, policy: TaskPolicy | None = None) -> Shop:
    shop = Shop()
    shop.tasks.add(a_tool(body), input_schema=SCHEMA, description="Release it.", policy=policy)
    return shop


async def listed(caller: Any) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await caller.request("tools/list"))["tools"]}


async def test_it_is_listed_with_exactly_its_schema_in_both_generations() -> None:
    async with a_shop().open() as caller:
        tool = (await listed(caller))["release"]
        assert (tool["inputSchema"], tool["description"]) == (SCHEMA, "Release it.")
        assert "outputSchema" not in tool
    async with calling(a_shop()) as caller:
        tool = (await listed(caller))["release"]
        assert (tool["inputSchema"], tool["execution"]) == (SCHEMA, {"taskSupport": "optional"})


async def test_callers_of_2026_get_a_task_and_its_result() -> None:
    async with a_shop(policy=TASK).open() as caller:
        result = await caller.result(await caller.start("release", {"tag": "v1"}))
        assert result["structuredContent"] == {"tag": "v1", "is_task": True}
        assert '"tag": "v1"' in text_of(result)


async def test_callers_of_2025_get_a_task_and_its_result() -> None:
    async with calling(a_shop(policy=TASK)) as caller:
        result = await caller.result(await caller.start("release", {"tag": "v1"}))
        assert result["structuredContent"] == {"tag": "v1", "is_task": True}


async def test_callers_without_tasks_get_the_result() -> None:
    async with a_shop().open(capabilities={}) as caller:
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
async def test_wrong_arguments_are_told_as_the_sdk_tells_of_them(arguments: Mapping[str, Any], says: str) -> None:
    async with a_shop(policy=TASK).open() as caller:
        answer = await caller.call("release", arguments)
        assert answer["isError"] is True
        assert text_of(answer).startswith("Error executing tool release: the arguments do not fit its input schema: ")
        assert says in text_of(answer)
    async with calling(a_shop(policy=TASK)) as caller:
        assert says in text_of(await caller.call("release", arguments))
        with pytest.raises(Refused, match="-32602"):
            await caller.start("release", arguments)


async def test_of_many_faults_the_first_are_told() -> None:
    schema: Json = {"type": "object", "properties": {f"a{n}": {"type": "string"} for n in range(9)}}
    shop = Shop()
    shop.tasks.add(a_tool(), input_schema=cast("Mapping[str, Json]", schema))
    async with shop.open(capabilities={}) as caller:
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
async def test_whatever_json_comes_back_is_the_result_and_a_parent_gets_it_as_it_was(
    value: Json, structured: Json, text: str | None
) -> None:
    async def give() -> Json:
        return value

    async def ask(task: TaskContext) -> Json:
        child = await task.spawn("give")
        return {"same": await child.result() == value}

    shop = Shop()
    for tool in (a_tool(give, "give"), a_tool(ask, "ask")):
        shop.tasks.add(tool, input_schema={"type": "object"})
    async with shop.open(capabilities={}) as caller:
        result = await caller.call("give")
        assert result["structuredContent"] == structured
        assert [block["text"] for block in result["content"]] == ([] if text is None else [text])
        assert (await caller.call("ask"))["structuredContent"] == {"same": True}


async def test_a_result_in_the_words_of_the_protocol_is_the_result_and_a_parent_gets_what_it_says() -> None:
    async def say() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="in words")])

    async def keep_silent() -> CallToolResult:
        return CallToolResult(content=[])

    async def ask(task: TaskContext) -> Json:
        return [await (await task.spawn(name)).result() for name in ("say", "keep_silent")]

    shop = Shop()
    for tool in (a_tool(say, "say"), a_tool(keep_silent, "keep_silent"), a_tool(ask, "ask")):
        shop.tasks.add(tool, input_schema={"type": "object"})
    async with shop.open(capabilities={}) as caller:
        assert text_of(await caller.call("say")) == "in words"
        assert (await caller.call("ask"))["structuredContent"] == {"result": ["in words", None]}


async def test_a_plain_function_runs_in_a_thread_and_what_it_raises_is_told() -> None:
    def refuse(task: SyncTaskContext, tag: str) -> Json:
        raise ToolError(f"no {tag} from {task.attempt}")

    async with a_shop(refuse).open(capabilities={}) as caller:
        answer = await caller.call("release", {"tag": "v1"})
        assert (answer["isError"], text_of(answer)) == (True, "no v1 from 1")


async def test_other_tasks_can_not_begin_it_with_what_does_not_fit() -> None:
    async def begin(task: TaskContext) -> Json:
        await task.spawn("release", {"tag": 5})
        return None

    shop = a_shop()
    shop.tasks.add(a_tool(begin, "begin"), input_schema={"type": "object"})
    async with shop.open(capabilities={}) as caller:
        answer = await caller.call("begin")
        assert answer["isError"] is True


async def test_the_servers_own_program_can_call_it() -> None:
    shop = a_shop()

    @shop.mcp.tool()
    async def both(ctx: Context[Any, Any]) -> str:  # pyright: ignore[reportUnusedFunction]
        result = cast("Any", await shop.mcp.call_tool("release", {"tag": "v7"}, ctx))
        with pytest.raises(SdkToolError) as raised:
            await shop.mcp.call_tool("release", {"tag": 7}, ctx)
        assert "do not fit" in str(raised.value.__cause__)
        return result.structured_content["tag"]

    async with shop.open(capabilities={}) as caller:
        assert text_of(await caller.call("both")) == "v7"


class Gate:
    """A tool that waits to be let go, and says which version of it ran."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    def tool(self, version: str) -> TaskTool:
        async def wait(task: TaskContext, **arguments: Json) -> Json:
            del task, arguments
            self.begun.set()
            await self.go.wait()
            return version

        return a_tool(wait, version=version)


async def test_what_runs_goes_on_with_its_version_and_new_calls_get_the_new_one() -> None:
    shop, gate = Shop(), Gate()
    shop.tasks.add(gate.tool("old"), input_schema=SCHEMA, policy=TASK)
    async with shop.open() as caller:
        old = await caller.start("release", {"tag": "v1"})
        await gate.begun.wait()
        shop.tasks.replace(gate.tool("new"), input_schema={"type": "object"}, description="Anew.", policy=TASK)
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

    shop = Shop()
    shop.tasks.add(a_tool(ask, version="old"), input_schema={"type": "object"}, policy=TASK)
    async with shop.open() as caller:
        task_id = await caller.start("release")
        asked = await caller.until(task_id, "input_required")
        shop.tasks.replace(a_tool(other, version="new"), input_schema={"type": "object"}, policy=TASK)
        await caller.update(task_id, {key: {"action": "decline"} for key in asked["inputRequests"]})
        assert (await caller.result(task_id))["structuredContent"] == {"result": "old decline"}


async def test_what_is_removed_vanishes_and_what_runs_goes_on() -> None:
    shop, gate = Shop(), Gate()
    shop.tasks.add(gate.tool("old"), input_schema=SCHEMA, policy=TASK)
    async with shop.open() as caller:
        task_id = await caller.start("release", {"tag": "v1"})
        await gate.begun.wait()
        shop.tasks.remove("release")
        assert "release" not in await listed(caller)
        assert "Unknown tool" in text_of(await caller.call("release", {"tag": "v1"}))
        gate.go.set()
        assert (await caller.result(task_id))["structuredContent"] == {"result": "old"}
        # Whoever takes it away by mistake puts it back.
        shop.tasks.add(gate.tool("old"), input_schema=SCHEMA, policy=TASK)
        assert "release" in await listed(caller)


async def test_callers_of_2025_are_told_of_changes_and_that_they_will_be() -> None:
    shop = a_shop()
    async with calling(shop) as caller, calling(shop) as gone:
        assert caller.welcome["capabilities"]["tools"] == {"listChanged": True}
        await gone.ping()
        shop.tasks.remove("release")
        await shop.tasks.notify_list_changed()
        await caller.seen(lambda message: message.get("method") == CHANGED)
        await gone.seen(lambda message: message.get("method") == CHANGED)
    # Nobody is there any more, and nobody is waited for.
    await shop.tasks.notify_list_changed()


async def test_callers_of_2026_are_told_of_changes_if_they_listen() -> None:
    shop = a_shop()
    async with shop.open() as caller:
        came = await _news_of(caller, shop)
        assert came["method"] == CHANGED


async def _news_of(caller: Caller, shop: Shop) -> Mapping[str, Any]:
    message = caller.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    stream = caller.wire.exchange(message, caller.routing(message))
    try:
        agreed = await anext(stream)
        assert agreed["params"]["notifications"] == {"toolsListChanged": True}
        shop.tasks.remove("release")
        await shop.tasks.notify_list_changed()
        return await anext(stream)
    finally:
        await stream.aclose()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "nothing"}, "its input schema is none"),
        ({}, 'its input schema has type: "object"'),
        ({"type": "object", "properties": {"raincheck_request": {}}}, "is our own name"),
        ({"type": "object", "properties": {"raincheck_context": {}}}, "is our own name"),
        (
            {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}},
            "an x-mcp-header in its input",
        ),
    ],
)
def test_a_schema_that_can_not_be_is_refused_at_once(schema: Mapping[str, Json], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Shop().tasks.add(a_tool(), input_schema=schema)


def test_what_can_not_be_added_or_exchanged_is_refused() -> None:
    shop = a_shop()
    with pytest.raises(ConfigurationError, match="has a tool 'release' already"):
        shop.tasks.add(a_tool(), input_schema=SCHEMA)
    with pytest.raises(ConfigurationError, match="no tool 'other' was added, so it can't be exchanged: there is rel"):
        shop.tasks.replace(a_tool(name="other"), input_schema=SCHEMA)
    with pytest.raises(ConfigurationError, match="no tool 'other' was added"):
        shop.tasks.remove("other")
    with pytest.raises(ConfigurationError, match="it has no 'other'"):
        shop.tasks.add(a_tool(name="key"), input_schema=SCHEMA, policy=TaskPolicy(idempotency="other"))
    with pytest.raises(ConfigurationError, match="process of its own"):
        shop.tasks.add(a_tool(release, "apart", isolation="process"), input_schema=SCHEMA)


def test_tools_of_others_can_not_be_exchanged() -> None:
    mcp = MCPServer("mine")
    tasks = Tasks(mcp, "memory:", settings=QUICK)

    @tasks.tool
    async def theirs() -> None:  # pyright: ignore[reportUnusedFunction]
        """Nothing."""

    with pytest.raises(ConfigurationError, match="there is none at all"):
        tasks.remove("theirs")
