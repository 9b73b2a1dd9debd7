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
from tests.support.server.example import Shop

pytestmark = pytest.mark.anyio


def double(number: int) -> int:
    return 2 * number


async def kind_of(shop: Shop, tool: str, arguments: dict[str, Any] | None = None) -> str:
    async with shop.open() as caller:
        answer = await caller.call(tool, {"number": 1} if arguments is None else arguments)
        if answer["resultType"] == "task":
            assert (await caller.result(answer["taskId"]))["structuredContent"] == {"result": 2}
        return answer["resultType"]


@pytest.mark.parametrize("is_enabled_first", [True, False])
async def test_a_tool_is_enabled_by_its_name_before_or_after_it_is_registered(*, is_enabled_first: bool) -> None:
    shop = Shop()
    if is_enabled_first:
        shop.tasks.enable("double")
    shop.mcp.add_tool(double)
    if not is_enabled_first:
        shop.tasks.enable("double")
    assert await kind_of(shop, "double") == "task"


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
    shop = Shop()
    shop.tasks.enable(pattern)
    shop.mcp.add_tool(double, name=tool)
    assert await kind_of(shop, tool) == kind


async def test_a_tool_that_is_registered_while_the_server_runs_is_enabled_too() -> None:
    shop = Shop()
    shop.tasks.enable("dou*")
    async with shop.open() as caller:
        await caller.request("server/discover")
        shop.mcp.add_tool(double)
        assert (await caller.result(await caller.start("double", {"number": 4})))["structuredContent"] == {"result": 8}


async def test_a_tool_can_be_enabled_while_the_server_runs() -> None:
    shop = Shop()
    shop.mcp.add_tool(double)
    async with shop.open() as caller:
        assert (await caller.call("double", {"number": 1}))["resultType"] == "complete"
        shop.tasks.enable("double")
        assert (await caller.call("double", {"number": 1}))["resultType"] == "task"


async def test_what_was_said_last_counts() -> None:
    shop = Shop()
    shop.tasks.enable("*", mode="required")
    shop.tasks.enable("double", mode="forbidden")
    shop.mcp.add_tool(double)
    shop.mcp.add_tool(double, name="another")
    async with shop.open(capabilities={}) as caller:
        assert (await caller.call("double", {"number": 1}))["structuredContent"] == {"result": 2}
        with pytest.raises(Refused) as refused:
            await caller.call("another", {"number": 1})
        assert refused.value.code == -32021


async def test_the_policies_of_an_enabled_tool_hold() -> None:
    shop = Shop()
    shop.tasks.enable("double", inline_for=5, idempotency="number")
    shop.mcp.add_tool(double)
    async with shop.open(capabilities=TASKS) as caller:
        assert (await caller.call("double", {"number": 1}))["resultType"] == "complete"


async def test_a_repeated_call_of_an_enabled_tool_with_a_key_gets_the_first_ones_task() -> None:
    shop = Shop()
    shop.tasks.enable("double", idempotency="number")
    shop.mcp.add_tool(double)
    async with shop.open() as caller:
        first = await caller.start("double", {"number": 1})
        assert await caller.start("double", {"number": 1}) == first
        assert await caller.start("double", {"number": 2}) != first


async def test_enabling_changes_nothing_of_what_is_listed() -> None:
    shop = Shop()
    shop.mcp.add_tool(double)
    async with shop.open() as caller:
        before = await caller.request("tools/list")
        shop.tasks.enable("double")
        assert await caller.request("tools/list") == before


def test_nothing_is_enabled_by_no_name() -> None:
    with pytest.raises(ConfigurationError, match="enable takes the name of a tool, or a pattern"):
        Shop().tasks.enable("")


def test_the_tools_of_others_are_not_isolated() -> None:
    with pytest.raises(ConfigurationError, match="'double' can't be isolated"):
        Shop().tasks.enable("double", isolation="process")


async def test_bad_arguments_of_an_enabled_tool_make_no_task() -> None:
    shop = Shop()
    shop.mcp.add_tool(double)
    async with shop.open() as caller:
        plain = await caller.call("double", {"number": "many"})
        shop.tasks.enable("double")
        assert await caller.call("double", {"number": "many"}) == plain
        assert plain["isError"] is True


async def test_errors_of_an_enabled_tool_are_told_as_it_meant_them() -> None:
    shop = Shop()
    shop.tasks.enable("refuse")

    @shop.mcp.tool()
    def refuse(how: str) -> str:
        if how == "tool":
            raise SdkToolError("out of stock")
        raise MCPError(-32050, "closed", {"until": "Monday"})

    async with shop.open() as caller:
        result = await caller.result(await caller.start("refuse", {"how": "tool"}))
        assert result["isError"] is True
        assert "out of stock" in result["content"][0]["text"]
        failed = await caller.until(await caller.start("refuse", {"how": "protocol"}))
        assert failed["error"] == {"code": -32050, "message": "closed", "data": {"until": "Monday"}}


async def test_an_enabled_tool_that_was_removed_is_unknown() -> None:
    shop = Shop()
    shop.mcp.add_tool(double)
    shop.tasks.enable("double")
    async with shop.open() as caller:
        await caller.start("double", {"number": 1})
        shop.mcp.remove_tool("double")
        assert (await caller.call("double", {"number": 1}))["content"][0]["text"] == "Unknown tool: double"


async def test_what_takes_the_place_of_an_enabled_tool_is_called_with_its_own_arguments() -> None:
    shop = Shop()
    shop.mcp.add_tool(double)
    shop.tasks.enable("double")
    async with shop.open() as caller:
        await caller.result(await caller.start("double", {"number": 1}))
        shop.mcp.remove_tool("double")

        @shop.mcp.tool(name="double")
        def another(words: str) -> str:
            return 2 * words

        result = await caller.result(await caller.start("double", {"words": "ab"}))
        assert result["structuredContent"] == {"result": "abab"}


class Name(BaseModel):
    name: str


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def shop_that_asks_first(way: str, began: list[str]) -> Shop:
    shop = Shop()

    async def greet(greeting: str, user: Annotated[Name, Resolve(ask_name)]) -> str:
        began.append(user.name)
        return f"{greeting}, {user.name}!"

    if way == "tool":
        shop.tasks.tool(greet)
    else:
        shop.mcp.add_tool(greet)
        shop.tasks.enable("greet")
    return shop


@pytest.mark.parametrize("way", ["tool", "enable"])
@pytest.mark.parametrize("opening", ["open", "open_http"])
async def test_what_resolvers_ask_is_asked_before_there_is_a_task_and_once(way: str, opening: str) -> None:
    began: list[str] = []
    async with getattr(shop_that_asks_first(way, began), opening)() as caller:
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
    async with shop_that_asks_first(way, began).open() as caller:
        asked = await caller.call("greet", {"greeting": "Hello"})
        ((key, _),) = asked["inputRequests"].items()
        state = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"]}
        declined = await caller.call("greet", {"greeting": "Hello"}, **state)
        assert (declined["resultType"], declined["isError"]) == ("complete", True)
    assert began == []


@pytest.mark.parametrize("way", ["plain", "tool", "enable"])
async def test_a_resolver_that_crashes_is_answered_in_the_sdks_words(way: str) -> None:
    def crash() -> str:
        raise OSError("secret")

    async def greet(name: Annotated[str, Resolve(crash)]) -> str:
        return name

    shop = Shop()
    if way == "tool":
        shop.tasks.tool(greet)
    else:
        shop.mcp.add_tool(greet)
    if way == "enable":
        shop.tasks.enable("greet")
    async with shop.open() as caller:
        answer = await caller.call("greet")
        assert (answer["resultType"], answer["isError"]) == ("complete", True)
        assert answer["content"][0]["text"] == "Error executing tool greet"


async def test_an_enabled_tool_that_is_a_plain_function_does_not_hold_up_the_event_loop() -> None:
    shop = Shop()
    shop.tasks.enable("wait")
    gate, loop = asyncio.Event(), asyncio.get_running_loop()

    @shop.mcp.tool()
    def wait() -> bool:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(gate.wait(), 20), loop).result()

    async with shop.open() as caller:
        task_id = await caller.start("wait")
        assert (await caller.get(task_id))["status"] == "working"
        gate.set()
        assert (await caller.result(task_id))["structuredContent"] == {"result": True}
