"""`tasks/get` of 2025-11-25 in each status of a task, and for callers that may not see it."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from raincheck import RetryPolicy, TaskContext, ToolError
from raincheck.testing import FakeClock
from tests.support.server.caller_v2025 import RELATED, V2025Caller, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_gated, add_greeting, text_of
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import (
    ON_ALL_V2025_TRANSPORTS,
    ON_V2025_TRANSPORTS,
    add_echo,
    add_metered,
    ended,
    refusal,
)

pytestmark = pytest.mark.anyio

COMMON = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


def message_of(task: Message) -> object:
    """The fields beyond those of every task."""
    assert task.keys() - COMMON <= {"statusMessage"}
    assert task.keys() >= COMMON
    assert type(task["pollInterval"]) is int
    return task.get("statusMessage")


@pytest.mark.requirement("v2025-created-at", "v2025-updated-at", "v2025-ttl-told")
@ON_ALL_V2025_TRANSPORTS
async def test_a_working_task_shows_its_status_message_and_a_completed_one_has_none(way: str) -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("metered")
        assert message_of(await caller.get(task_id)) is None
        await meter.show(1, 2, "half of it")
        task = await caller.get(task_id)
        assert (task["status"], message_of(task)) == ("working", "half of it")
        assert task["lastUpdatedAt"] >= task["createdAt"]
        meter.finish()
        await caller.result(task_id)
        task = await caller.get(task_id)
        assert (task["status"], message_of(task)) == ("completed", None)


async def test_polls_do_not_change_when_the_task_was_updated() -> None:
    clock = FakeClock()
    server = ExampleServer(works=False, clock=clock)
    add_gated(server)
    async with v2025_caller(server) as caller:
        created = await caller.create("gated")
        for _ in range(3):
            clock.advance(10)
            task = await caller.get(created["taskId"])
            assert task["lastUpdatedAt"] == created["lastUpdatedAt"]


@pytest.mark.requirement(
    "v2025-input-required", "v2025-input-given", "v2025-question-names-task", "v2025-ask-with-task-only-if-declared"
)
@ON_V2025_TRANSPORTS
async def test_a_task_with_an_open_question_has_status_input_required_until_it_is_answered(way: str) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("greet")
        assert (await caller.until(task_id, "input_required"))["status"] == "input_required"
        task = await caller.get(task_id)
        assert (task["status"], message_of(task)) == ("input_required", None)
        waiting = await caller.wait(task_id)
        question = await caller.asked()
        assert question["params"]["_meta"][RELATED] == {"taskId": task_id}
        assert "task" not in question["params"], "this caller did not say that it has tasks"
        await caller.reply(question, YES)
        await caller.until(task_id, "working")
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert (await caller.get(task_id))["status"] == "completed"


@pytest.mark.requirement("v2025-failed-says-why", "v2025-result-error-is-the-calls")
async def test_a_task_whose_question_is_refused_fails_with_the_callers_error() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("greet")
        waiting = await caller.wait(task_id)
        await caller.refuse(await caller.asked(), -32050, "I won't be asked")
        answer = await waiting.received
        assert answer["error"] == {"code": -32050, "message": "I won't be asked"}
        task = await caller.get(task_id)
        assert (task["status"], message_of(task)) == ("failed", "I won't be asked")


@pytest.mark.requirement("v2025-tool-error-fails", "v2025-failed-says-why")
@pytest.mark.parametrize("kind", ["ours", "the SDK's", "a result", "of an enabled tool"])
async def test_a_tools_own_error_fails_its_task_with_the_text_as_its_message(kind: str) -> None:
    """Some hosts throw away the content of a task that failed."""
    server = ExampleServer()

    @server.tasks.tool()
    async def refuse() -> CallToolResult:
        if kind == "ours":
            raise ToolError("no paper left")
        if kind == "the SDK's":
            raise SdkToolError("no paper left")
        return CallToolResult(content=[TextContent(type="text", text="no paper left")], is_error=True)

    @server.mcp.tool()
    async def enabled() -> str:
        raise SdkToolError("no paper left")

    server.tasks.enable("enabled")
    async with v2025_caller(server) as caller:
        tool = "enabled" if kind == "of an enabled tool" else "refuse"
        task_id = await caller.start(tool)
        result = await caller.result(task_id)
        assert result["isError"] is True
        assert "no paper left" in text_of(result)
        task = await caller.get(task_id)
        assert task["status"] == "failed"
        assert "no paper left" in str(message_of(task))
        assert [one["status"] for one in (await caller.page())["tasks"]] == ["failed"]


@pytest.mark.requirement("v2025-failed-says-why")
@ON_V2025_TRANSPORTS
async def test_an_error_of_the_protocol_fails_the_task_and_is_its_message(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def fail() -> None:
        raise MCPError(-32042, "go there first", {"where": "there"})

    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("fail")
        await ended(server, task_id, way)
        task = await caller.get(task_id)
        assert (task["status"], message_of(task)) == ("failed", "go there first")


@pytest.mark.requirement("v2025-failed-says-why")
async def test_a_crash_fails_the_task_with_a_message_that_hides_the_cause() -> None:
    server = ExampleServer()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> None:
        raise RuntimeError("postgres://admin:hunter2@db")

    async with v2025_caller(server) as caller:
        task_id = await caller.start("crash")
        await ended(server, task_id)
        task = await caller.get(task_id)
        assert task["status"] == "failed"
        message = str(message_of(task))
        assert message
        assert "hunter2" not in message
        assert "RuntimeError" not in message


@pytest.mark.requirement("v2025-failed-says-why")
async def test_a_task_that_exceeds_its_timeout_fails_and_names_the_timeout() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    gate = add_gated(server, timeout=10)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        clock.advance(11)
        await ended(server, task_id)
        task = await caller.get(task_id)
        assert task["status"] == "failed"
        assert "deadline" in str(message_of(task))


async def test_a_failure_without_a_message_has_a_default_message() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def mutter() -> CallToolResult:
        return CallToolResult(content=[], is_error=True)

    @server.tasks.tool()
    async def fail() -> None:
        raise MCPError(-32042, "")

    async with v2025_caller(server) as caller:
        for tool in ("mutter", "fail"):
            task_id = await caller.start(tool)
            await ended(server, task_id)
            task = await caller.get(task_id)
            assert task["status"] == "failed"
            assert message_of(task)


async def test_a_cancelled_task_is_spelled_with_two_ls() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await caller.cancel(task_id)
        assert (await caller.get(task_id))["status"] == "cancelled"


@pytest.mark.requirement("v2025-parameter-decides")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_a_request_is_about_the_task_in_its_params_and_not_in_its_metadata(method: str) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server) as caller:
        meant, other = await caller.start("gated"), await caller.start("gated")
        # So that there is a result to wait for.
        if method == "tasks/result":
            await caller.cancel(meant)
        call = await caller.begin(method, {"taskId": meant}, meta={RELATED: {"taskId": other}})
        answer = await call.received
        named = answer["error"]["data"]["_meta"][RELATED] if "error" in answer else answer["result"]
        assert named["taskId"] == meant
        assert (await caller.get(other))["status"] == "working"
        # A request without a task id is rejected all the same.
        assert (await refusal(caller, method, {}, meta={RELATED: {"taskId": other}})).code == -32602


async def everything_of(caller: V2025Caller, task_id: str) -> list[Message]:
    return [await caller.get(task_id), *(await caller.page())["tasks"]]


@pytest.mark.requirement("v2025-no-related-task-in-tasks")
async def test_every_message_about_a_task_has_the_same_fields() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        got, listed = await everything_of(caller, task_id)
        assert got == listed
        cancelled = await caller.cancel(task_id)
        pushed = await caller.until(task_id, "cancelled")
        got, listed = await everything_of(caller, task_id)
        assert got == listed == cancelled == pushed
        assert RELATED not in str([got, listed, cancelled, pushed])


async def test_many_polls_at_once_are_all_answered() -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say")
        await caller.result(task_id)
        answers: list[Any] = await asyncio.gather(*(caller.get(task_id) for _ in range(200)))
        assert all(answer == answers[0] for answer in answers)


async def test_a_status_message_is_visible_on_every_connection_as_soon_as_it_is_stored() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def report(task: TaskContext) -> str:
        await task.status("counting")
        await task.variables.set("told", 1)
        await asyncio.Event().wait()
        return ""

    async with v2025_caller(server) as caller, v2025_caller(server) as other:
        task_id = await caller.start("report")
        await server.tasks.engine.wait(task_id, until=lambda task: task.status_message == "counting")
        assert message_of(await caller.get(task_id)) == message_of(await other.get(task_id)) == "counting"
