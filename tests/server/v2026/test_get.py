"""`tasks/get` shows a task in each status, and finally what the call would have returned."""

# pyright: reportUnusedFunction=false

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from raincheck import Retention, RetryPolicy, TaskContext, ToolError
from raincheck.testing import FakeClock
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import ON_BOTH_TRANSPORTS, add_gated, refusal, text_of, without_meta, without_tasks
from tests.support.server.transports import Message

pytestmark = pytest.mark.anyio

RELATED = "io.modelcontextprotocol/related-task"
COMMON = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}


def own_fields(task: Message) -> set[str]:
    """Return the fields that not every task has."""
    assert set(task) >= COMMON
    return set(task) - COMMON - {"_meta"}


async def call_without_task(caller: Caller, tool: str) -> Message | Refused:
    """Return the answer to a call whose caller sees no task."""
    try:
        return await without_tasks(caller).call(tool)
    except Refused as refused:
        return refused


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("get-by-status", "get-working", "get-result-type", "get-no-request-state", "wire-field-names")
async def test_a_running_task_is_working_and_has_a_status_message(way: str) -> None:
    server = ExampleServer()
    reported, gate = asyncio.Event(), asyncio.Event()

    @server.tasks.tool()
    async def slow(task: TaskContext) -> None:
        await task.status("crunching")
        await task.variables.set("told", 1)  # writes at once, and the status with it
        reported.set()
        await gate.wait()

    async with server.open_by(way) as caller:
        task_id = await caller.start("slow")
        await reported.wait()
        task = await caller.until(task_id, "working")
        assert task["status"] == "working"
        assert task["resultType"] == "complete"
        assert own_fields(task) <= {"statusMessage"}
        assert type(task["pollIntervalMs"]) is int
        gate.set()
        assert own_fields(await caller.until(task_id)) == {"result"}


async def test_the_message_of_a_working_task_is_shown_and_does_not_outlast_the_work() -> None:
    server = ExampleServer()
    gate = asyncio.Event()

    @server.tasks.tool()
    async def slow(task: TaskContext) -> str:
        await task.progress(1, 2, "half of it")
        await gate.wait()
        return "all of it"

    async with server.open() as caller:
        task_id = await caller.start("slow")
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                if task.get("statusMessage") == "half of it":
                    break
        assert (await caller.get(task_id))["statusMessage"] == "half of it"
        gate.set()
        ended = await caller.until(task_id)
        assert ended["status"] == "completed"
        assert ended.get("statusMessage") != "half of it"


async def test_polls_do_not_change_when_the_task_was_updated() -> None:
    clock = FakeClock()
    server = ExampleServer(works=False, clock=clock)
    add_gated(server)
    async with server.open() as caller:
        created = await caller.call("gated")
        for _ in range(3):
            clock.advance(10)
            assert (await caller.get(created["taskId"]))["lastUpdatedAt"] == created["lastUpdatedAt"]


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("get-by-status", "get-input-required", "get-all-outstanding", "get-no-request-state")
async def test_a_task_that_asks_shows_all_its_open_questions(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def interview(task: TaskContext) -> str:
        schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}
        message: Any = [{"role": "user", "content": {"type": "text", "text": "Guess!"}}]
        await asyncio.gather(
            task.elicit("Name?", schema, name="name"),
            task.elicit("Age?", schema, name="age"),
            task.sample(message, maxTokens=10),
        )
        return "thanks"

    async with server.open_by(way) as caller:
        task_id = await caller.start("interview")
        async with caller.listening(task_id) as pushed:
            async for one in pushed:
                if len(one.get("inputRequests", {})) == 3:
                    break
        task = await caller.get(task_id)
        assert task["status"] == "input_required"
        assert own_fields(task) == {"inputRequests"}
        asked = {key: request["method"] for key, request in task["inputRequests"].items()}
        assert asked == {
            "name-0": "elicitation/create",
            "age-0": "elicitation/create",
            "sample-0": "sampling/createMessage",
        }
        assert task["inputRequests"]["name-0"]["params"]["message"] == "Name?"
        # And the same once more: they are a picture of the moment, not a message that is delivered once.
        assert (await caller.get(task_id))["inputRequests"] == task["inputRequests"]


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement(
    "get-by-status", "get-completed", "completed-result-is-the-calls", "get-result-type", "complete-elsewhere"
)
async def test_a_completed_task_has_the_result_that_the_call_would_have_had(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def report() -> dict[str, Any]:
        return {"rows": 3, "of": ["a", None, 1.5], "ü": {"none": None}}

    async with server.open_by(way) as caller:
        task = await caller.until(await caller.start("report"))
        assert (task["status"], task["resultType"]) == ("completed", "complete")
        assert own_fields(task) == {"result"}
        assert task["result"]["structuredContent"] == {"rows": 3, "of": ["a", None, 1.5], "ü": {"none": None}}
        assert task["result"]["resultType"] == "complete"
        direct_answer = await call_without_task(caller, "report")
        assert isinstance(direct_answer, dict)
        assert without_meta(task["result"]) == without_meta(direct_answer)


@ON_BOTH_TRANSPORTS
@pytest.mark.parametrize("kind", ["ours", "the SDK's", "a result"])
@pytest.mark.requirement("tool-error-is-completed", "failed-is-for-protocol-errors", "completed-result-is-the-calls")
async def test_a_tools_own_error_is_a_result_of_a_completed_task(kind: str, way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def refuse() -> CallToolResult:
        if kind == "ours":
            raise ToolError("no paper left")
        if kind == "the SDK's":
            raise SdkToolError("no paper left")
        content = [TextContent(type="text", text="no paper left")]
        return CallToolResult(content=list(content), structured_content={"left": None}, is_error=True)

    async with server.open_by(way) as caller:
        task = await caller.until(await caller.start("refuse"))
        assert task["status"] == "completed"
        assert "error" not in task
        assert task["result"]["isError"] is True
        assert text_of(task["result"]) == "no paper left"
        if kind == "a result":
            assert task["result"]["structuredContent"] == {"left": None}
        direct_answer = await call_without_task(caller, "refuse")
        assert isinstance(direct_answer, dict)
        assert without_meta(task["result"]) == without_meta(direct_answer)


@ON_BOTH_TRANSPORTS
@pytest.mark.parametrize("data", [None, {"retry": [1, None]}, "text"])
@pytest.mark.requirement(
    "get-by-status",
    "get-failed",
    "failed-has-error",
    "failed-error-is-the-calls",
    "failed-has-status-message",
    "get-no-request-state",
)
async def test_an_error_of_the_protocol_fails_the_task_with_its_code_and_data(data: Any, way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def fail() -> None:
        raise MCPError(-32042, "go there first", data)

    async with server.open_by(way) as caller:
        task = await caller.until(await caller.start("fail"))
        assert (task["status"], task["resultType"]) == ("failed", "complete")
        assert own_fields(task) == {"error", "statusMessage"}
        reported = {} if data is None else {"data": data}
        assert task["error"] == {"code": -32042, "message": "go there first", **reported}
        assert task["statusMessage"] == "go there first"
        direct_answer = await call_without_task(caller, "fail")
        assert isinstance(direct_answer, Refused)
        assert (direct_answer.code, direct_answer.message, direct_answer.data) == (-32042, "go there first", data)


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("get-failed", "failed-has-error", "failed-has-status-message", "standard-errors")
async def test_a_crash_fails_the_task_with_an_internal_error_that_does_not_reveal_the_cause(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash(task: TaskContext) -> None:
        await task.status("connecting")
        raise RuntimeError("postgres://admin:hunter2@db")

    async with server.open_by(way) as caller:
        task = await caller.until(await caller.start("crash"))
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        error_id = task["error"]["data"]["errorId"]
        assert error_id in task["error"]["message"]
        assert error_id in task["statusMessage"]
        direct_answer = await call_without_task(caller, "crash")
        assert isinstance(direct_answer, dict), "as the SDK tells of a crash"
        assert direct_answer["isError"]
        for reported in (str(task), str(direct_answer)):
            assert "hunter2" not in reported
            assert "RuntimeError" not in reported


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("get-by-status", "get-cancelled", "get-result-type", "get-no-request-state")
async def test_a_cancelled_task_is_cancelled_and_has_no_outcome(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open_by(way) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        await caller.cancel(task_id)
        task = await caller.until(task_id)
        assert (task["status"], task["resultType"]) == ("cancelled", "complete")
        assert own_fields(task) <= {"statusMessage"}


@pytest.mark.requirement("no-related-task-meta")
async def test_the_result_in_a_task_does_not_name_the_task() -> None:
    server = ExampleServer()

    @server.tasks.tool()
    async def tell(task: TaskContext) -> CallToolResult:
        return CallToolResult.model_validate(
            {"content": [], "_meta": {RELATED: {"taskId": task.id}, "example.com/kept": 1}}
        )

    async with server.open() as caller:
        task = await caller.until(await caller.start("tell"))
        assert RELATED not in str(task)
        assert task["result"]["_meta"]["example.com/kept"] == 1


@pytest.mark.requirement("no-early-expiry")
async def test_a_task_can_be_read_until_its_ttl_expires() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)

    @server.tasks.tool(timeout=100, retention=Retention(keep=timedelta(seconds=50)))
    async def quick() -> str:
        return "here"

    async with server.open() as caller:
        created = await caller.call("quick")
        # It may use all of its timeout, and is stored after its end.
        assert created["ttlMs"] == 150_000
        ended = await caller.until(created["taskId"])
        stored = ended["ttlMs"] / 1_000
        clock.advance(stored - 0.001)
        assert text_of((await caller.get(created["taskId"]))["result"]) == "here"
        clock.advance(0.002)
        assert (await refusal(caller, "tasks/get", {"taskId": created["taskId"]})).code == -32602


@pytest.mark.requirement("get-failed", "failed-has-error", "failed-has-status-message")
async def test_a_task_that_exceeds_its_timeout_fails_with_that_error() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    gate = add_gated(server, timeout=10)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        clock.advance(11)
        task = await caller.until(task_id)
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        assert "deadline" in task["error"]["message"]
        assert task["statusMessage"] == task["error"]["message"]
        await gate.stopped.wait()


@pytest.mark.requirement("no-early-expiry")
async def test_a_task_without_an_end_has_no_ttl_and_does_not_expire_while_it_waits() -> None:
    clock = FakeClock()
    server = ExampleServer(works=False, clock=clock)
    add_gated(server)
    async with server.open() as caller:
        created = await caller.call("gated")
        assert created["ttlMs"] is None
        clock.advance(400 * 86_400)
        assert (await caller.get(created["taskId"]))["status"] == "working"


@pytest.mark.requirement("no-task-result-type-elsewhere", "complete-elsewhere")
async def test_only_a_new_task_has_the_result_type_task() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with server.open() as caller:
        task_id = await caller.start("gated")
        answers = [await caller.get(task_id), await caller.update(task_id, {}), await caller.cancel(task_id)]
        answers.append(await caller.until(task_id))
        gate.open.set()
        ended = await caller.until(await caller.start("gated"))
        answers += [ended, ended["result"], await without_tasks(caller).call("gated")]
        answers += [await caller.request("tools/list"), await caller.request("server/discover")]
        assert {answer["resultType"] for answer in answers} == {"complete"}
