"""Quotas of 2025-11-25 callers, and idempotency keys of their calls."""

import asyncio
from typing import Any

import pytest

from raincheck.testing import FakeClock
from tests.server.test_quotas import allowing, make
from tests.support.server.caller_v2025 import v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.v2025.tools import ALICE, add_echo, count_tasks, refusal, refused_call

pytestmark = pytest.mark.anyio

KEY = "raincheck/idempotency-key"


@pytest.mark.requirement("v2025-limit-concurrent")
async def test_a_caller_with_too_many_live_tasks_is_rejected_until_one_has_ended() -> None:
    server = ExampleServer(works=False, settings=allowing(live=2))
    add_gated(server)
    async with v2025_caller(server) as caller:
        first, _ = await caller.start("gated"), await caller.start("gated")
        refused = await refused_call(caller, "gated")
        assert refused.code == -32010
        assert refused.data == {"limit": "live tasks", "most": 2}
        assert await count_tasks(server) == 2
        await caller.cancel(first)
        await caller.start("gated")


@pytest.mark.requirement("v2025-limit-rate")
async def test_a_caller_that_creates_tasks_too_fast_gets_a_retry_time() -> None:
    clock = FakeClock()
    server = ExampleServer(works=False, clock=clock, settings=allowing(created=2))
    add_gated(server)
    async with v2025_caller(server) as caller:
        for _ in range(2):
            await caller.start("gated")
        refused = await refused_call(caller, "gated")
        assert refused.code == -32010
        assert refused.data["retryAfterMs"] == 60_000
        clock.advance(60)
        await caller.start("gated")


@pytest.mark.requirement("v2025-limit-concurrent")
async def test_calls_that_race_for_the_last_quota_slot_do_not_both_get_it() -> None:
    server = ExampleServer(works=False, settings=allowing(live=3))
    add_gated(server)
    async with v2025_caller(server) as caller:
        calls = [await caller.begin("tools/call", {"name": "gated", "task": {}}) for _ in range(10)]
        answers = await asyncio.gather(*(call.received for call in calls))
        codes = [answer["error"]["code"] for answer in answers if "error" in answer]
        assert codes == [-32010] * 7
        assert await count_tasks(server) == 3


async def test_arguments_that_are_too_large_are_refused_and_no_task_is_made() -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        refused = await refused_call(caller, "say", {"words": "x" * 1_100_000})
        assert refused.code == -32602
        assert len(refused.message) < 500
        assert await count_tasks(server) == 0


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "charge", "arguments": {"order_id": "7"}},
        {"tool": "say", "arguments": {"text": "once"}, "meta": {KEY: "mine"}},
    ],
    ids=["the tool's own key", "the caller's key"],
)
async def test_a_call_that_is_made_twice_gets_the_same_task(call: dict[str, Any]) -> None:
    server = make()
    async with v2025_caller(server) as caller:
        call = dict(call)
        tool, arguments = call.pop("tool"), call.pop("arguments")
        first = await caller.start(tool, arguments, **call)
        result = await caller.result(first)
        again = await caller.create(tool, arguments, **call)
        assert (again["taskId"], again["status"]) == (first, "completed")
        assert await caller.result(again["taskId"]) == result
        assert await count_tasks(server) == 1


async def test_two_concurrent_calls_with_one_key_get_the_same_task() -> None:
    server = make()
    async with v2025_caller(server) as caller:
        params: dict[str, Any] = {"name": "charge", "arguments": {"order_id": 1}, "task": {}}
        calls = [await caller.begin("tools/call", params) for _ in range(10)]
        ids = {(await call.result())["task"]["taskId"] for call in calls}
        assert len(ids) == await count_tasks(server) == 1


async def test_a_key_that_is_used_for_something_else_is_refused() -> None:
    server = make()
    async with v2025_caller(server) as caller:
        await caller.start("say", {"text": "one"}, meta={KEY: "mine"})
        refused = await refused_call(caller, "say", {"text": "two"}, meta={KEY: "mine"})
        assert refused.code == -32602
        assert await count_tasks(server) == 1


@pytest.mark.parametrize("key", [5, True, ["a"], {}, "x" * 2_000, "a\0b"], ids=str)
async def test_an_invalid_key_is_rejected(key: object) -> None:
    server = make()
    async with v2025_caller(server) as caller:
        assert (await refused_call(caller, "say", meta={KEY: key})).code == -32602
        assert await count_tasks(server) == 0


async def test_an_anonymous_caller_has_no_keys_and_an_identified_caller_has_its_own() -> None:
    async with v2025_caller(make(), "http") as caller:
        assert (await refused_call(caller, "say", meta={KEY: "mine"})).code == -32602
        one, other = [await caller.start("charge", {"order_id": 1}) for _ in range(2)]
        assert one != other
    async with v2025_caller(make(), "http", headers=ALICE) as caller:
        one, other = [await caller.start("charge", {"order_id": 1}) for _ in range(2)]
        assert one == other


async def test_a_call_with_a_task_joins_a_call_without_one_by_the_same_key() -> None:
    server = make()
    async with v2025_caller(server) as caller:
        plain = await caller.call("charge", {"order_id": "9", "amount": 3})
        task_id = await caller.start("charge", {"order_id": "9", "amount": 3})
        assert text_of(await caller.result(task_id)) == text_of(plain) == "9: 3"
        assert await count_tasks(server) == 1


@pytest.mark.parametrize("token", [None, 1.5, True, False, [], ["a"], {}, {"a": 1}], ids=repr)
async def test_a_progress_token_of_a_wrong_type_is_refused_and_no_task_made(token: object) -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        refused = await refused_call(caller, "say", meta={"progressToken": token})
        assert refused.code == -32602
        assert await count_tasks(server) == 0


@pytest.mark.parametrize("meta", [[], "text", 7, True], ids=repr)
async def test_invalid_metadata_is_rejected_and_creates_no_task(meta: object) -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        refused = await refusal(caller, "tools/call", {"name": "say", "task": {}, "_meta": meta})
        assert refused.code == -32602
        assert await count_tasks(server) == 0
