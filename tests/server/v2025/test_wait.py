"""Waiting for a result, as callers of 2025-11-25 do: many at once, in nobody's way, without a trace when they go."""

# pyright: reportUnusedFunction=false

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raincheck.server.sdk_compat import lowlevel_of
from raincheck.server.stream_limits import RESULT_LIMITS, StreamLimit
from raincheck.server.v2025.middleware import V2025Middleware
from raincheck.testing import FakeClock
from tests.support.server.caller_v2025 import calling, connected
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import QUICK, Shop
from tests.support.server.tools import add_gated, run_sql, text_of
from tests.support.server.transports_v2025 import g1_http, g1_serving
from tests.support.server.unavailable_store import Away
from tests.support.server.v2025.tools import (
    ON_ALL_G1_WIRES,
    ON_G1_WIRES,
    add_metered,
    add_saying,
    ended,
    refusal,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

LEASED = replace(QUICK, lease=86_400, progress_interval=0)
"""A lease that does not run out when a test moves the clock, and reports that don't wait for it to move."""


def watches_of(shop: Shop) -> dict[str, Any]:
    """The tasks that somebody is being kept up to date about."""
    (ours,) = [one for one in lowlevel_of(shop.mcp).middleware if isinstance(one, V2025Middleware)]
    return getattr(getattr(getattr(ours, "_notifier"), "_follower"), "_followed")  # noqa: B009 - it has no public name


@pytest.mark.requirement("g1-result-blocks")
@ON_ALL_G1_WIRES
async def test_a_result_is_waited_for_and_holds_up_nothing_else(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    add_saying(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        for _ in range(3):
            await caller.ping()
            assert (await caller.get(task_id))["status"] == "working"
        assert text_of(await caller.call("say", {"words": "meanwhile"})) == "meanwhile"
        assert text_of(await caller.result(await caller.start("say", {"words": "another"}))) == "another"
        assert not waiting.came.done()
        gate.open.set()
        assert text_of(await waiting.result()) == "through"


@pytest.mark.requirement("g1-result-blocks")
async def test_who_waits_is_answered_when_the_task_has_ended_and_not_before() -> None:
    """In particular not at a change that is no end."""
    shop = Shop()
    meter = add_metered(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("metered")
        waiting = await caller.wait(task_id)
        for done in range(3):
            await meter.show(done, 3, f"step {done}")
            await caller.ping()
            assert not waiting.came.done()
        meter.finish()
        await waiting.result()
        assert (await caller.get(task_id))["status"] == "completed"


@ON_G1_WIRES
async def test_all_who_wait_for_a_task_get_its_result(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, way) as caller, calling(shop, way) as other:
        task_id = await caller.start("gated")
        waiting = [await one.wait(task_id) for one in (caller, caller, other, other)]
        gate.open.set()
        results = [await call.result() for call in waiting]
        assert [text_of(one) for one in results] == ["through"] * 4
        assert watches_of(shop) == {}


async def test_a_thousand_may_wait_on_one_connection_for_one_task_which_is_read_once_for_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(monkeypatch)
    shop = Shop(clock=FakeClock(), settings=LEASED)
    meter = add_metered(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("metered")
        await meter.show(0)
        waiting = [await caller.begin("tasks/result", {"taskId": task_id}) for _ in range(1_000)]
        await caller.ping()
        before = len(asyncio.all_tasks())
        away.calls.clear()
        for done in range(1, 6):
            await meter.show(done)
            await caller.ping()
        assert 5 <= away.calls["view"] <= 12, "once for each change, and now and then once more"
        assert len(asyncio.all_tasks()) <= before, "nothing piles up"
        away.calls.clear()
        meter.finish()
        results = await asyncio.gather(*(call.result() for call in waiting))
        assert {text_of(one) for one in results} == {"measured"}
        assert away.calls["view"] <= 4
        assert watches_of(shop) == {}


async def test_many_may_wait_on_one_connection_each_for_a_task_of_its_own() -> None:
    shop = Shop(settings=replace(QUICK, concurrency=300))
    gate = add_gated(shop)
    async with calling(shop) as caller:
        calls = [await caller.begin("tools/call", {"name": "gated", "task": {}}) for _ in range(300)]
        ids = [(await call.result())["task"]["taskId"] for call in calls]
        waiting = [await caller.begin("tasks/result", {"taskId": task_id}) for task_id in ids]
        gate.open.set()
        results = await asyncio.gather(*(call.result() for call in waiting))
        assert len(results) == 300
        assert watches_of(shop) == {}


async def test_there_is_room_for_so_many_and_one_that_ends_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2025.methods.RESULT_LIMITS", replace(RESULT_LIMITS, per_owner=StreamLimit(2, 2))
    )
    shop = Shop()
    gate = add_gated(shop)
    add_saying(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        first, second = await caller.wait(task_id), await caller.wait(task_id)
        for _ in range(3):
            refused = await refusal(caller, "tasks/result", {"taskId": task_id})
            assert refused.code == -32010
            assert refused.data == {"limit": "streams", "most": 2}
        assert (await caller.get(task_id))["status"] == "working", "it can still be polled"
        await caller.give_up(first)
        await caller.ping()
        third = await caller.wait(task_id)
        gate.open.set()
        assert text_of(await second.result()) == text_of(await third.result()) == "through"
        assert text_of(await caller.result(task_id)) == "through"
        # What fails, or names nothing, takes up no room either.
        for _ in range(5):
            assert (await refusal(caller, "tasks/result", {"taskId": "unknown"})).code == -32602
        await caller.result(task_id)


async def test_strangers_share_their_room_and_leave_some_to_those_who_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms = replace(
        RESULT_LIMITS, total=StreamLimit(3, 3), for_unverified=StreamLimit(1, 1), per_owner=StreamLimit(2, 2)
    )
    monkeypatch.setattr("raincheck.server.v2025.methods.RESULT_LIMITS", rooms)
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop, "http") as stranger, calling(shop) as known:
        strange, own = await stranger.start("gated"), await known.start("gated")
        waiting = [await stranger.wait(strange)]
        assert (await refusal(stranger, "tasks/result", {"taskId": strange})).code == -32010
        waiting += [await known.wait(own), await known.wait(own)]
        assert (await refusal(known, "tasks/result", {"taskId": own})).code == -32010
        gate.open.set()
        assert [text_of(await call.result()) for call in waiting] == ["through"] * 3


@pytest.mark.requirement("g1-http-as-ever")
@pytest.mark.parametrize("way", ["http", "http-json", "http-stateless", "http-stateless-json"])
async def test_a_caller_whose_connection_breaks_may_come_back_on_another_and_holds_no_place_meanwhile(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2025.methods.RESULT_LIMITS", replace(RESULT_LIMITS, for_unverified=StreamLimit(1, 1))
    )
    clock = FakeClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop)
    async with calling(shop, way) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        await caller.http.drop(waiting.id)
        # Nobody tells the server, so it looks now and then.
        for _ in range(100):
            clock.advance(1)
            again = await caller.wait(task_id)
            if not again.came.done():
                break
        else:
            pytest.fail("its place was never given back")
        assert not gate.stopped.is_set(), "the work goes on"
        gate.open.set()
        assert text_of(await again.result()) == "through"
        assert not waiting.came.done()
        assert watches_of(shop) == {}


@pytest.mark.requirement("g1-http-as-ever")
async def test_where_the_server_keeps_what_it_sends_a_caller_comes_back_for_the_answer() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, settings=LEASED)
    gate = add_gated(shop)
    async with calling(shop, "http-events") as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        await caller.http.drop(waiting.id)
        for _ in range(3):
            clock.advance(60)
            await caller.ping()
        gate.open.set()
        await ended(shop, task_id, "http")
        caller.http.resume(waiting.id)
        assert text_of(await waiting.result()) == "through"


@ON_G1_WIRES
async def test_a_connection_that_closes_while_somebody_waits_on_it_leaves_nothing_behind(way: str) -> None:
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as stays:
        if way == "memory":
            async with calling(shop) as caller:
                task_id = await caller.start("gated")
                await gate.begun.wait()
                await stays.ping()
                before = _under_way()
                async with calling(shop) as leaves:
                    waiting = [await leaves.wait(task_id) for _ in range(5)]
                assert not any(call.came.done() and "result" in call.came.result() for call in waiting)
                await until(lambda: _under_way() <= before, stays)
        else:
            async with g1_serving(shop.mcp) as serving, g1_http(serving) as first, connected(first) as caller:
                task_id = await caller.start("gated")
                await gate.begun.wait()
                before = _under_way()
                async with g1_http(serving) as second, connected(second) as leaves:
                    waiting = [await leaves.wait(task_id) for _ in range(5)]
                    await second.end()
                await until(lambda: _under_way() <= before, stays)
                await until(lambda: len(watches_of(shop)) == 1, stays)
        assert not gate.stopped.is_set()
        gate.open.set()


def _under_way() -> int:
    """Jobs of this process that wait for a task, or push what happens to it."""
    names = ("G1Methods", "Pushing", "_Watch", "while_there", "until_gone")
    return sum(any(name in repr(job) for name in names) for job in asyncio.all_tasks())


async def test_a_store_that_is_away_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch)
    shop = Shop()
    gate = add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await gate.begun.wait()
        waiting = await caller.wait(task_id)
        away.be_away("view", 2)
        # Of an end that its body comes to here, nobody has to read.
        await shop.tasks.engine.cancel(task_id, reason="closing time")
        await away.missed.wait()
        with pytest.raises(Refused, match="-32000: Task cancelled: closing time"):
            await waiting.result()


async def test_who_waits_for_a_task_that_vanishes_is_told_that_there_is_none(tmp_path: Path) -> None:
    """An operator may delete what is in the store."""
    shop = Shop(tmp_path / "tasks.db", works=False, settings=replace(QUICK, poll_interval=0.05))
    add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        waiting = [await caller.wait(task_id) for _ in range(3)]
        await asyncio.to_thread(run_sql, tmp_path / "tasks.db", "DELETE FROM tasks")
        for call in waiting:
            assert (await call.came)["error"]["code"] == -32602
        await until(lambda: watches_of(shop) == {} and not _under_way(), caller)


async def test_who_asks_for_a_task_when_it_has_ended_does_not_wait() -> None:
    shop = Shop(clock=FakeClock())
    add_saying(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("say", {"words": "done"})
        await ended(shop, task_id)
        for _ in range(50):
            assert text_of(await caller.result(task_id)) == "done"
        assert watches_of(shop) == {}
