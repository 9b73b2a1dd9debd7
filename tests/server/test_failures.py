"""Errors of tools and of arguments: who gets them, in which form, and how often a task is retried."""

# pyright: reportUnusedFunction=false

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from raincheck import RetryPolicy, TaskContext
from raincheck.errors import InvalidValue
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import ON_BOTH_TRANSPORTS, add_greeting, refusal, run_sql, text_of, without_tasks

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(
    attempts=3, first_wait=RetryPolicy().first_wait * 0, max_wait=RetryPolicy().max_wait * 0, jitter=0
)


class Basket(BaseModel):
    pears: int


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_result_that_does_not_fit_fails_at_once_and_is_not_revealed(kind: str) -> None:
    server = ExampleServer()
    attempts = 0

    def lie() -> int:
        nonlocal attempts
        attempts += 1
        return "secret"  # type: ignore[return-value] # that is the point

    async def lie_later() -> int:
        return lie()

    server.tasks.tool(name="lie", retry=AT_ONCE)(lie if kind == "function" else lie_later)
    async with server.open() as caller:
        task = await caller.until(await caller.start("lie"))
        assert task["status"] == "failed"
        assert "tool 'lie' returned a value that does not fit its return type" in task["error"]["message"]
        assert "secret" not in str(task)
    assert attempts == 1


@pytest.mark.parametrize("name", [["greet"], {"name": "greet"}, 7, None], ids=["array", "object", "number", "null"])
async def test_a_call_whose_tool_name_is_no_text_is_an_error_of_its_caller(name: object) -> None:
    server = ExampleServer()
    add_greeting(server)
    async with server.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": name, "arguments": {}})
        assert refused.code == -32602


async def test_a_child_with_invalid_arguments_is_refused_by_spawn() -> None:
    server = ExampleServer()
    refused: list[str] = []

    @server.tasks.tool
    async def weigh(basket: Basket) -> int:
        return basket.pears

    @server.tasks.tool
    async def parent(task: TaskContext) -> str:
        try:
            await task.spawn("weigh", {"basket": {"pears": "many"}})
        except InvalidValue as error:
            refused.append(str(error))
        return "went on"

    async with server.open() as caller:
        assert text_of(await caller.result(await caller.start("parent"))) == "went on"
        with pytest.raises(InvalidValue, match="the arguments do not fit tool 'weigh'"):
            await server.tasks.engine.submit("weigh", {"basket": {"pears": "many"}})
        tasks = (await server.tasks.engine.list_tasks()).tasks
        assert [task.tool.name for task in tasks] == ["parent"]
    assert "the arguments do not fit tool 'weigh'" in refused[0]


async def test_a_typed_successor_gets_the_result_as_its_type() -> None:
    server = ExampleServer()
    following: list[str] = []

    @server.tasks.tool
    async def weigh(result: Basket, unit: str) -> str:
        return f"{result.pears} {unit}"

    @server.tasks.tool
    async def pick(task: TaskContext) -> Basket:
        following.append(await task.then("weigh", {"unit": "pears"}))
        return Basket(pears=2)

    async with server.open() as caller:
        await caller.result(await caller.start("pick"))
        assert text_of(await caller.result(following[0])) == "2 pears"


@pytest.mark.parametrize(("settings", "attempts"), [({}, 1), ({"retry": AT_ONCE}, 3)], ids=["as it is", "with retry"])
async def test_an_enabled_tool_that_raises_is_retried_only_if_configured(
    settings: dict[str, Any], attempts: int
) -> None:
    server = ExampleServer()
    tried = 0

    @server.mcp.tool()
    async def crash() -> None:
        nonlocal tried
        tried += 1
        raise OSError("password=12345")

    server.tasks.enable("crash", **settings)
    async with server.open() as caller:
        task = await caller.until(await caller.start("crash"))
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        assert "12345" not in str(task)
    assert tried == attempts


@ON_BOTH_TRANSPORTS
async def test_a_crash_is_an_error_result_without_tasks_and_a_failed_task_with_tasks(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash() -> None:
        raise OSError("password=12345")

    async with server.open_by(way) as caller:
        result = await without_tasks(caller).call("crash")
        assert result["isError"] is True
        assert "tool 'crash' failed unexpectedly" in text_of(result)
        assert "12345" not in str(result)
        task = await caller.until(await caller.start("crash"))
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)


@ON_BOTH_TRANSPORTS
async def test_a_protocol_error_is_a_protocol_error_for_every_caller(way: str) -> None:
    server = ExampleServer()

    @server.tasks.tool
    async def close() -> None:
        raise MCPError(-32050, "closed", {"until": "Monday"})

    async with server.open_by(way) as caller:
        refused = await refusal(without_tasks(caller), "tools/call", {"name": "close", "arguments": {}})
        assert (refused.code, refused.message, refused.data) == (-32050, "closed", {"until": "Monday"})
        task = await caller.until(await caller.start("close"))
        assert task["error"] == {"code": -32050, "message": "closed", "data": {"until": "Monday"}}


async def test_an_error_in_the_authors_code_is_masked_and_audited(caplog: pytest.LogCaptureFixture) -> None:
    server = ExampleServer()

    def make_key(_: object) -> str:
        raise KeyError("password=12345")

    @server.tasks.tool(idempotency=make_key)
    async def order() -> None: ...

    caplog.set_level(logging.INFO, "raincheck.audit")
    async with server.open() as caller:
        refused = await refusal(caller, "tools/call", {"name": "order", "arguments": {}})
        assert (refused.code, refused.message) == (-32603, "Internal server error")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "raincheck.audit"]
    assert line.startswith("refused ")
    assert "tool=order" in line
    assert "code=-32603" in line
    assert "12345" not in line


async def test_progress_for_a_caller_without_tasks_only_increases() -> None:
    server = ExampleServer()
    received, end = asyncio.Event(), asyncio.Event()

    @server.tasks.tool
    async def work(task: TaskContext) -> str:
        await task.progress(3, 10, "three")
        await received.wait()
        for done, words in ((3, "again"), (1, "back"), (2, "nearly")):
            await task.progress(done, 10, words)
            # Stored before the next report, so that it is a separate change.
            await task.step(words, str)
        await task.progress(7, 10, "seven")
        await end.wait()
        return "done"

    async with server.open(capabilities={}) as caller:
        message = caller.message("tools/call", {"name": "work", "arguments": {}}, {"progressToken": "mine"})
        messages = caller.transport.exchange(message, {})
        reported: list[float] = []
        async for one in messages:
            if "id" in one:
                break
            reported.append(one["params"]["progress"])
            (received if reported[-1] == 3 else end).set()
        await messages.aclose()
    assert reported == [3, 7]


async def test_a_round_whose_task_has_ended_gets_the_outcome() -> None:
    server = ExampleServer()
    received = add_greeting(server)
    async with server.open() as caller:
        fallback_caller = without_tasks(caller)
        asked = await fallback_caller.call("greet")
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        yes = {"action": "accept", "content": {"name": "Eve"}}
        await server.tasks.engine.answer(task.id, {"elicit-0": yes})
        await server.tasks.engine.wait(task.id)
        late = {key: {"action": "decline"} for key in asked["inputRequests"]}
        result = await fallback_caller.call("greet", inputResponses=late, requestState=asked["requestState"])
        assert text_of(result) == "Hello, Eve!"
    assert len(received) == 1


async def test_unreadable_stored_data_is_an_internal_error(tmp_path: Path) -> None:
    server = ExampleServer(tmp_path / "tasks.db")

    @server.tasks.tool
    async def work() -> str:
        return "done"

    async with server.open() as caller:
        task_id = await caller.start("work")
        await caller.until(task_id)
        await asyncio.to_thread(
            run_sql, tmp_path / "tasks.db", "UPDATE payloads SET body = X'7B' WHERE kind = 'outcome'"
        )
        with pytest.raises(Refused) as refused:
            await caller.get(task_id)
        assert (refused.value.code, refused.value.message) == (-32603, "Internal server error")
