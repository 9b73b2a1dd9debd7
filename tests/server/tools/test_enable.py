"""Tools that were registered on the server itself become tasks when they are enabled, by name or by pattern."""

import asyncio
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from raincheck.errors import ConfigurationError
from tests.support.server.caller_v2026 import TASKS, Refused
from tests.support.server.example import ExampleServer

pytestmark = pytest.mark.anyio


def double(number: int) -> int:
    return 2 * number


async def kind_of(server: ExampleServer, tool: str, arguments: dict[str, Any] | None = None) -> str:
    async with server.open() as caller:
        answer = await caller.call(tool, {"number": 1} if arguments is None else arguments)
        if answer["resultType"] == "task":
            assert (await caller.result(answer["taskId"]))["structuredContent"] == {"result": 2}
        return answer["resultType"]


@pytest.mark.parametrize("is_enabled_first", [True, False])
async def test_a_tool_is_enabled_by_its_name_before_or_after_it_is_registered(*, is_enabled_first: bool) -> None:
    server = ExampleServer()
    if is_enabled_first:
        server.tasks.enable("double")
    server.mcp.add_tool(double)
    if not is_enabled_first:
        server.tasks.enable("double")
    assert await kind_of(server, "double") == "task"


@pytest.mark.parametrize(
    ("pattern", "tool", "kind"),
    [
        ("report_*", "report_year", "task"),
        ("report_*", "other", "complete"),
        ("*", "other", "task"),
        ("report_?", "report_1", "task"),
        ("report_?", "report_12", "complete"),
        ("[ab]_tool", "b_tool", "task"),
        ("REPORT_*", "report_year", "complete"),
    ],
)
async def test_a_pattern_enables_the_tools_that_it_matches(pattern: str, tool: str, kind: str) -> None:
    server = ExampleServer()
    server.tasks.enable(pattern)
    server.mcp.add_tool(double, name=tool)
    assert await kind_of(server, tool) == kind


async def test_a_tool_that_is_registered_while_the_server_runs_is_enabled_too() -> None:
    server = ExampleServer()
    server.tasks.enable("dou*")
    async with server.open() as caller:
        await caller.request("server/discover")
        server.mcp.add_tool(double)
        assert (await caller.result(await caller.start("double", {"number": 4})))["structuredContent"] == {"result": 8}


async def test_a_tool_can_be_enabled_while_the_server_runs() -> None:
    server = ExampleServer()
    server.mcp.add_tool(double)
    async with server.open() as caller:
        assert (await caller.call("double", {"number": 1}))["resultType"] == "complete"
        server.tasks.enable("double")
        assert (await caller.call("double", {"number": 1}))["resultType"] == "task"


async def test_the_last_setting_takes_precedence() -> None:
    server = ExampleServer()
    server.tasks.enable("*", mode="required")
    server.tasks.enable("double", mode="forbidden")
    server.mcp.add_tool(double)
    server.mcp.add_tool(double, name="another")
    async with server.open(capabilities={}) as caller:
        assert (await caller.call("double", {"number": 1}))["structuredContent"] == {"result": 2}
        with pytest.raises(Refused) as refused:
            await caller.call("another", {"number": 1})
        assert refused.value.code == -32021


async def test_the_policy_of_an_enabled_tool_applies() -> None:
    server = ExampleServer()
    server.tasks.enable("double", inline_for=5, idempotency="number")
    server.mcp.add_tool(double)
    async with server.open(capabilities=TASKS) as caller:
        assert (await caller.call("double", {"number": 1}))["resultType"] == "complete"


async def test_a_repeated_call_of_an_enabled_tool_with_a_key_gets_the_first_ones_task() -> None:
    server = ExampleServer()
    server.tasks.enable("double", idempotency="number")
    server.mcp.add_tool(double)
    async with server.open() as caller:
        first = await caller.start("double", {"number": 1})
        assert await caller.start("double", {"number": 1}) == first
        assert await caller.start("double", {"number": 2}) != first


async def test_enabling_does_not_change_the_tool_list() -> None:
    server = ExampleServer()
    server.mcp.add_tool(double)
    async with server.open() as caller:
        before = await caller.request("tools/list")
        server.tasks.enable("double")
        assert await caller.request("tools/list") == before


def test_enable_refuses_an_empty_name() -> None:
    with pytest.raises(ConfigurationError, match="enable takes the name of a tool, or a pattern"):
        ExampleServer().tasks.enable("")


def test_enabled_tools_can_not_be_isolated() -> None:
    with pytest.raises(ConfigurationError, match="'double' can't be isolated"):
        ExampleServer().tasks.enable("double", isolation="process")


async def test_bad_arguments_of_an_enabled_tool_make_no_task() -> None:
    server = ExampleServer()
    server.mcp.add_tool(double)
    async with server.open() as caller:
        direct_answer = await caller.call("double", {"number": "many"})
        server.tasks.enable("double")
        assert await caller.call("double", {"number": "many"}) == direct_answer
        assert direct_answer["isError"] is True


async def test_errors_of_an_enabled_tool_reach_the_caller_unchanged() -> None:
    server = ExampleServer()
    server.tasks.enable("refuse")

    @server.mcp.tool()
    def refuse(how: str) -> str:
        if how == "tool":
            raise SdkToolError("out of stock")
        raise MCPError(-32050, "closed", {"until": "Monday"})

    async with server.open() as caller:
        result = await caller.result(await caller.start("refuse", {"how": "tool"}))
        assert result["isError"] is True
        assert "out of stock" in result["content"][0]["text"]
        failed = await caller.until(await caller.start("refuse", {"how": "protocol"}))
        assert failed["error"] == {"code": -32050, "message": "closed", "data": {"until": "Monday"}}


async def test_an_enabled_tool_that_was_removed_is_unknown() -> None:
    server = ExampleServer()
    server.mcp.add_tool(double)
    server.tasks.enable("double")
    async with server.open() as caller:
        await caller.start("double", {"number": 1})
        server.mcp.remove_tool("double")
        assert (await caller.call("double", {"number": 1}))["content"][0]["text"] == "Unknown tool: double"


async def test_the_replacement_of_an_enabled_tool_is_called_with_its_own_arguments() -> None:
    server = ExampleServer()
    server.mcp.add_tool(double)
    server.tasks.enable("double")
    async with server.open() as caller:
        await caller.result(await caller.start("double", {"number": 1}))
        server.mcp.remove_tool("double")

        @server.mcp.tool(name="double")
        def another(words: str) -> str:
            return 2 * words

        result = await caller.result(await caller.start("double", {"words": "ab"}))
        assert result["structuredContent"] == {"result": "abab"}


class Name(BaseModel):
    name: str


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def server_with_resolver(way: str, began: list[str]) -> ExampleServer:
    server = ExampleServer()

    async def greet(greeting: str, user: Annotated[Name, Resolve(ask_name)]) -> str:
        began.append(user.name)
        return f"{greeting}, {user.name}!"

    if way == "tool":
        server.tasks.tool(greet)
    else:
        server.mcp.add_tool(greet)
        server.tasks.enable("greet")
    return server


@pytest.mark.parametrize("way", ["tool", "enable"])
@pytest.mark.parametrize("opening", ["open", "open_http"])
async def test_resolvers_ask_once_and_before_there_is_a_task(way: str, opening: str) -> None:
    began: list[str] = []
    async with getattr(server_with_resolver(way, began), opening)() as caller:
        asked = await caller.call("greet", {"greeting": "Hello"})
        assert asked["resultType"] == "input_required"
        ((key, request),) = asked["inputRequests"].items()
        assert request["params"]["message"] == "What is your name?"
        assert began == []
        answers = {key: {"action": "accept", "content": {"name": "Ann"}}}
        state = {"inputResponses": answers, "requestState": asked["requestState"]}
        task_id = await caller.start("greet", {"greeting": "Hello"}, **state)
        assert (await caller.result(task_id))["content"][0]["text"] == "Hello, Ann!"
    assert began == ["Ann"]


@pytest.mark.parametrize("way", ["tool", "enable"])
async def test_a_question_before_the_task_that_is_declined_makes_no_task(way: str) -> None:
    began: list[str] = []
    async with server_with_resolver(way, began).open() as caller:
        asked = await caller.call("greet", {"greeting": "Hello"})
        ((key, _),) = asked["inputRequests"].items()
        state = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"]}
        declined = await caller.call("greet", {"greeting": "Hello"}, **state)
        assert (declined["resultType"], declined["isError"]) == ("complete", True)
    assert began == []


@pytest.mark.parametrize("way", ["plain", "tool", "enable"])
async def test_a_resolver_that_crashes_gets_the_sdks_error(way: str) -> None:
    def crash() -> str:
        raise OSError("secret")

    async def greet(name: Annotated[str, Resolve(crash)]) -> str:
        return name

    server = ExampleServer()
    if way == "tool":
        server.tasks.tool(greet)
    else:
        server.mcp.add_tool(greet)
    if way == "enable":
        server.tasks.enable("greet")
    async with server.open() as caller:
        answer = await caller.call("greet")
        assert (answer["resultType"], answer["isError"]) == ("complete", True)
        assert answer["content"][0]["text"] == "Error executing tool greet"


async def test_an_enabled_plain_function_does_not_block_the_event_loop() -> None:
    server = ExampleServer()
    server.tasks.enable("wait")
    gate, loop = asyncio.Event(), asyncio.get_running_loop()

    @server.mcp.tool()
    def wait() -> bool:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(gate.wait(), 20), loop).result()

    async with server.open() as caller:
        task_id = await caller.start("wait")
        assert (await caller.get(task_id))["status"] == "working"
        gate.set()
        assert (await caller.result(task_id))["structuredContent"] == {"result": True}
