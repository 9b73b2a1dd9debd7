"""Callers of both generations read, answer and cancel the same task, whichever of them started it."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck import ToolError
from tests.support.server.caller_v2025 import RELATED, V2025Caller, connected, v2025_caller
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_gated, add_greeting, text_of, without_meta
from tests.support.server.transports import in_memory
from tests.support.server.transports_v2025 import v2025_http, v2025_serving
from tests.support.server.v2025.tools import ALICE, add_echo, add_metered, ended, refusal

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def both(server: ExampleServer) -> AsyncGenerator[tuple[V2025Caller, Caller]]:
    """A caller of each generation, who are the same person."""
    async with v2025_caller(server) as old, in_memory(server.mcp) as transport:
        yield old, Caller(transport)


def make() -> ExampleServer:
    server = ExampleServer()
    add_echo(server, inline_for=0)

    @server.tasks.tool()
    async def refuse() -> str:
        raise ToolError("no paper left")

    @server.tasks.tool()
    async def fail() -> str:
        raise MCPError(-32042, "go there first", {"where": "there"})

    @server.tasks.tool()
    async def list_them() -> CallToolResult:
        content = [{"type": "text", "text": "[1]"}]
        return CallToolResult.model_validate({"content": content, "structuredContent": [1], "_meta": {"a/b": 1}})

    return server


@pytest.mark.parametrize("began", ["old", "new"])
async def test_a_completed_task_reads_the_same_in_both_generations(began: str) -> None:
    async with both(make()) as (old, new):
        caller: Any = {"old": old, "new": new}[began]
        task_id = await caller.start("say", {"words": "hello"})
        result = await old.result(task_id)
        reported = await new.until(task_id)
        assert (reported["status"], (await old.get(task_id))["status"]) == ("completed", "completed")
        assert RELATED not in str(reported)
        assert reported["result"]["content"] == result["content"]
        assert reported["result"]["structuredContent"] == result["structuredContent"]
        shared = ["taskId", "createdAt", "lastUpdatedAt"]
        assert [reported[name] for name in shared] == [(await old.get(task_id))[name] for name in shared]
        assert reported["ttlMs"] == (await old.get(task_id))["ttl"]


@pytest.mark.parametrize("began", ["old", "new"])
async def test_a_tool_error_completes_the_task_in_2026_and_fails_it_in_2025(began: str) -> None:
    async with both(make()) as (old, new):
        caller: Any = {"old": old, "new": new}[began]
        task_id = await caller.start("refuse")
        result = await old.result(task_id)
        assert (text_of(result), result["isError"]) == ("no paper left", True)
        failed, completed = await old.get(task_id), await new.get(task_id)
        assert (failed["status"], failed["statusMessage"]) == ("failed", "no paper left")
        assert completed["status"] == "completed"
        assert completed["result"]["isError"] is True
        assert text_of(completed["result"]) == "no paper left"


@pytest.mark.parametrize("began", ["old", "new"])
async def test_an_error_of_the_protocol_is_the_same_in_both(began: str) -> None:
    async with both(make()) as (old, new):
        caller: Any = {"old": old, "new": new}[began]
        task_id = await caller.start("fail")
        refused = await refusal(old, "tasks/result", {"taskId": task_id})
        reported = await new.get(task_id)
        assert reported["status"] == (await old.get(task_id))["status"] == "failed"
        assert reported["error"] == {"code": refused.code, "message": refused.message, "data": refused.data}


async def test_fields_of_one_generation_are_preserved_for_it() -> None:
    async with both(make()) as (old, new):
        task_id = await old.start("list_them")
        assert "structuredContent" not in await old.result(task_id)
        assert (await new.get(task_id))["result"]["structuredContent"] == [1]
        assert (await old.result(task_id))["_meta"] == {"a/b": 1, RELATED: {"taskId": task_id}}
        assert (await new.get(task_id))["result"]["_meta"]["a/b"] == 1


async def test_a_2025_task_is_answered_by_a_2026_caller() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with both(server) as (old, new):
        task_id = await old.start("greet")
        asking = await new.until(task_id, "input_required")
        assert asking["inputRequests"]["elicit-0"]["params"]["message"] == "Who are you?"
        assert RELATED not in str(asking)
        await new.update(task_id, {"elicit-0": YES})
        assert text_of(await old.result(task_id)) == "Hello, Ada!"
        assert old.questions.empty(), "nobody who waited for its result was asked"


async def test_a_2026_task_is_answered_by_a_2025_caller() -> None:
    server = ExampleServer()
    add_greeting(server)
    async with both(server) as (old, new):
        task_id = await new.start("greet")
        await new.until(task_id, "input_required")
        assert (await old.get(task_id))["status"] == "input_required"
        waiting = await old.wait(task_id)
        await old.reply(await old.asked(), YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert text_of(await new.result(task_id)) == "Hello, Ada!"


async def test_a_2025_task_is_cancelled_by_a_2026_caller() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with both(server) as (old, new):
        task_id = await old.start("gated")
        await gate.started.wait()
        waiting = await old.wait(task_id)
        assert without_meta(await new.cancel(task_id)) == {"resultType": "complete"}
        with pytest.raises(Refused, match="-32000"):
            await waiting.result()
        assert (await old.get(task_id))["status"] == "cancelled"
        await old.until(task_id, "cancelled")
        await gate.stopped.wait()


async def test_a_2026_task_is_cancelled_by_a_2025_caller() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with both(server) as (old, new):
        task_id = await new.start("gated")
        async with new.listening(task_id) as pushed:
            await gate.started.wait()
            assert (await old.cancel(task_id))["status"] == "cancelled"
            statuses = [task["status"] async for task in pushed]
        assert statuses[-1] == "cancelled"
        # A second time is an error in one and nothing in the other.
        assert (await refusal(old, "tasks/cancel", {"taskId": task_id})).code == -32602
        assert without_meta(await new.cancel(task_id)) == {"resultType": "complete"}


async def test_progress_of_a_task_reaches_callers_of_both_generations() -> None:
    server = ExampleServer()
    meter = add_metered(server)
    async with both(server) as (old, new):
        task_id = await old.start("metered", meta={"progressToken": 1})
        async with new.listening(task_id) as pushed:
            await meter.show(1, 2, "half of it")
            await old.until_progress(1)
            reported = [await anext(pushed)]
            while reported[-1].get("statusMessage") != "half of it":
                reported.append(await anext(pushed))
        assert new.notifications == [], "progress is not for callers of 2026"
        meter.finish()
        await old.result(task_id)


async def test_the_task_of_a_waiting_call_can_be_read_in_both_generations() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with both(server) as (old, new):
        call = await old.begin("tools/call", {"name": "gated"})
        await gate.started.wait()
        (task,) = (await old.page())["tasks"]
        assert (await new.get(task["taskId"]))["status"] == "working"
        gate.open.set()
        assert text_of(await call.result()) == "through"
        assert text_of(await old.result(task["taskId"])) == "through"
        assert (await new.until(task["taskId"]))["status"] == "completed"


async def test_over_http_the_same_credentials_are_the_same_owner_in_both_generations() -> None:
    server = ExampleServer()
    add_echo(server)
    async with (
        v2025_serving(server.mcp) as serving,
        v2025_http(serving, **ALICE) as transport,
        connected(transport) as old,
    ):
        new, other = Caller(serving, headers=ALICE), Caller(serving, headers={"authorization": "Bearer bob"})
        first, second = await old.start("say", {"words": "old"}), await new.start("say", {"words": "new"})
        assert text_of(await new.result(first)) == "old"
        assert text_of(await old.result(second)) == "new"
        assert [task["taskId"] for task in (await old.page())["tasks"]] == [second, first]
        for task_id in (first, second):
            with pytest.raises(Refused):
                await other.get(task_id)


async def test_calls_with_one_key_are_one_task_in_both_generations() -> None:
    server = ExampleServer()
    gate = add_gated(server)
    meta = {"raincheck/idempotency-key": "mine"}
    async with both(server) as (old, new):
        ids = [await old.start("gated", meta=meta), await new.start("gated", meta=meta)]
        assert ids[0] == ids[1]
        gate.open.set()
        assert (await ended(server, ids[0])).task.status == "completed"


async def test_both_generations_on_one_server_do_not_mix() -> None:
    server = make()
    async with both(server) as (old, new):
        olds = [old.create("say", {"words": f"old {n}"}) for n in range(10)]
        news = [new.call("say", {"words": f"new {n}"}) for n in range(10)]
        made: list[Any] = await asyncio.gather(*olds, *news)
        assert all("resultType" not in one for one in made[:10])
        assert all(one["resultType"] == "task" for one in made[10:])
        results = [text_of(await old.result(one["taskId"])) for one in made]
        assert results == [f"old {n}" for n in range(10)] + [f"new {n}" for n in range(10)]
