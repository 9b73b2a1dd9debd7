"""One task, both generations: whichever began it, the other reads it, answers it and cancels it, in its own words."""

# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck import ToolError
from tests.support.server.caller_v2025 import RELATED, G1Caller, calling, connected
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import Shop
from tests.support.server.tools import YES, add_gated, add_greeting, but_for_meta, text_of
from tests.support.server.transports import in_memory
from tests.support.server.transports_v2025 import g1_http, g1_serving
from tests.support.server.v2025.tools import ALICE, add_metered, add_saying, ended, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


@asynccontextmanager
async def both(shop: Shop) -> AsyncGenerator[tuple[G1Caller, Caller]]:
    """A caller of each generation, who are the same person."""
    async with calling(shop) as old, in_memory(shop.mcp) as wire:
        yield old, Caller(wire)


def make() -> Shop:
    shop = Shop()
    add_saying(shop, inline_for=0)

    @shop.tasks.tool()
    async def refuse() -> str:
        raise ToolError("no paper left")

    @shop.tasks.tool()
    async def fail() -> str:
        raise MCPError(-32042, "go there first", {"where": "there"})

    @shop.tasks.tool()
    async def list_them() -> CallToolResult:
        content = [{"type": "text", "text": "[1]"}]
        return CallToolResult.model_validate({"content": content, "structuredContent": [1], "_meta": {"a/b": 1}})

    return shop


@pytest.mark.parametrize("began", ["old", "new"])
async def test_a_completed_task_reads_the_same_in_both(began: str) -> None:
    async with both(make()) as (old, new):
        caller: Any = {"old": old, "new": new}[began]
        task_id = await caller.start("say", {"words": "hello"})
        result = await old.result(task_id)
        told = await new.until(task_id)
        assert (told["status"], (await old.get(task_id))["status"]) == ("completed", "completed")
        assert RELATED not in str(told)
        assert told["result"]["content"] == result["content"]
        assert told["result"]["structuredContent"] == result["structuredContent"]
        shared = ["taskId", "createdAt", "lastUpdatedAt"]
        assert [told[name] for name in shared] == [(await old.get(task_id))[name] for name in shared]
        assert told["ttlMs"] == (await old.get(task_id))["ttl"]


@pytest.mark.parametrize("began", ["old", "new"])
async def test_a_tools_own_error_completes_its_task_in_one_and_fails_it_in_the_other(began: str) -> None:
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
        told = await new.get(task_id)
        assert told["status"] == (await old.get(task_id))["status"] == "failed"
        assert told["error"] == {"code": refused.code, "message": refused.message, "data": refused.data}


async def test_what_only_one_of_them_can_say_is_kept_for_it() -> None:
    async with both(make()) as (old, new):
        task_id = await old.start("list_them")
        assert "structuredContent" not in await old.result(task_id)
        assert (await new.get(task_id))["result"]["structuredContent"] == [1]
        assert (await old.result(task_id))["_meta"] == {"a/b": 1, RELATED: {"taskId": task_id}}
        assert (await new.get(task_id))["result"]["_meta"]["a/b"] == 1


async def test_a_task_that_the_older_began_is_answered_by_the_newer() -> None:
    shop = Shop()
    add_greeting(shop)
    async with both(shop) as (old, new):
        task_id = await old.start("greet")
        asking = await new.until(task_id, "input_required")
        assert asking["inputRequests"]["elicit-0"]["params"]["message"] == "Who are you?"
        assert RELATED not in str(asking)
        await new.update(task_id, {"elicit-0": YES})
        assert text_of(await old.result(task_id)) == "Hello, Ada!"
        assert old.questions.empty(), "nobody who waited for its result was asked"


async def test_a_task_that_the_newer_began_is_answered_by_the_older() -> None:
    shop = Shop()
    add_greeting(shop)
    async with both(shop) as (old, new):
        task_id = await new.start("greet")
        await new.until(task_id, "input_required")
        assert (await old.get(task_id))["status"] == "input_required"
        waiting = await old.wait(task_id)
        await old.reply(await old.asked(), YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"
        assert text_of(await new.result(task_id)) == "Hello, Ada!"


async def test_a_task_that_the_older_began_is_cancelled_by_the_newer() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with both(shop) as (old, new):
        task_id = await old.start("gated")
        await gate.begun.wait()
        waiting = await old.wait(task_id)
        assert but_for_meta(await new.cancel(task_id)) == {"resultType": "complete"}
        with pytest.raises(Refused, match="-32000"):
            await waiting.result()
        assert (await old.get(task_id))["status"] == "cancelled"
        await old.until(task_id, "cancelled")
        await gate.stopped.wait()


async def test_a_task_that_the_newer_began_is_cancelled_by_the_older() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with both(shop) as (old, new):
        task_id = await new.start("gated")
        async with new.listening(task_id) as pushed:
            await gate.begun.wait()
            assert (await old.cancel(task_id))["status"] == "cancelled"
            statuses = [task["status"] async for task in pushed]
        assert statuses[-1] == "cancelled"
        # A second time is an error in one and nothing in the other.
        assert (await refusal(old, "tasks/cancel", {"taskId": task_id})).code == -32602
        assert but_for_meta(await new.cancel(task_id)) == {"resultType": "complete"}


async def test_progress_of_a_task_reaches_both_each_in_its_own_way() -> None:
    shop = Shop()
    meter = add_metered(shop)
    async with both(shop) as (old, new):
        task_id = await old.start("metered", meta={"progressToken": 1})
        async with new.listening(task_id) as pushed:
            await meter.show(1, 2, "half of it")
            await old.until_progress(1)
            told = [await anext(pushed)]
            while told[-1].get("statusMessage") != "half of it":
                told.append(await anext(pushed))
        assert new.notifications == [], "progress is not for callers of 2026"
        meter.finish()
        await old.result(task_id)


async def test_a_plain_call_is_a_task_that_its_owner_can_read_in_both_while_it_waits() -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with both(shop) as (old, new):
        call = await old.begin("tools/call", {"name": "gated"})
        await gate.begun.wait()
        (task,) = (await old.page())["tasks"]
        assert (await new.get(task["taskId"]))["status"] == "working"
        gate.open.set()
        assert text_of(await call.result()) == "through"
        assert text_of(await old.result(task["taskId"])) == "through"
        assert (await new.until(task["taskId"]))["status"] == "completed"


async def test_over_http_the_same_credentials_are_the_same_owner_in_both() -> None:
    shop = Shop()
    add_saying(shop)
    async with g1_serving(shop.mcp) as serving, g1_http(serving, **ALICE) as wire, connected(wire) as old:
        new, other = Caller(serving, headers=ALICE), Caller(serving, headers={"authorization": "Bearer bob"})
        first, second = await old.start("say", {"words": "old"}), await new.start("say", {"words": "new"})
        assert text_of(await new.result(first)) == "old"
        assert text_of(await old.result(second)) == "new"
        assert [task["taskId"] for task in (await old.page())["tasks"]] == [second, first]
        for task_id in (first, second):
            with pytest.raises(Refused):
                await other.get(task_id)


async def test_calls_with_one_key_are_one_task_in_both() -> None:
    shop = Shop()
    gate = add_gated(shop)
    meta = {"raincheck/idempotency-key": "mine"}
    async with both(shop) as (old, new):
        ids = [await old.start("gated", meta=meta), await new.start("gated", meta=meta)]
        assert ids[0] == ids[1]
        gate.open.set()
        assert (await ended(shop, ids[0])).task.status == "completed"


async def test_both_at_once_on_one_server_do_not_mix() -> None:
    shop = make()
    async with both(shop) as (old, new):
        olds = [old.create("say", {"words": f"old {n}"}) for n in range(10)]
        news = [new.call("say", {"words": f"new {n}"}) for n in range(10)]
        made: list[Any] = await asyncio.gather(*olds, *news)
        assert all("resultType" not in one for one in made[:10])
        assert all(one["resultType"] == "task" for one in made[10:])
        results = [text_of(await old.result(one["taskId"])) for one in made]
        assert results == [f"old {n}" for n in range(10)] + [f"new {n}" for n in range(10)]
