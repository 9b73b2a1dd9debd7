"""Only callers that can't use tasks are shown the tools for those, and that a call may be answered with a task's id."""

# pyright: reportUnusedFunction=false

from typing import Any

import pytest
from pydantic import BaseModel

from raincheck import TaskContext
from tests.support.schemas import validate
from tests.support.server.caller_v2025 import G1Caller
from tests.support.server.caller_v2026 import TASKS, Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.hosts import (
    BY_ALL_VERSIONS,
    FIVE,
    MODERN,
    ON_PLAIN_WIRES,
    VERSIONS,
    Model,
    handle_of,
    hosted,
    told,
)
from tests.support.server.tools import LEGACY, add_gated, text_of
from tests.support.server.v2025.tools import refused_call

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

OWN_TASKS: dict[str, Any] = {"tasks": {"requests": {"elicitation": {"create": {}}}}}
"""What a caller of 2025-11-25 declares that has tasks of its own."""


class Receipt(BaseModel):
    item: str


def build(**options: Any) -> Shop:
    shop = Shop(**options)
    add_gated(shop)

    @shop.tasks.tool
    async def buy(item: str) -> Receipt:
        return Receipt(item=item)

    @shop.mcp.tool()
    async def look() -> Receipt:
        return Receipt(item="anything")

    return shop


async def schemas_of_nobody(version: str) -> dict[str, Any]:
    """The output schemas as they are where nobody is told of tasks."""
    async with hosted(build(fallback_wait=None), version) as model:
        return {name: tool.get("outputSchema") for name, tool in (await model.tools()).items()}


async def assert_shown_nothing(model: Model, version: str) -> None:
    tools = await model.tools()
    assert not set(tools) & set(FIVE)
    assert {name: tool.get("outputSchema") for name, tool in tools.items()} == await schemas_of_nobody(version)


@ON_PLAIN_WIRES
@BY_ALL_VERSIONS
async def test_a_host_that_can_not_use_tasks_is_shown_the_five_tools_behind_the_servers_own(
    version: str, way: str
) -> None:
    async with hosted(build(), version, way) as model:
        tools = await model.tools()
        assert list(tools) == ["gated", "buy", "look", *FIVE]
        schema = "2025-11-25" if version != MODERN else MODERN
        for name in FIVE:
            validate("Tool", tools[name], schema)
            assert "outputSchema" not in tools[name]
            assert "execution" not in tools[name], "they are no tasks themselves"


@BY_ALL_VERSIONS
async def test_the_tools_that_may_become_tasks_say_so_in_their_output_schemas_and_others_do_not(version: str) -> None:
    as_they_are = await schemas_of_nobody(version)
    async with hosted(build(), version) as model:
        tools = await model.tools()
        for name in ("gated", "buy"):
            own, handle = tools[name]["outputSchema"]["anyOf"]
            assert own == as_they_are[name]
            assert handle["required"] == ["task_id", "status"]
            assert tools[name]["outputSchema"]["type"] == "object"
        assert tools["look"]["outputSchema"] == as_they_are["look"]


@ON_PLAIN_WIRES
async def test_callers_with_the_extension_are_shown_nothing_of_it(way: str) -> None:
    async with hosted(build(), MODERN, way, capabilities=TASKS) as model:
        await assert_shown_nothing(model, MODERN)


@ON_PLAIN_WIRES
async def test_each_request_of_2026_is_answered_by_what_it_declares_itself(way: str) -> None:
    async with hosted(build(), MODERN, way) as model:
        assert isinstance(model.caller, Caller)
        assert set(FIVE) < set(await model.tools())
        knows = Model(Caller(model.caller.wire, capabilities=TASKS), model.clock)
        assert not set(FIVE) & set(await knows.tools())
        assert set(FIVE) < set(await model.tools())


@ON_PLAIN_WIRES
async def test_what_older_callers_declare_means_nothing_in_2026(way: str) -> None:
    async with hosted(build(), MODERN, way, capabilities=LEGACY) as model:
        assert set(FIVE) < set(await model.tools())


@ON_PLAIN_WIRES
@pytest.mark.parametrize("capabilities", [OWN_TASKS, {"tasks": {}}, LEGACY], ids=["asked", "empty", "all"])
async def test_callers_of_2025_11_that_declare_tasks_are_shown_nothing_of_it(
    capabilities: dict[str, Any], way: str
) -> None:
    async with hosted(build(), "2025-11-25", way, capabilities=capabilities) as model:
        await assert_shown_nothing(model, "2025-11-25")


@pytest.mark.parametrize("version", [one for one in VERSIONS if one < "2025-11-25"])
async def test_in_a_version_without_tasks_nobody_can_use_them_whatever_is_declared(version: str) -> None:
    async with hosted(build(), version, capabilities=LEGACY) as model:
        assert set(FIVE) < set(await model.tools())


async def call_as_a_task(caller: G1Caller) -> None:
    await caller.create("buy", {"item": "bread"})


async def call_as_a_task_in_vain(caller: G1Caller) -> None:
    await refused_call(caller, "look")


async def ask_for_a_task(caller: G1Caller) -> None:
    call = await caller.begin("tasks/get", {"taskId": "unknown"})
    assert "error" in await call.came


async def list_tasks(caller: G1Caller) -> None:
    call = await caller.begin("tasks/list")
    await call.came


@ON_PLAIN_WIRES
@pytest.mark.parametrize("use", [call_as_a_task, call_as_a_task_in_vain, ask_for_a_task, list_tasks])
async def test_callers_of_2025_11_that_have_used_tasks_on_their_connection_are_shown_nothing_of_it(
    use: Any, way: str
) -> None:
    async with hosted(build(), "2025-11-25", way) as model:
        assert set(FIVE) < set(await model.tools())
        await use(model.caller)
        await assert_shown_nothing(model, "2025-11-25")


@ON_PLAIN_WIRES
async def test_what_a_caller_of_an_older_version_sends_in_vain_makes_it_no_user_of_tasks(way: str) -> None:
    async with hosted(build(), "2025-06-18", way) as model:
        assert isinstance(model.caller, G1Caller)
        call = await model.caller.begin("tasks/get", {"taskId": "unknown"})
        assert (await call.came)["error"]["code"] == -32601
        assert text_of(await model.call("buy", {"item": "bread"}, task={})) == '{\n  "item": "bread"\n}'
        assert set(FIVE) < set(await model.tools())


@pytest.mark.parametrize(
    "capabilities", [OWN_TASKS, {}], ids=["one that declares tasks", "one that has called as a task"]
)
async def test_a_caller_that_was_shown_nothing_of_it_and_asks_for_no_task_is_answered_as_its_list_says(
    capabilities: dict[str, Any],
) -> None:
    """Its structured content fits the schema that it was shown, and no tool is named that it can't know."""
    shop = build(fallback_wait=0.1)

    @shop.tasks.tool
    async def slow(task: TaskContext) -> Receipt:
        await task.sleep(0.5)
        return Receipt(item="late")

    async with hosted(shop, "2025-11-25", capabilities=capabilities) as model:
        assert isinstance(model.caller, G1Caller)
        if not capabilities:
            await call_as_a_task(model.caller)
        answer = await model.call("slow")
        assert answer["structuredContent"] == {"item": "late"}


@ON_PLAIN_WIRES
async def test_one_who_can_use_tasks_may_still_go_on_with_one_by_its_id_in_words(way: str) -> None:
    """A list may be old by the time that a model calls, and another host may have been told of the task."""
    shop = build(fallback_wait=0.1)
    async with hosted(shop, MODERN, way) as model:
        assert isinstance(model.caller, Caller)
        task_id = handle_of(await model.call("gated"))
        knows = Model(Caller(model.caller.wire, capabilities=TASKS), model.clock)
        answer = await knows.call("task_status", {"task_id": task_id})
        assert answer["resultType"] == "complete"
        assert told(answer).startswith("gated is still running")


async def test_the_five_are_never_called_as_tasks() -> None:
    async with hosted(build(), "2025-11-25") as model:
        assert isinstance(model.caller, G1Caller)
        for name in FIVE:
            refused = await refused_call(model.caller, name, {"task_id": "unknown"})
            assert (refused.code, refused.message) == (
                -32601,
                f"tool {name!r} can't be called as a task: call it without params.task",
            )
