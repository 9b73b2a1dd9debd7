"""Calls of 2025-11-25 that ask for a task: they get one, kept before they hear of it, and nothing else."""

# pyright: reportUnusedFunction=false

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer

from raincheck import Tasks, open_store
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import TaskId
from tests.server.lifecycle.test_low_level_server import call_tool, lifespan, list_tools
from tests.support.server.caller_v2025 import IMMEDIATE, calling, connected
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated, text_of
from tests.support.server.transports_v2025 import g1_memory
from tests.support.server.v2025.tools import (
    ALICE,
    ON_ALL_G1_WIRES,
    ON_G1_WIRES,
    add_saying,
    count_tasks,
    ended,
    refusal,
    refused_call,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

FIELDS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


@pytest.mark.requirement(
    "g1-create-result",
    "g1-create-at-once",
    "g1-begins-working",
    "g1-id-is-text",
    "g1-created-at",
    "g1-updated-at",
    "g1-task-support-decides",
)
@ON_ALL_G1_WIRES
async def test_who_asks_for_a_task_gets_it_while_it_works(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, way) as caller:
        created = await caller.call("gated", task={})
        task = created["task"]
        assert created.keys() == {"task", "_meta"}
        assert task.keys() == FIELDS
        assert (task["status"], task["ttl"], type(task["taskId"])) == ("working", None, str)
        assert task["createdAt"] == task["lastUpdatedAt"]
        assert datetime.fromisoformat(task["createdAt"]).utcoffset() is not None
        # Handed out while the work goes on, and not when it is done.
        await gate.begun.wait()
        assert (await caller.get(task["taskId"]))["status"] == "working"
        gate.open.set()
        assert text_of(await caller.result(task["taskId"])) == "through"


@pytest.mark.requirement("g1-create-result", "g1-begins-working")
@pytest.mark.parametrize("inline_for", [0, 5])
async def test_a_task_is_handed_out_though_its_work_is_done_at_once(inline_for: float) -> None:
    """A window for quick answers is for callers that leave the choice to the server."""
    shop = Shop()
    add_saying(shop, inline_for=inline_for)
    async with calling(shop) as caller:
        for _ in range(20):
            task = await caller.create("say", {"words": "quick"})
            assert task["status"] == "working"
            assert text_of(await caller.result(task["taskId"])) == "quick"


@ON_G1_WIRES
async def test_a_task_can_be_read_as_soon_as_its_caller_has_it_on_any_connection(way: str) -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop, way) as caller, calling(shop, way) as other:
        for _ in range(5):
            task = await caller.create("gated")
            assert await caller.get(task["taskId"]) == task
            assert await other.get(task["taskId"]) == task


async def test_a_task_is_in_the_store_before_its_caller_has_it(tmp_path: Path) -> None:
    """Read with a connection of its own to the file, as another process would."""
    shop = Shop(tmp_path / "tasks.db", works=False)
    add_gated(shop)
    async with calling(shop) as caller, open_store(tmp_path / "tasks.db") as store:
        for _ in range(5):
            task = await caller.create("gated")
            created_at = datetime.fromisoformat(task["createdAt"])
            kept = await store.load(TaskId(task["taskId"]), Scope.for_owner("shop", Owner.local()), now=created_at)
            assert kept.status == "working"


async def test_a_task_that_one_server_made_another_on_the_same_store_runs_and_answers_for(tmp_path: Path) -> None:
    front, back = Shop(tmp_path / "tasks.db", works=False), Shop(tmp_path / "tasks.db")
    add_saying(front)
    add_saying(back)
    async with calling(front) as caller, calling(back) as other:
        task_id = await caller.start("say", {"words": "from afar"})
        assert text_of(await other.result(task_id)) == "from afar"
        assert await caller.result(task_id) == await other.result(task_id)


@pytest.mark.requirement("g1-ids-of-the-server", "g1-ids-unique", "g1-ids-unguessable")
async def test_ids_are_the_servers_own_and_have_nothing_that_could_be_guessed() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop) as caller:
        asked = {"taskId": "mine", "ttl": 1_000}
        ids = [await caller.start("gated", task=asked, meta={"taskId": "mine"}) for _ in range(100)]
        assert len(set(ids)) == 100
        assert "mine" not in ids
        # What of two ids of the same moment is the same says when they were made; the rest has 128 bits at least.
        tails = [one[-32:] for one in ids]
        assert all(int(one, 16) for one in tails)
        for place in range(32):
            assert len({one[place] for one in tails}) > 4, "a place that hardly changes"


async def test_a_model_is_told_that_the_work_goes_on_in_the_tools_own_words_or_in_ours() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    add_gated(shop, "bake", immediate_response="The bread is in the oven.")
    async with calling(shop) as caller:
        told = (await caller.call("gated", task={}))["_meta"][IMMEDIATE]
        assert "gated" in told
        assert "background" in told
        assert (await caller.call("bake", task={}))["_meta"] == {IMMEDIATE: "The bread is in the oven."}


@pytest.mark.requirement("g1-forbidden-refused")
@ON_G1_WIRES
async def test_a_tool_that_does_not_say_that_it_takes_tasks_refuses_them_and_does_nothing(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop, mode="forbidden")
    called: list[str] = []

    @shop.mcp.tool()
    async def ordinary() -> str:
        called.append("ordinary")
        return "done"

    @shop.mcp.tool(name="enabled")
    async def enabled() -> str:
        called.append("enabled")
        return "done"

    shop.tasks.enable("enabled", mode="forbidden")
    async with calling(shop, way) as caller:
        for tool in ("gated", "ordinary", "enabled"):
            refused = await refused_call(caller, tool)
            assert refused.code == -32601
            assert tool in refused.message
        assert called == []
        assert not gate.begun.is_set()
        # Called as they want to be, they answer.
        gate.open.set()
        assert text_of(await caller.call("gated")) == "through"
        assert text_of(await caller.call("ordinary")) == text_of(await caller.call("enabled")) == "done"


@pytest.mark.requirement("g1-required-refused", "g1-informative-errors")
@pytest.mark.parametrize("more", [{}, {"task": None}], ids=["without", "null"])
@ON_G1_WIRES
async def test_a_tool_that_runs_only_as_a_task_refuses_to_be_called_otherwise(way: str, more: dict[str, Any]) -> None:
    shop = Shop()
    gate = add_gated(shop, mode="required")
    async with calling(shop, way) as caller:
        refused = await refusal(caller, "tools/call", {"name": "gated", "arguments": {}, **more})
        assert refused.code == -32601
        assert "'gated' runs only as a task: call it with params.task" in refused.message
        assert not gate.begun.is_set()
        task_id = await caller.start("gated")
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"


@pytest.mark.requirement("g1-task-support-decides")
async def test_a_tool_that_takes_both_can_be_called_either_way() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        assert text_of(await caller.call("say", {"words": "plainly"})) == "plainly"
        assert text_of(await caller.call("say", {"words": "with nothing"}, task=None)) == "with nothing"
        assert text_of(await caller.result(await caller.start("say", {"words": "as a task"}))) == "as a task"


async def test_a_tool_that_nobody_has_is_refused_and_no_task_made() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        refused = await refused_call(caller, "nothing")
        assert refused.code == -32602
        assert "nothing" in refused.message
        assert await count_tasks(shop) == 0


@pytest.mark.parametrize("arguments", [{"times": "often"}, {"times": None}, {}], ids=str)
async def test_wrong_arguments_are_refused_and_no_task_is_made(arguments: dict[str, Any]) -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def repeat(times: int) -> str:
        return "again " * times

    async with calling(shop) as caller:
        refused = await refused_call(caller, "repeat", arguments)
        assert refused.code == -32602
        assert "repeat" in refused.message
        assert "times" in refused.message
        assert await count_tasks(shop) == 0
        # A plain call is answered as ever: with a result that says so.
        assert (await caller.call("repeat", arguments))["isError"] is True


@pytest.mark.parametrize("arguments", [7, "text", [1], True], ids=str)
async def test_arguments_that_are_no_object_are_refused_and_no_task_is_made(arguments: object) -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        refused = await refusal(caller, "tools/call", {"name": "say", "arguments": arguments, "task": {}})
        assert refused.code == -32602
        assert await count_tasks(shop) == 0


async def test_a_task_needs_no_arguments() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        created = await caller.request("tools/call", {"name": "say", "task": {}})
        assert text_of(await caller.result(created["task"]["taskId"])) == ""


async def test_many_calls_at_once_make_as_many_tasks_and_each_answer_is_for_its_call() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        calls = [
            await caller.begin("tools/call", {"name": "say", "arguments": {"words": str(n)}, "task": {}})
            for n in range(50)
        ]
        ids = [(await call.result())["task"]["taskId"] for call in calls]
        results = await asyncio.gather(*(caller.result(one) for one in ids))
        assert [text_of(one) for one in results] == [str(n) for n in range(50)]


async def test_a_task_goes_on_when_the_connection_it_was_made_on_is_closed() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as stays:
        async with calling(shop) as caller:
            task_id = await caller.start("gated")
            await gate.begun.wait()
        gate.open.set()
        assert text_of(await stays.result(task_id)) == "through"
        assert not gate.stopped.is_set()


async def test_a_caller_that_takes_its_call_back_after_it_has_the_task_changes_nothing() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as caller:
        call = await caller.begin("tools/call", {"name": "gated", "task": {}})
        task_id = (await call.result())["task"]["taskId"]
        await caller.give_up(call)
        await caller.ping()
        gate.open.set()
        assert (await ended(shop, task_id)).task.status == "completed"


async def test_a_task_on_a_low_level_server_is_like_any_other() -> None:
    server: Server[Any] = Server("shop", on_call_tool=call_tool, on_list_tools=list_tools, lifespan=lifespan)
    Tasks(server, "memory:", settings=QUICK).enable("add")
    async with g1_memory(server) as wire, connected(wire) as caller:
        assert text_of(await caller.result(await caller.start("add", {"a": 1, "b": 2}))) == "3"
        assert (await refused_call(caller, "state")).code == -32601


async def test_a_server_without_tasks_of_its_own_is_left_as_the_sdk_has_it() -> None:
    """What this is held against: the SDK alone does not know what `task` means."""
    mcp = MCPServer("bare", log_level="CRITICAL")

    @mcp.tool()
    async def say() -> str:
        return "said"

    async with g1_memory(mcp) as wire, connected(wire) as caller:
        assert "tasks" not in caller.welcome["capabilities"]
        assert text_of(await caller.call("say", task={})) == "said"


@pytest.mark.requirement("g1-bound-to-context")
async def test_a_task_belongs_to_whoever_asked_for_it() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop, "http", headers=ALICE) as caller:
        task_id = await caller.start("gated")
        (task,) = (await caller.page())["tasks"]
        assert task["taskId"] == task_id
        assert await count_tasks(shop) == 0, "not of whoever is on this machine"
