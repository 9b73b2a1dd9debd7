"""How long a caller of 2025-11-25 asks to have its task kept, and how long it is."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from raincheck import Limits, Retention
from raincheck.testing import FakeClock
from tests.support.server.caller_v2025 import calling
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated, text_of
from tests.support.server.v2025.tools import add_saying, count_tasks, ended, refusal, refused_call

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

WEEK = 7 * 86_400_000
DAY = 86_400_000
LEASED = replace(QUICK, lease=86_400)
"""A lease that does not run out when a test moves the clock."""


@pytest.mark.requirement("g1-ttl-told", "g1-ttl-bounded")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, None),
        ({"ttl": None}, None),
        ({"ttl": 1}, 1),
        ({"ttl": 60_000}, 60_000),
        ({"ttl": 60_000.0}, 60_000),
        ({"ttl": 2**31}, WEEK),
        ({"ttl": WEEK - 1}, WEEK - 1),
        ({"ttl": WEEK}, WEEK),
        ({"ttl": WEEK + 1}, WEEK),
        ({"ttl": 2**53}, WEEK),
        ({"ttl": 2**63}, WEEK),
        ({"ttl": 10**30}, WEEK),
        ({"ttl": 1e15}, WEEK),
        ({"ttl": 60_000, "other": "ignored"}, 60_000),
    ],
    ids=str,
)
async def test_a_ttl_is_what_was_asked_for_up_to_a_bound(asked: dict[str, Any], told: int | None) -> None:
    shop = Shop(works=False, clock=FakeClock())
    add_gated(shop)
    async with calling(shop) as caller:
        task = await caller.create("gated", task=asked)
        assert task["ttl"] == told
        assert "ttl" in task, "null is said, and not left out"
        assert (await caller.get(task["taskId"]))["ttl"] == told
        assert [one["ttl"] for one in (await caller.page())["tasks"]] == [told]
        assert (await caller.cancel(task["taskId"])).keys() >= {"ttl"}


@pytest.mark.requirement("g1-ttl-bounded")
async def test_the_bound_is_the_servers_own_to_set() -> None:
    shop = Shop(works=False, settings=replace(QUICK, limits=Limits(ttl=timedelta(seconds=90))))
    add_gated(shop)
    async with calling(shop) as caller:
        assert (await caller.create("gated", task={"ttl": DAY}))["ttl"] == 90_000
        assert (await caller.create("gated", task={"ttl": 89_999}))["ttl"] == 89_999


@pytest.mark.parametrize("ttl", [0, -1, -0.5, 1.5, "60000", "", True, False, [60_000], {}, 1e-9, -(10**30)], ids=repr)
async def test_a_ttl_that_is_no_time_is_refused_and_no_task_made(ttl: object) -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop) as caller:
        refused = await refused_call(caller, "gated", task={"ttl": ttl})
        assert refused.code == -32602
        assert "ttl is a whole number of milliseconds" in refused.message
        assert len(str(refused.message)) < 200
        assert await count_tasks(shop) == 0


async def test_over_http_a_ttl_is_read_in_the_same_way() -> None:
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop, "http") as caller:
        for ttl in (60_000, 60_000.0):
            assert (await caller.create("gated", task={"ttl": ttl}))["ttl"] == 60_000
        assert (await caller.create("gated", task={"ttl": 10**30}))["ttl"] == WEEK
        for ttl in (0, -1, 1.5, True, "60000"):
            assert "ttl is a whole number" in (await refused_call(caller, "gated", task={"ttl": ttl})).message


@pytest.mark.parametrize("task", [True, False, 0, 60_000, "", "soon", [], [{"ttl": 1}]], ids=repr)
async def test_what_asks_for_a_task_is_an_object_and_nothing_else(task: object) -> None:
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        refused = await refusal(caller, "tools/call", {"name": "say", "arguments": {}, "task": task})
        assert refused.code == -32602
        assert "params.task is an object" in refused.message
        assert await count_tasks(shop) == 0


@pytest.mark.requirement("g1-ttl-told")
async def test_a_task_that_works_longer_than_was_asked_for_is_kept_and_says_so() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop, retention=Retention(keep=timedelta(seconds=50)))
    async with calling(shop) as caller:
        task_id = await caller.start("gated", task={"ttl": 60_000})
        await gate.begun.wait()
        clock.advance(59.999)
        assert (await caller.get(task_id))["ttl"] == 60_000
        clock.advance(0.001)
        # What was asked for has passed. It is not known how long the work will take, so nothing is promised.
        for _ in range(2):
            task = await caller.get(task_id)
            assert (task["status"], task["ttl"]) == ("working", None)
            assert (await caller.page())["tasks"] == [task]
            clock.advance(30)
        gate.open.set()
        await ended(shop, task_id)
        # Kept from its end on for as long as its tool says: 120 s and 50 more.
        assert (await caller.get(task_id))["ttl"] == 170_000
        clock.advance(49)
        assert text_of(await caller.result(task_id)) == "through"
        clock.advance(1)
        assert (await refusal(caller, "tasks/get", {"taskId": task_id})).code == -32602


async def test_a_task_that_ends_early_is_kept_for_as_long_as_was_asked_for() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, settings=LEASED)
    add_saying(shop, retention=Retention(keep=timedelta(seconds=5)))
    async with calling(shop) as caller:
        task_id = await caller.start("say", {"words": "kept"}, task={"ttl": 60_000})
        await ended(shop, task_id)
        assert (await caller.get(task_id))["ttl"] == 60_000
        clock.advance(59.999)
        assert text_of(await caller.result(task_id)) == "kept"
        clock.advance(0.001)
        assert (await refusal(caller, "tasks/result", {"taskId": task_id})).code == -32602


async def test_a_short_ttl_does_not_cut_short_what_a_tool_keeps() -> None:
    """The server may keep a task for longer than it was asked to, and says how long."""
    clock = FakeClock()
    shop = Shop(clock=clock, settings=LEASED)
    add_saying(shop, retention=Retention(keep=timedelta(seconds=100)))
    async with calling(shop) as caller:
        task_id = await caller.start("say", {"words": "kept"}, task={"ttl": 1})
        await ended(shop, task_id)
        assert (await caller.get(task_id))["ttl"] == 100_000
        clock.advance(99)
        assert text_of(await caller.result(task_id)) == "kept"


async def test_a_tool_that_has_a_time_of_its_own_promises_it_whatever_was_asked_for() -> None:
    """Callers take creation and ttl for the end of all hope, so less than the work may take is never promised."""
    clock = FakeClock()
    shop = Shop(works=False, clock=clock)
    add_gated(shop, timeout=100, retention=Retention(keep=timedelta(seconds=50)))
    async with calling(shop) as caller:
        assert (await caller.create("gated"))["ttl"] == 150_000
        assert (await caller.create("gated", task={"ttl": 1_000}))["ttl"] == 150_000
        assert (await caller.create("gated", task={"ttl": 200_000}))["ttl"] == 200_000
