"""`tasks/get`: what it says of a task in each status, and that this is what the call would have answered."""

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
from tests.support.server.example import Shop
from tests.support.server.tools import ON_BOTH_WIRES, add_gated, but_for_meta, refusal, text_of, without_tasks
from tests.support.server.transports import Message

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

RELATED = "io.modelcontextprotocol/related-task"
COMMON = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}


def own_fields(task: Message) -> set[str]:
    """What is said beyond what is said of every task."""
    assert set(task) >= COMMON
    return set(task) - COMMON - {"_meta"}


async def call_plainly(caller: Caller, tool: str) -> Message | Refused:
    """What a call is answered with by a server that makes no task of it, as far as its caller can see."""
    try:
        return await without_tasks(caller).call(tool)
    except Refused as refused:
        return refused


@ON_BOTH_WIRES
@pytest.mark.requirement("get-by-status", "get-working", "get-result-type", "get-no-request-state", "wire-field-names")
async def test_a_task_at_work_is_working_and_says_what_it_is_at(way: str) -> None:
    shop = Shop()
    told, gate = asyncio.Event(), asyncio.Event()

    @shop.tasks.tool()
    async def slow(task: TaskContext) -> None:
        await task.status("crunching")
        await task.variables.set("told", 1)  # writes at once, and the status with it
        told.set()
        await gate.wait()

    async with shop.open_by(way) as caller:
        task_id = await caller.start("slow")
        await told.wait()
        task = await caller.until(task_id, "working")
        assert task["status"] == "working"
        assert task["resultType"] == "complete"
        assert own_fields(task) <= {"statusMessage"}
        assert type(task["pollIntervalMs"]) is int
        gate.set()
        assert own_fields(await caller.until(task_id)) == {"result"}


async def test_the_message_of_a_working_task_is_seen_and_does_not_outlast_the_work() -> None:
    shop = Shop()
    gate = asyncio.Event()

    @shop.tasks.tool()
    async def slow(task: TaskContext) -> str:
        await task.progress(1, 2, "half of it")
        await gate.wait()
        return "all of it"

    async with shop.open() as caller:
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
    shop = Shop(works=False, clock=clock)
    add_gated(shop)
    async with shop.open() as caller:
        created = await caller.call("gated")
        for _ in range(3):
            clock.advance(10)
            assert (await caller.get(created["taskId"]))["lastUpdatedAt"] == created["lastUpdatedAt"]


@ON_BOTH_WIRES
@pytest.mark.requirement("get-by-status", "get-input-required", "get-all-outstanding", "get-no-request-state")
async def test_a_task_that_asks_shows_all_its_open_questions(way: str) -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def interview(task: TaskContext) -> str:
        schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}
        message: Any = [{"role": "user", "content": {"type": "text", "text": "Guess!"}}]
        await asyncio.gather(
            task.elicit("Name?", schema, name="name"),
            task.elicit("Age?", schema, name="age"),
            task.sample(message, maxTokens=10),
        )
        return "thanks"

    async with shop.open_by(way) as caller:
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


@ON_BOTH_WIRES
@pytest.mark.requirement(
    "get-by-status", "get-completed", "completed-result-is-the-calls", "get-result-type", "complete-elsewhere"
)
async def test_a_completed_task_has_the_result_that_the_call_would_have_had(way: str) -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def report() -> dict[str, Any]:
        return {"rows": 3, "of": ["a", None, 1.5], "ü": {"none": None}}

    async with shop.open_by(way) as caller:
        task = await caller.until(await caller.start("report"))
        assert (task["status"], task["resultType"]) == ("completed", "complete")
        assert own_fields(task) == {"result"}
        assert task["result"]["structuredContent"] == {"rows": 3, "of": ["a", None, 1.5], "ü": {"none": None}}
        assert task["result"]["resultType"] == "complete"
        plain = await call_plainly(caller, "report")
        assert isinstance(plain, dict)
        assert but_for_meta(task["result"]) == but_for_meta(plain)


@ON_BOTH_WIRES
@pytest.mark.parametrize("kind", ["ours", "the SDK's", "a result"])
@pytest.mark.requirement("tool-error-is-completed", "failed-is-for-protocol-errors", "completed-result-is-the-calls")
async def test_a_tools_own_error_is_a_result_of_a_completed_task(kind: str, way: str) -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def refuse() -> CallToolResult:
        if kind == "ours":
            raise ToolError("no paper left")
        if kind == "the SDK's":
            raise SdkToolError("no paper left")
        content = [TextContent(type="text", text="no paper left")]
        return CallToolResult(content=list(content), structured_content={"left": None}, is_error=True)

    async with shop.open_by(way) as caller:
        task = await caller.until(await caller.start("refuse"))
        assert task["status"] == "completed"
        assert "error" not in task
        assert task["result"]["isError"] is True
        assert text_of(task["result"]) == "no paper left"
        if kind == "a result":
            assert task["result"]["structuredContent"] == {"left": None}
        plain = await call_plainly(caller, "refuse")
        assert isinstance(plain, dict)
        assert but_for_meta(task["result"]) == but_for_meta(plain)


@ON_BOTH_WIRES
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
    shop = Shop()

    @shop.tasks.tool()
    async def fail() -> None:
        raise MCPError(-32042, "go there first", data)

    async with shop.open_by(way) as caller:
        task = await caller.until(await caller.start("fail"))
        assert (task["status"], task["resultType"]) == ("failed", "complete")
        assert own_fields(task) == {"error", "statusMessage"}
        told = {} if data is None else {"data": data}
        assert task["error"] == {"code": -32042, "message": "go there first", **told}
        assert task["statusMessage"] == "go there first"
        plain = await call_plainly(caller, "fail")
        assert isinstance(plain, Refused)
        assert (plain.code, plain.message, plain.data) == (-32042, "go there first", data)


@ON_BOTH_WIRES
@pytest.mark.requirement("get-failed", "failed-has-error", "failed-has-status-message", "standard-errors")
async def test_a_crash_fails_the_task_with_an_internal_error_that_says_nothing_of_the_cause(way: str) -> None:
    shop = Shop()

    @shop.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash(task: TaskContext) -> None:
        await task.status("connecting")
        raise RuntimeError("postgres://admin:hunter2@db")

    async with shop.open_by(way) as caller:
        task = await caller.until(await caller.start("crash"))
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        error_id = task["error"]["data"]["errorId"]
        assert error_id in task["error"]["message"]
        assert error_id in task["statusMessage"]
        plain = await call_plainly(caller, "crash")
        assert isinstance(plain, dict), "as the SDK tells of a crash"
        assert plain["isError"]
        for told in (str(task), str(plain)):
            assert "hunter2" not in told
            assert "RuntimeError" not in told


@ON_BOTH_WIRES
@pytest.mark.requirement("get-by-status", "get-cancelled", "get-result-type", "get-no-request-state")
async def test_a_cancelled_task_is_cancelled_and_has_no_outcome(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open_by(way) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        await caller.cancel(task_id)
        task = await caller.until(task_id)
        assert (task["status"], task["resultType"]) == ("cancelled", "complete")
        assert own_fields(task) <= {"statusMessage"}


@pytest.mark.requirement("no-related-task-meta")
async def test_the_result_in_a_task_never_says_which_task_it_is_of() -> None:
    shop = Shop()

    @shop.tasks.tool()
    async def tell(task: TaskContext) -> CallToolResult:
        return CallToolResult.model_validate(
            {"content": [], "_meta": {RELATED: {"taskId": task.id}, "example.com/kept": 1}}
        )

    async with shop.open() as caller:
        task = await caller.until(await caller.start("tell"))
        assert RELATED not in str(task)
        assert task["result"]["_meta"]["example.com/kept"] == 1


@pytest.mark.requirement("no-early-expiry")
async def test_a_task_can_be_read_for_as_long_as_its_ttl_said_and_no_longer() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)

    @shop.tasks.tool(timeout=100, retention=Retention(keep=timedelta(seconds=50)))
    async def quick() -> str:
        return "here"

    async with shop.open() as caller:
        created = await caller.call("quick")
        # It may take all of its time, and is kept after its end.
        assert created["ttlMs"] == 150_000
        ended = await caller.until(created["taskId"])
        kept = ended["ttlMs"] / 1_000
        clock.advance(kept - 0.001)
        assert text_of((await caller.get(created["taskId"]))["result"]) == "here"
        clock.advance(0.002)
        assert (await refusal(caller, "tasks/get", {"taskId": created["taskId"]})).code == -32602


@pytest.mark.requirement("get-failed", "failed-has-error", "failed-has-status-message")
async def test_a_task_that_outlasts_its_time_fails_with_an_error_that_says_so() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock)
    gate = add_gated(shop, timeout=10)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
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
    shop = Shop(works=False, clock=clock)
    add_gated(shop)
    async with shop.open() as caller:
        created = await caller.call("gated")
        assert created["ttlMs"] is None
        clock.advance(400 * 86_400)
        assert (await caller.get(created["taskId"]))["status"] == "working"


@pytest.mark.requirement("no-task-result-type-elsewhere", "complete-elsewhere")
async def test_nothing_but_a_new_task_has_the_result_type_of_one() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with shop.open() as caller:
        task_id = await caller.start("gated")
        answers = [await caller.get(task_id), await caller.update(task_id, {}), await caller.cancel(task_id)]
        answers.append(await caller.until(task_id))
        gate.open.set()
        ended = await caller.until(await caller.start("gated"))
        answers += [ended, ended["result"], await without_tasks(caller).call("gated")]
        answers += [await caller.request("tools/list"), await caller.request("server/discover")]
        assert {answer["resultType"] for answer in answers} == {"complete"}
