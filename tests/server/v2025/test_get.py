"""`tasks/get` of 2025-11-25: what it says of a task in each status, and who is told nothing."""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from raincheck import RetryPolicy, TaskContext, ToolError
from raincheck.testing import FakeClock
from tests.support.server.caller_v2025 import RELATED, G1Caller, calling
from tests.support.server.example import Shop
from tests.support.server.tools import YES, add_gated, add_greeting, text_of
from tests.support.server.transports import Message
from tests.support.server.v2025.tools import ON_ALL_G1_WIRES, ON_G1_WIRES, add_metered, add_saying, ended, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

COMMON = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


def message_of(task: Message) -> object:
    """What is said beyond what is said of every task."""
    assert task.keys() - COMMON <= {"statusMessage"}
    assert task.keys() >= COMMON
    assert type(task["pollInterval"]) is int
    return task.get("statusMessage")


@pytest.mark.requirement("g1-created-at", "g1-updated-at", "g1-ttl-told")
@ON_ALL_G1_WIRES
async def test_a_task_at_work_says_what_it_is_at_and_a_completed_one_says_nothing_more(way: str) -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop, way) as caller:
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
    shop = Shop(works=False, clock=clock)
    add_gated(shop)
    async with calling(shop) as caller:
        created = await caller.create("gated")
        for _ in range(3):
            clock.advance(10)
            task = await caller.get(created["taskId"])
            assert task["lastUpdatedAt"] == created["lastUpdatedAt"]


@pytest.mark.requirement(
    "g1-input-required", "g1-input-given", "g1-question-names-task", "g1-ask-with-task-only-if-declared"
)
@ON_G1_WIRES
async def test_a_task_that_asks_says_so_until_it_is_answered(way: str) -> None:
    shop = Shop()
    add_greeting(shop)
    async with calling(shop, way) as caller:
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


@pytest.mark.requirement("g1-failed-says-why", "g1-result-error-is-the-calls")
async def test_a_task_whose_question_is_refused_fails_with_the_callers_own_words() -> None:
    shop = Shop()
    add_greeting(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("greet")
        waiting = await caller.wait(task_id)
        await caller.refuse(await caller.asked(), -32050, "I won't be asked")
        answer = await waiting.came
        assert answer["error"] == {"code": -32050, "message": "I won't be asked"}
        task = await caller.get(task_id)
        assert (task["status"], message_of(task)) == ("failed", "I won't be asked")


@pytest.mark.requirement("g1-tool-error-fails", "g1-failed-says-why")
@pytest.mark.parametrize("kind", ["ours", "the SDK's", "a result", "of an enabled tool"])
async def test_a_tools_own_error_fails_its_task_with_the_text_as_its_message(kind: str) -> None:
    """Some hosts throw away the content of a task that failed."""
    shop = Shop()

    @shop.tasks.tool()
    async def refuse() -> CallToolResult:
        if kind == "ours":
            raise ToolError("no paper left")
        if kind == "the SDK's":
            raise SdkToolError("no paper left")
        return CallToolResult(content=[TextContent(type="text", text="no paper left")], is_error=True)

    @shop.mcp.tool()
    async def enabled() -> str:
        raise SdkToolError("no paper left")

    shop.tasks.enable("enabled")
    async with calling(shop) as caller:
        tool = "enabled" if kind == "of an enabled tool" else "refuse"
        task_id = await caller.start(tool)
        result = await caller.result(task_id)
        assert result["isError"] is True
        assert "no paper left" in text_of(result)
        task = await caller.get(task_id)
        assert task["status"] == "failed"
        assert "no paper left" in str(message_of(task))
        assert [one["status"] for one in (await caller.page())["tasks"]] == ["failed"]


@pytest.mark.requirement("g1-failed-says-why")
@ON_G1_WIRES
async def test_an_error_of_the_protocol_fails_the_task_and_is_its_message(way: str) -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def fail() -> None:
        raise MCPError(-32042, "go there first", {"where": "there"})

    async with calling(shop, way) as caller:
        task_id = await caller.start("fail")
        await ended(shop, task_id, way)
        task = await caller.get(task_id)
        assert (task["status"], message_of(task)) == ("failed", "go there first")


@pytest.mark.requirement("g1-failed-says-why")
async def test_a_crash_fails_the_task_with_words_that_say_nothing_of_the_cause() -> None:
    shop = Shop()

    @shop.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> None:
        raise RuntimeError("postgres://admin:hunter2@db")

    async with calling(shop) as caller:
        task_id = await caller.start("crash")
        await ended(shop, task_id)
        task = await caller.get(task_id)
        assert task["status"] == "failed"
        told = str(message_of(task))
        assert told
        assert "hunter2" not in told
        assert "RuntimeError" not in told


@pytest.mark.requirement("g1-failed-says-why")
async def test_a_task_that_outlasts_its_time_fails_and_says_so() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    gate = add_gated(shop, timeout=10)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        clock.advance(11)
        await ended(shop, task_id)
        task = await caller.get(task_id)
        assert task["status"] == "failed"
        assert "deadline" in str(message_of(task))


async def test_a_failure_without_words_still_has_some() -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def mutter() -> CallToolResult:
        return CallToolResult(content=[], is_error=True)

    @shop.tasks.tool()
    async def fail() -> None:
        raise MCPError(-32042, "")

    async with calling(shop) as caller:
        for tool in ("mutter", "fail"):
            task_id = await caller.start(tool)
            await ended(shop, task_id)
            task = await caller.get(task_id)
            assert task["status"] == "failed"
            assert message_of(task)


async def test_a_cancelled_task_is_spelled_with_two_ls() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await caller.cancel(task_id)
        assert (await caller.get(task_id))["status"] == "cancelled"


@pytest.mark.requirement("g1-parameter-decides")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_the_task_that_a_request_names_is_meant_whatever_its_metadata_says(method: str) -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop) as caller:
        meant, other = await caller.start("gated"), await caller.start("gated")
        # So that there is a result to wait for.
        if method == "tasks/result":
            await caller.cancel(meant)
        call = await caller.begin(method, {"taskId": meant}, meta={RELATED: {"taskId": other}})
        answer = await call.came
        named = answer["error"]["data"]["_meta"][RELATED] if "error" in answer else answer["result"]
        assert named["taskId"] == meant
        assert (await caller.get(other))["status"] == "working"
        # Nor does it help who names none.
        assert (await refusal(caller, method, {}, meta={RELATED: {"taskId": other}})).code == -32602


async def everything_of(caller: G1Caller, task_id: str) -> list[Message]:
    return [await caller.get(task_id), *(await caller.page())["tasks"]]


@pytest.mark.requirement("g1-no-related-task-in-tasks")
async def test_what_is_told_of_a_task_is_the_same_wherever_it_is_told() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        got, listed = await everything_of(caller, task_id)
        assert got == listed
        cancelled = await caller.cancel(task_id)
        pushed = await caller.until(task_id, "cancelled")
        got, listed = await everything_of(caller, task_id)
        assert got == listed == cancelled == pushed
        assert RELATED not in str([got, listed, cancelled, pushed])


async def test_many_polls_at_once_are_all_answered() -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("say")
        await caller.result(task_id)
        answers: list[Any] = await asyncio.gather(*(caller.get(task_id) for _ in range(200)))
        assert all(answer == answers[0] for answer in answers)


async def test_what_a_task_says_of_itself_is_told_on_every_connection_as_soon_as_it_is_kept() -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def report(task: TaskContext) -> str:
        await task.status("counting")
        await task.variables.set("told", 1)
        await asyncio.Event().wait()
        return ""

    async with calling(shop) as caller, calling(shop) as other:
        task_id = await caller.start("report")
        await shop.tasks.engine.wait(task_id, until=lambda task: task.status_message == "counting")
        assert message_of(await caller.get(task_id)) == message_of(await other.get(task_id)) == "counting"
