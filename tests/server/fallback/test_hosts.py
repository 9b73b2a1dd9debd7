"""Only callers without tasks are listed the fallback tools, and output schemas that allow a task reference."""

# pyright: reportUnusedFunction=false

from typing import Any

import pytest
from pydantic import BaseModel

from raincheck import TaskContext
from tests.support.schemas import validate
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.caller_v2026 import TASKS, Caller
from tests.support.server.example import ExampleServer
from tests.support.server.fallback.hosts import (
    BY_ALL_VERSIONS,
    FALLBACK_TOOL_NAMES,
    MODERN,
    ON_FALLBACK_TRANSPORTS,
    VERSIONS,
    Model,
    connected_host,
    model_text,
    task_id_of,
)
from tests.support.server.tools import LEGACY, add_gated, text_of
from tests.support.server.v2025.tools import refused_call

pytestmark = pytest.mark.anyio

OWN_TASKS: dict[str, Any] = {"tasks": {"requests": {"elicitation": {"create": {}}}}}
"""The capabilities of a 2025-11-25 caller that supports tasks."""


class Receipt(BaseModel):
    item: str


def build(**options: Any) -> ExampleServer:
    server = ExampleServer(**options)
    add_gated(server)

    @server.tasks.tool
    async def buy(item: str) -> Receipt:
        return Receipt(item=item)

    @server.mcp.tool()
    async def look() -> Receipt:
        return Receipt(item="anything")

    return server


async def schemas_without_fallback(version: str) -> dict[str, Any]:
    """The output schemas of a server without fallback tools."""
    async with connected_host(build(fallback_wait=None), version) as model:
        return {name: tool.get("outputSchema") for name, tool in (await model.tools()).items()}


async def assert_no_fallback_tools(model: Model, version: str) -> None:
    tools = await model.tools()
    assert not set(tools) & set(FALLBACK_TOOL_NAMES)
    assert {name: tool.get("outputSchema") for name, tool in tools.items()} == await schemas_without_fallback(version)


@ON_FALLBACK_TRANSPORTS
@BY_ALL_VERSIONS
async def test_a_fallback_host_is_listed_the_fallback_tools_after_the_servers_own(version: str, way: str) -> None:
    async with connected_host(build(), version, way) as model:
        tools = await model.tools()
        assert list(tools) == ["gated", "buy", "look", *FALLBACK_TOOL_NAMES]
        schema = "2025-11-25" if version != MODERN else MODERN
        for name in FALLBACK_TOOL_NAMES:
            validate("Tool", tools[name], schema)
            assert "outputSchema" not in tools[name]
            assert "execution" not in tools[name], "they are no tasks themselves"


@BY_ALL_VERSIONS
async def test_only_tools_that_may_become_tasks_declare_it_in_their_output_schemas(version: str) -> None:
    as_they_are = await schemas_without_fallback(version)
    async with connected_host(build(), version) as model:
        tools = await model.tools()
        for name in ("gated", "buy"):
            own, handle = tools[name]["outputSchema"]["anyOf"]
            assert own == as_they_are[name]
            assert handle["required"] == ["task_id", "status"]
            assert tools[name]["outputSchema"]["type"] == "object"
        assert tools["look"]["outputSchema"] == as_they_are["look"]


@ON_FALLBACK_TRANSPORTS
async def test_callers_with_the_extension_are_listed_no_fallback_tools(way: str) -> None:
    async with connected_host(build(), MODERN, way, capabilities=TASKS) as model:
        await assert_no_fallback_tools(model, MODERN)


@ON_FALLBACK_TRANSPORTS
async def test_each_request_of_2026_is_answered_by_its_own_capabilities(way: str) -> None:
    async with connected_host(build(), MODERN, way) as model:
        assert isinstance(model.caller, Caller)
        assert set(FALLBACK_TOOL_NAMES) < set(await model.tools())
        knows = Model(Caller(model.caller.transport, capabilities=TASKS), model.clock)
        assert not set(FALLBACK_TOOL_NAMES) & set(await knows.tools())
        assert set(FALLBACK_TOOL_NAMES) < set(await model.tools())


@ON_FALLBACK_TRANSPORTS
async def test_task_capabilities_of_2025_have_no_effect_in_2026(way: str) -> None:
    async with connected_host(build(), MODERN, way, capabilities=LEGACY) as model:
        assert set(FALLBACK_TOOL_NAMES) < set(await model.tools())


@ON_FALLBACK_TRANSPORTS
@pytest.mark.parametrize("capabilities", [OWN_TASKS, {"tasks": {}}, LEGACY], ids=["asked", "empty", "all"])
async def test_callers_of_2025_11_that_declare_tasks_are_listed_no_fallback_tools(
    capabilities: dict[str, Any], way: str
) -> None:
    async with connected_host(build(), "2025-11-25", way, capabilities=capabilities) as model:
        await assert_no_fallback_tools(model, "2025-11-25")


@pytest.mark.parametrize("version", [one for one in VERSIONS if one < "2025-11-25"])
async def test_a_version_without_tasks_can_not_use_them_whatever_is_declared(version: str) -> None:
    async with connected_host(build(), version, capabilities=LEGACY) as model:
        assert set(FALLBACK_TOOL_NAMES) < set(await model.tools())


async def call_as_a_task(caller: V2025Caller) -> None:
    await caller.create("buy", {"item": "bread"})


async def fail_to_call_as_a_task(caller: V2025Caller) -> None:
    await refused_call(caller, "look")


async def ask_for_a_task(caller: V2025Caller) -> None:
    call = await caller.begin("tasks/get", {"taskId": "unknown"})
    assert "error" in await call.received


async def list_tasks(caller: V2025Caller) -> None:
    call = await caller.begin("tasks/list")
    await call.received


async def list_prompts_as_a_task(caller: V2025Caller) -> None:
    call = await caller.begin("prompts/list", {"task": {}})
    await call.received


@ON_FALLBACK_TRANSPORTS
@pytest.mark.parametrize(
    "use", [call_as_a_task, fail_to_call_as_a_task, ask_for_a_task, list_tasks, list_prompts_as_a_task]
)
async def test_callers_of_2025_11_that_used_tasks_on_their_connection_are_listed_no_fallback_tools(
    use: Any, way: str
) -> None:
    async with connected_host(build(), "2025-11-25", way) as model:
        assert set(FALLBACK_TOOL_NAMES) < set(await model.tools())
        await use(model.caller)
        await assert_no_fallback_tools(model, "2025-11-25")


@ON_FALLBACK_TRANSPORTS
async def test_failed_task_requests_of_an_older_version_do_not_make_it_a_task_caller(way: str) -> None:
    async with connected_host(build(), "2025-06-18", way) as model:
        assert isinstance(model.caller, V2025Caller)
        call = await model.caller.begin("tasks/get", {"taskId": "unknown"})
        assert (await call.received)["error"]["code"] == -32601
        assert text_of(await model.call("buy", {"item": "bread"}, task={})) == '{\n  "item": "bread"\n}'
        assert set(FALLBACK_TOOL_NAMES) < set(await model.tools())


@pytest.mark.parametrize(
    "capabilities", [OWN_TASKS, {}], ids=["one that declares tasks", "one that has called as a task"]
)
async def test_a_caller_without_listed_fallback_tools_gets_results_that_fit_its_list(
    capabilities: dict[str, Any],
) -> None:
    """Its structured content fits the listed schema, and no unlisted tool is named."""
    server = build(fallback_wait=0.1)

    @server.tasks.tool
    async def slow(task: TaskContext) -> Receipt:
        await task.sleep(0.5)
        return Receipt(item="late")

    async with connected_host(server, "2025-11-25", capabilities=capabilities) as model:
        assert isinstance(model.caller, V2025Caller)
        if not capabilities:
            await call_as_a_task(model.caller)
        answer = await model.call("slow")
        assert answer["structuredContent"] == {"item": "late"}


@ON_FALLBACK_TRANSPORTS
async def test_a_task_caller_can_still_call_a_fallback_tool_by_task_id(way: str) -> None:
    """A model may call from an outdated list, and another host may have created the task."""
    server = build(fallback_wait=0.1)
    async with connected_host(server, MODERN, way) as model:
        assert isinstance(model.caller, Caller)
        task_id = task_id_of(await model.call("gated"))
        knows = Model(Caller(model.caller.transport, capabilities=TASKS), model.clock)
        answer = await knows.call("task_status", {"task_id": task_id})
        assert answer["resultType"] == "complete"
        assert model_text(answer).startswith("gated is still running")


async def test_the_fallback_tools_can_not_be_called_as_tasks() -> None:
    async with connected_host(build(), "2025-11-25") as model:
        assert isinstance(model.caller, V2025Caller)
        for name in FALLBACK_TOOL_NAMES:
            refused = await refused_call(model.caller, name, {"task_id": "unknown"})
            assert (refused.code, refused.message) == (
                -32601,
                f"tool {name!r} can't be called as a task: call it without params.task",
            )
