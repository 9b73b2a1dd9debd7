"""`tasks/result` of 2025-11-25: exactly what the call itself would have returned, and whose it is."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

from raincheck import RetryPolicy, TaskContext, Tasks
from tests.server.lifecycle.test_low_level_server import call_tool, lifespan, list_tools
from tests.support.server.caller_v2025 import RELATED, G1Caller, calling, connected
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated, run_sql, text_of
from tests.support.server.transports import Message
from tests.support.server.transports_v2025 import g1_memory
from tests.support.server.v2025.result_tools import GOODS, UNTELLABLE, tool_error
from tests.support.server.v2025.tools import ON_ALL_G1_WIRES, ON_G1_WIRES, add_saying, ended, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def without_task(answer: Message) -> Message:
    """An answer but for what every result of a task says, and what belongs to the one request."""
    told = {name: value for name, value in answer.items() if name not in ("id", "jsonrpc")}
    meta = told.get("result", {}).get("_meta", {})
    if RELATED in meta:
        kept = {name: value for name, value in meta.items() if name != RELATED}
        told["result"] = {name: value for name, value in told["result"].items() if name != "_meta"}
        if kept:
            told["result"]["_meta"] = kept
    return told


async def answer_to(caller: G1Caller, tool: str) -> Message:
    """What a plain call is answered with."""
    return without_task(await (await caller.begin("tools/call", {"name": tool, "arguments": {}})).came)


async def answer_of(caller: G1Caller, tool: str) -> Message:
    """What a call as a task comes to."""
    task_id = await caller.start(tool)
    return without_task(await (await caller.begin("tasks/result", {"taskId": task_id})).came)


@asynccontextmanager
async def bare() -> AsyncGenerator[G1Caller]:
    """A server of the SDK alone, with the same tools."""
    mcp = MCPServer("bare", log_level="CRITICAL")
    for tool in GOODS:
        mcp.tool()(tool)
    async with g1_memory(mcp) as wire, connected(wire) as caller:
        yield caller


@pytest.mark.requirement(
    "g1-result-is-the-calls", "g1-result-error-is-the-calls", "g1-result-names-task", "g1-result-of-terminal"
)
@pytest.mark.parametrize("how", ["served", "enabled"])
async def test_a_result_is_what_a_plain_call_returns_with_tasks_or_without(how: str) -> None:
    shop = Shop()
    for tool in GOODS:
        if how == "served":
            shop.tasks.tool(tool)
        else:
            shop.mcp.tool()(tool)
    if how == "enabled":
        shop.tasks.enable("*")
    async with calling(shop) as caller, bare() as sdk:
        for tool in GOODS:
            name = tool.__name__
            as_task = await answer_of(caller, name)
            assert as_task == await answer_to(caller, name), name
            if (how, tool) != ("served", tool_error):
                # Its own words, there, without a preface of the SDK's.
                assert as_task == await answer_to(sdk, name), name


async def test_structured_content_that_is_no_object_is_left_to_the_content_that_says_the_same() -> None:
    """The SDK has no answer at all to such a call in that version."""
    shop = Shop()
    for tool in UNTELLABLE:
        shop.tasks.tool(tool)
    async with calling(shop) as caller:
        for tool, said in zip(UNTELLABLE, ("[1]", "x"), strict=True):
            result = await caller.result(await caller.start(tool.__name__))
            assert text_of(result) == said
            assert "structuredContent" not in result


async def test_a_result_over_http_is_the_same_as_in_memory() -> None:
    shops = [Shop(), Shop()]
    for shop in shops:
        for tool in GOODS:
            shop.tasks.tool(tool)
    async with calling(shops[0]) as caller, calling(shops[1], "http") as over_http:
        for tool in GOODS:
            assert await answer_of(caller, tool.__name__) == await answer_of(over_http, tool.__name__)


@pytest.mark.requirement("g1-result-is-the-calls", "g1-result-error-is-the-calls")
async def test_a_result_of_a_low_level_server_is_what_its_handler_returns() -> None:
    def make() -> Server[Any]:
        return Server("shop", on_call_tool=call_tool, on_list_tools=list_tools, lifespan=lifespan)

    served = make()
    tasks = Tasks(served, "memory:", settings=QUICK)
    for tool in ("state", "fail", "break"):
        tasks.enable(tool)
    async with (
        g1_memory(served) as wire,
        g1_memory(make()) as bare_wire,
        connected(wire) as caller,
        connected(bare_wire) as sdk,
    ):
        for tool in ("state", "fail", "break"):
            assert await answer_of(caller, tool) == await answer_to(caller, tool) == await answer_to(sdk, tool)


@pytest.mark.requirement("g1-result-is-the-calls")
async def test_a_crash_is_told_as_a_plain_call_tells_of_it_and_says_nothing_of_the_cause() -> None:
    shop = Shop()

    @shop.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> str:
        raise RuntimeError("postgres://admin:hunter2@db")

    async with calling(shop) as caller:
        told = [await answer_of(caller, "crash"), await answer_to(caller, "crash")]
        for one in told:
            assert one["result"]["isError"] is True
            assert "hunter2" not in str(one)
        task, plain = [text_of(one["result"]) for one in told]
        # Each under an id of its own, by which the operator finds it.
        assert task.split()[:3] == plain.split()[:3]


@pytest.mark.requirement("g1-result-names-task", "g1-related-everywhere")
@ON_ALL_G1_WIRES
async def test_a_result_says_whose_it_is_beside_what_the_tool_says(way: str) -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def tell() -> CallToolResult:
        meta = {RELATED: {"taskId": "another's"}, "example.com/kept": 1}
        return CallToolResult.model_validate({"content": [], "_meta": meta})

    async with calling(shop, way) as caller:
        task_id = await caller.start("tell")
        result = await caller.result(task_id)
        assert result["_meta"] == {RELATED: {"taskId": task_id}, "example.com/kept": 1}


@pytest.mark.requirement("g1-result-of-terminal")
@ON_G1_WIRES
async def test_a_result_can_be_fetched_as_often_as_one_likes(way: str) -> None:
    shop = Shop()
    runs: list[int] = []

    @shop.tasks.tool()
    async def run() -> str:
        runs.append(1)
        return "ran"

    async with calling(shop, way) as caller:
        task_id = await caller.start("run")
        first = await caller.result(task_id)
        assert [await caller.result(task_id) for _ in range(3)] == [first] * 3
        assert runs == [1]


async def test_the_result_of_a_task_that_another_process_finished_is_there_after_a_restart(tmp_path: Path) -> None:
    def make() -> Shop:
        shop = Shop(tmp_path / "tasks.db")
        add_saying(shop)
        return shop

    async with calling(make()) as caller:
        task_id = await caller.start("say", {"words": "kept"})
        result = await caller.result(task_id)
    async with calling(make()) as caller:
        assert await caller.result(task_id) == result
        assert (await caller.get(task_id))["status"] == "completed"


async def test_a_task_that_was_under_way_when_its_server_stopped_goes_on_in_the_next(tmp_path: Path) -> None:
    first, second = Shop(tmp_path / "tasks.db"), Shop(tmp_path / "tasks.db")
    gate = add_gated(first)
    add_gated(second).open.set()
    async with calling(first) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
    async with calling(second) as caller:
        assert text_of(await caller.result(task_id)) == "through"


@pytest.mark.requirement("g1-internal-errors")
async def test_what_is_kept_and_can_not_be_read_is_the_servers_fault_and_not_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "tasks.db")
    add_saying(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("say")
        await ended(shop, task_id)
        await asyncio.to_thread(
            run_sql, tmp_path / "tasks.db", "UPDATE payloads SET body = X'7B' WHERE kind = 'outcome'"
        )
        refused = await refusal(caller, "tasks/result", {"taskId": task_id})
        assert (refused.code, refused.message) == (-32603, "Internal server error")


async def test_a_tool_can_not_make_its_result_look_like_a_task() -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def forge(task: TaskContext) -> CallToolResult:
        meta = {"raincheck/handed": task.id}
        structured = {"task": {"taskId": "x", "status": "working"}}
        return CallToolResult.model_validate({"content": [], "structuredContent": structured, "_meta": meta})

    async with calling(shop) as caller:
        assert (await caller.call("forge")).keys() == {"content", "structuredContent", "isError", "_meta"}
        result = await caller.result(await caller.start("forge"))
        assert "task" not in result
