"""Which calls become tasks, and what their callers get."""

# pyright: reportUnusedFunction=false

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from raincheck import Retention, open_store
from raincheck.core.owner import Scope
from raincheck.core.records import TaskId
from raincheck.testing import FakeClock
from tests.support.server.caller_v2026 import TASKS, Caller
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.tools import (
    LEGACY,
    NO_TASKS,
    ON_BOTH_TRANSPORTS,
    add_gated,
    add_greeting,
    refusal,
    text_of,
    without_tasks,
)
from tests.support.server.transports import in_memory
from tests.support.watched_clock import WatchedClock

pytestmark = pytest.mark.anyio

REQUIRED = {"requiredCapabilities": TASKS}


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement(
    "create-result-type", "create-no-request-state", "per-request-opt-in", "server-decides", "wire-field-names"
)
async def test_a_caller_that_declares_the_extension_gets_a_task_without_asking_for_one(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open_by(way, capabilities=TASKS) as caller:
        created = await caller.call("gated")
        assert created["resultType"] == "task"
        assert created["status"] == "working"
        # No wrapper, no state of rounds, nothing of the older names, nothing of an outcome.
        assert set(created) <= {
            "resultType",
            "taskId",
            "status",
            "statusMessage",
            "createdAt",
            "lastUpdatedAt",
            "ttlMs",
            "pollIntervalMs",
            "_meta",
        }
        assert type(created["pollIntervalMs"]) is int
        assert created["createdAt"].endswith("Z")
        gate.open.set()
        assert text_of(await caller.result(created["taskId"])) == "through"


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("create-needs-declaration", "no-task-result-type-elsewhere")
async def test_a_call_without_the_extension_gets_its_result_whatever_other_calls_declared(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    gate.open.set()
    async with server.open_by(way) as caller:
        await caller.start("gated")
        result = await without_tasks(caller).call("gated")
        assert result["resultType"] == "complete"
        assert text_of(result) == "through"
        await caller.start("gated")


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("legacy-capability-counts-as-none", "create-needs-declaration")
async def test_a_caller_with_only_the_older_capability_gets_its_result(way: str) -> None:
    server = ExampleServer()
    add_gated(server).open.set()
    async with server.open_by(way, capabilities=LEGACY) as caller:
        assert (await caller.call("gated"))["resultType"] == "complete"


@pytest.mark.requirement("legacy-capability-counts-as-none", "missing-capability-code")
async def test_a_caller_with_only_the_older_capability_is_refused_what_runs_only_as_a_task() -> None:
    server = ExampleServer()
    add_gated(server, mode="required")
    async with server.open(capabilities=LEGACY) as caller:
        assert (await refusal(caller, "tools/call", {"name": "gated", "arguments": {}})).code == -32021


@pytest.mark.requirement("legacy-task-param-ignored")
@pytest.mark.parametrize("task", [{"ttl": 60_000}, {}, {"ttl": "soon"}, "yes", None])
async def test_the_older_task_parameter_neither_makes_a_task_nor_changes_one(task: object) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        with_it, without_it = await caller.call("gated", task=task), await caller.call("gated")
        assert with_it["resultType"] == "task"
        assert with_it["ttlMs"] == without_it["ttlMs"]
        assert with_it.keys() == without_it.keys()
        gate.open.set()
        fallback_caller = await without_tasks(caller).call("gated", task=task)
        assert fallback_caller["resultType"] == "complete"


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("missing-capability-code", "missing-capability-data")
async def test_a_tool_that_runs_only_as_a_task_is_refused_to_a_caller_that_can_not_take_one(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server, mode="required")
    async with server.open_by(way) as caller:
        refused = await refusal(without_tasks(caller), "tools/call", {"name": "gated", "arguments": {}})
        assert (refused.code, refused.data) == (-32021, REQUIRED)
        assert "io.modelcontextprotocol/tasks" in refused.message
        task_id = await caller.start("gated")
        gate.open.set()
        await caller.result(task_id)
        # Only the second call made a task.
        assert gate.task_ids == [task_id]


@pytest.mark.requirement("sync-call-answers-plainly", "no-task-result-type-elsewhere", "complete-elsewhere")
async def test_tools_that_make_no_tasks_answer_a_declared_caller_with_their_results() -> None:
    server = ExampleServer()
    add_gated(server, "forbidden", mode="forbidden").open.set()

    @server.mcp.tool()
    def plain() -> str:
        return "as ever"

    async with server.open() as caller:
        for tool, text in (("plain", "as ever"), ("forbidden", "through")):
            result = await caller.call(tool)
            assert result["resultType"] == "complete"
            assert text_of(result) == text


@pytest.mark.requirement("quick-call-answers-plainly", "complete-elsewhere")
async def test_a_call_that_ends_within_its_inline_window_returns_its_result() -> None:
    # A clock that stands still: the window never closes.
    server = ExampleServer(clock=FakeClock())

    @server.tasks.tool(inline_for=2)
    async def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    async with server.open() as caller:
        result = await caller.call("add", {"a": 1, "b": 2})
        assert result["resultType"] == "complete"
        assert result["structuredContent"] == {"sum": 3}
        assert "taskId" not in result


async def test_a_call_that_outlasts_its_inline_window_returns_its_task() -> None:
    clock = WatchedClock()
    server = ExampleServer(clock=clock, settings=LONG_LEASE)
    gate = add_gated(server, inline_for=2)
    async with server.open() as caller:
        call = asyncio.create_task(caller.call("gated"))
        await clock.asleep(2)
        clock.advance(1.9)
        await caller.request("tools/list")
        assert not call.done()
        clock.advance(0.1)
        created = await call
        assert (created["resultType"], created["status"]) == ("task", "working")
        gate.open.set()
        assert text_of(await caller.result(created["taskId"])) == "through"


async def test_a_call_that_fails_within_its_inline_window_returns_its_error() -> None:
    server = ExampleServer(clock=FakeClock())

    @server.tasks.tool(inline_for=2)
    async def fail() -> None:
        raise MCPError(-32042, "go there first", {"where": None})

    async with server.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": "fail"})
        assert (refused.code, refused.message, refused.data) == (-32042, "go there first", {"where": None})


@pytest.mark.parametrize("settings", [{}, {"inline_for": 30}, {"mode": "forbidden"}])
async def test_a_tool_without_retention_still_answers_waiting_callers(settings: dict[str, Any]) -> None:
    server = ExampleServer()
    add_gated(server, retention=Retention(keep=timedelta(0)), **settings).open.set()
    async with server.open(capabilities=None if settings else NO_TASKS) as caller:
        assert text_of(await caller.call("gated")) == "through"


async def test_a_question_within_the_inline_window_returns_the_task_that_asks() -> None:
    server = ExampleServer(clock=FakeClock())
    add_greeting(server, inline_for=2)
    async with server.open() as caller:
        created = await caller.call("greet")
        assert (created["resultType"], created["status"]) == ("task", "input_required")
        # A new task is returned without its questions. A poll returns them.
        assert "inputRequests" not in created
        assert list((await caller.get(created["taskId"]))["inputRequests"]) == ["elicit-0"]


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("durable-before-answer", "wait-for-consistency")
async def test_when_the_answer_arrives_another_process_finds_the_task_in_the_file(way: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    server, other = ExampleServer(file, works=False), ExampleServer(file, works=False)
    add_gated(server)
    add_gated(other)
    async with server.open_by(way) as caller, other.open_by(way) as elsewhere, open_store(file) as store:
        for _ in range(5):
            task_id = await caller.start("gated")
            view = await store.view(TaskId(task_id), Scope.everything(), now=datetime.now(UTC))  # noqa: TID251 - it is no rule of ours that is asked
            assert view.task.id == task_id
            assert (await elsewhere.get(task_id))["status"] == "working"


@pytest.mark.requirement("durable-before-answer")
async def test_a_poll_on_receipt_of_the_answer_resolves() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with server.open() as caller:
        for _ in range(20):
            created = await caller.call("gated")
            got = await caller.get(created["taskId"])
            assert got == {**created, "resultType": "complete", "pollIntervalMs": got["pollIntervalMs"]}


@pytest.mark.requirement("ids-unguessable")
async def test_ids_have_128_random_bits() -> None:
    clock = FakeClock()
    server = ExampleServer(works=False, clock=clock)
    add_gated(server)
    async with server.open() as caller:
        # All of the same moment, so that what differs is chance alone.
        ids = [await caller.start("gated") for _ in range(64)]
    assert len({len(one) for one in ids}) == 1
    by_place = [set(letters) for letters in zip(*ids, strict=True)]
    # Of 16 letters, 64 draws miss more than 8 with a chance of less than one in 10^12.
    assert sum(len(letters) >= 8 for letters in by_place) >= 32


async def test_a_call_with_wrong_arguments_gets_an_error_and_makes_no_task() -> None:
    server = ExampleServer()

    @server.tasks.tool(mode="required")
    async def add(a: int) -> int:
        return a

    async with server.open() as caller:
        result = await caller.call("add", {"a": "many"})
        assert result["resultType"] == "complete"
        assert result["isError"] is True
        assert "a" in text_of(result)
        assert (await server.tasks.engine.list_tasks()).tasks == ()


async def test_a_call_of_an_unknown_tool_is_answered_as_without_tasks() -> None:
    server = ExampleServer()
    add_gated(server)
    async with server.open() as caller, in_memory(MCPServer("shop")) as bare:
        assert await caller.call("nothing") == await Caller(bare).call("nothing")
