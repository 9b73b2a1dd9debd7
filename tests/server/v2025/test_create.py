"""Calls of 2025-11-25 that request a task get one, which is stored before it is returned."""

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
from tests.support.server.caller_v2025 import IMMEDIATE, connected, v2025_caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.transports_v2025 import v2025_memory
from tests.support.server.v2025.tools import (
    ALICE,
    ON_ALL_V2025_TRANSPORTS,
    ON_V2025_TRANSPORTS,
    add_echo,
    count_tasks,
    ended,
    refusal,
    refused_call,
)

pytestmark = pytest.mark.anyio

FIELDS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


@pytest.mark.requirement(
    "v2025-create-result",
    "v2025-create-at-once",
    "v2025-begins-working",
    "v2025-id-is-text",
    "v2025-created-at",
    "v2025-updated-at",
    "v2025-task-support-decides",
)
@ON_ALL_V2025_TRANSPORTS
async def test_a_caller_that_requests_a_task_gets_it_while_it_works(way: str) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with v2025_caller(example_server, way) as caller:
        created = await caller.call("gated", task={})
        task = created["task"]
        assert created.keys() == {"task", "_meta"}
        assert task.keys() == FIELDS
        assert (task["status"], task["ttl"], type(task["taskId"])) == ("working", None, str)
        assert task["createdAt"] == task["lastUpdatedAt"]
        assert datetime.fromisoformat(task["createdAt"]).utcoffset() is not None
        # The task is returned while the work runs, and not when it is done.
        await gate.started.wait()
        assert (await caller.get(task["taskId"]))["status"] == "working"
        gate.open.set()
        assert text_of(await caller.result(task["taskId"])) == "through"


@pytest.mark.requirement("v2025-create-result", "v2025-begins-working")
@pytest.mark.parametrize("inline_for", [0, 5])
async def test_a_task_is_handed_out_though_its_work_is_done_at_once(inline_for: float) -> None:
    """A window for quick answers is for callers that leave the choice to the server."""
    example_server = ExampleServer()
    add_echo(example_server, inline_for=inline_for)
    async with v2025_caller(example_server) as caller:
        for _ in range(20):
            task = await caller.create("say", {"words": "quick"})
            assert task["status"] == "working"
            assert text_of(await caller.result(task["taskId"])) == "quick"


@ON_V2025_TRANSPORTS
async def test_a_task_can_be_read_as_soon_as_its_caller_has_it_on_any_connection(way: str) -> None:
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with v2025_caller(example_server, way) as caller, v2025_caller(example_server, way) as other:
        for _ in range(5):
            task = await caller.create("gated")
            assert await caller.get(task["taskId"]) == task
            assert await other.get(task["taskId"]) == task


async def test_a_task_is_in_the_store_before_its_caller_has_it(tmp_path: Path) -> None:
    """Read through a separate connection to the file, as another process would."""
    example_server = ExampleServer(tmp_path / "tasks.db", works=False)
    add_gated(example_server)
    async with v2025_caller(example_server) as caller, open_store(tmp_path / "tasks.db") as store:
        for _ in range(5):
            task = await caller.create("gated")
            created_at = datetime.fromisoformat(task["createdAt"])
            stored = await store.load(TaskId(task["taskId"]), Scope.for_owner("shop", Owner.local()), now=created_at)
            assert stored.status == "working"


async def test_a_task_created_by_one_server_runs_on_another_server_with_the_same_store(tmp_path: Path) -> None:
    front, back = ExampleServer(tmp_path / "tasks.db", works=False), ExampleServer(tmp_path / "tasks.db")
    add_echo(front)
    add_echo(back)
    async with v2025_caller(front) as caller, v2025_caller(back) as other:
        task_id = await caller.start("say", {"words": "from afar"})
        assert text_of(await other.result(task_id)) == "from afar"
        assert await caller.result(task_id) == await other.result(task_id)


@pytest.mark.requirement("v2025-ids-of-the-server", "v2025-ids-unique", "v2025-ids-unguessable")
async def test_ids_are_the_servers_own_and_have_nothing_that_could_be_guessed() -> None:
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with v2025_caller(example_server) as caller:
        asked = {"taskId": "mine", "ttl": 1_000}
        ids = [await caller.start("gated", task=asked, meta={"taskId": "mine"}) for _ in range(100)]
        assert len(set(ids)) == 100
        assert "mine" not in ids
        # The common part of two ids of the same moment is their creation time. The rest has at least 128 bits.
        tails = [one[-32:] for one in ids]
        assert all(int(one, 16) for one in tails)
        for place in range(32):
            assert len({one[place] for one in tails}) > 4, "a place that hardly changes"


async def test_the_immediate_response_for_the_model_is_the_tools_own_text_or_the_default() -> None:
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    add_gated(example_server, "bake", immediate_response="The bread is in the oven.")
    async with v2025_caller(example_server) as caller:
        text = (await caller.call("gated", task={}))["_meta"][IMMEDIATE]
        assert "gated" in text
        assert "background" in text
        assert (await caller.call("bake", task={}))["_meta"] == {IMMEDIATE: "The bread is in the oven."}


@pytest.mark.requirement("v2025-forbidden-refused")
@ON_V2025_TRANSPORTS
async def test_a_tool_that_does_not_declare_task_support_rejects_task_calls_and_does_nothing(way: str) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server, mode="forbidden")
    called: list[str] = []

    @example_server.mcp.tool()
    async def ordinary() -> str:
        called.append("ordinary")
        return "done"

    @example_server.mcp.tool(name="enabled")
    async def enabled() -> str:
        called.append("enabled")
        return "done"

    example_server.tasks.enable("enabled", mode="forbidden")
    async with v2025_caller(example_server, way) as caller:
        for tool in ("gated", "ordinary", "enabled"):
            refused = await refused_call(caller, tool)
            assert refused.code == -32601
            assert tool in refused.message
        assert called == []
        assert not gate.started.is_set()
        # Called as they want to be, they answer.
        gate.open.set()
        assert text_of(await caller.call("gated")) == "through"
        assert text_of(await caller.call("ordinary")) == text_of(await caller.call("enabled")) == "done"


@pytest.mark.requirement("v2025-required-refused", "v2025-informative-errors")
@pytest.mark.parametrize("more", [{}, {"task": None}], ids=["without", "null"])
@ON_V2025_TRANSPORTS
async def test_a_tool_that_runs_only_as_a_task_refuses_to_be_called_otherwise(way: str, more: dict[str, Any]) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server, mode="required")
    async with v2025_caller(example_server, way) as caller:
        refused = await refusal(caller, "tools/call", {"name": "gated", "arguments": {}, **more})
        assert refused.code == -32601
        assert "'gated' runs only as a task: call it with params.task" in refused.message
        assert not gate.started.is_set()
        task_id = await caller.start("gated")
        gate.open.set()
        assert text_of(await caller.result(task_id)) == "through"


@pytest.mark.requirement("v2025-task-support-decides")
async def test_a_tool_that_takes_both_can_be_called_either_way() -> None:
    example_server = ExampleServer()
    add_echo(example_server)
    async with v2025_caller(example_server) as caller:
        assert text_of(await caller.call("say", {"words": "plainly"})) == "plainly"
        assert text_of(await caller.call("say", {"words": "with nothing"}, task=None)) == "with nothing"
        assert text_of(await caller.result(await caller.start("say", {"words": "as a task"}))) == "as a task"


async def test_a_call_of_an_unknown_tool_is_rejected_and_creates_no_task() -> None:
    example_server = ExampleServer()
    add_echo(example_server)
    async with v2025_caller(example_server) as caller:
        refused = await refused_call(caller, "nothing")
        assert refused.code == -32602
        assert "nothing" in refused.message
        assert await count_tasks(example_server) == 0


@pytest.mark.parametrize("arguments", [{"times": "often"}, {"times": None}, {}], ids=str)
async def test_wrong_arguments_are_refused_and_no_task_is_made(arguments: dict[str, Any]) -> None:
    example_server = ExampleServer()

    @example_server.tasks.tool()
    async def repeat(times: int) -> str:
        return "again " * times

    async with v2025_caller(example_server) as caller:
        refused = await refused_call(caller, "repeat", arguments)
        assert refused.code == -32602
        assert "repeat" in refused.message
        assert "times" in refused.message
        assert await count_tasks(example_server) == 0
        # A call without a task is answered as usual, with a result.
        assert (await caller.call("repeat", arguments))["isError"] is True


@pytest.mark.parametrize("arguments", [7, "text", [1], True], ids=str)
async def test_arguments_that_are_no_object_are_refused_and_no_task_is_made(arguments: object) -> None:
    example_server = ExampleServer()
    add_echo(example_server)
    async with v2025_caller(example_server) as caller:
        refused = await refusal(caller, "tools/call", {"name": "say", "arguments": arguments, "task": {}})
        assert refused.code == -32602
        assert await count_tasks(example_server) == 0


async def test_a_task_needs_no_arguments() -> None:
    example_server = ExampleServer()
    add_echo(example_server)
    async with v2025_caller(example_server) as caller:
        created = await caller.request("tools/call", {"name": "say", "task": {}})
        assert text_of(await caller.result(created["task"]["taskId"])) == ""


async def test_many_calls_at_once_make_as_many_tasks_and_each_answer_is_for_its_call() -> None:
    example_server = ExampleServer()
    add_echo(example_server)
    async with v2025_caller(example_server) as caller:
        calls = [
            await caller.begin("tools/call", {"name": "say", "arguments": {"words": str(n)}, "task": {}})
            for n in range(50)
        ]
        ids = [(await call.result())["task"]["taskId"] for call in calls]
        results = await asyncio.gather(*(caller.result(one) for one in ids))
        assert [text_of(one) for one in results] == [str(n) for n in range(50)]


async def test_a_task_keeps_running_when_the_connection_that_created_it_closes() -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with v2025_caller(example_server) as stays:
        async with v2025_caller(example_server) as caller:
            task_id = await caller.start("gated")
            await gate.started.wait()
        gate.open.set()
        assert text_of(await stays.result(task_id)) == "through"
        assert not gate.stopped.is_set()


async def test_a_caller_that_takes_its_call_back_after_it_has_the_task_changes_nothing() -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)
    async with v2025_caller(example_server) as caller:
        call = await caller.begin("tools/call", {"name": "gated", "task": {}})
        task_id = (await call.result())["task"]["taskId"]
        await caller.give_up(call)
        await caller.ping()
        gate.open.set()
        assert (await ended(example_server, task_id)).task.status == "completed"


async def test_a_task_on_a_low_level_server_is_like_any_other() -> None:
    server: Server[Any] = Server("shop", on_call_tool=call_tool, on_list_tools=list_tools, lifespan=lifespan)
    Tasks(server, "memory:", settings=QUICK).enable("add")
    async with v2025_memory(server) as transport, connected(transport) as caller:
        assert text_of(await caller.result(await caller.start("add", {"a": 1, "b": 2}))) == "3"
        assert (await refused_call(caller, "state")).code == -32601


async def test_a_server_without_tasks_of_its_own_is_left_as_the_sdk_has_it() -> None:
    """The baseline: the SDK alone ignores `task`."""
    mcp = MCPServer("bare", log_level="CRITICAL")

    @mcp.tool()
    async def say() -> str:
        return "said"

    async with v2025_memory(mcp) as transport, connected(transport) as caller:
        assert "tasks" not in caller.welcome["capabilities"]
        assert text_of(await caller.call("say", task={})) == "said"


@pytest.mark.requirement("v2025-bound-to-context")
async def test_a_task_belongs_to_the_caller_that_requested_it() -> None:
    example_server = ExampleServer(works=False)
    add_gated(example_server)
    async with v2025_caller(example_server, "http", headers=ALICE) as caller:
        task_id = await caller.start("gated")
        (task,) = (await caller.page())["tasks"]
        assert task["taskId"] == task_id
        assert await count_tasks(example_server) == 0, "not of whoever is on this machine"
