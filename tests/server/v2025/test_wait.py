"""Waiting for results in 2025-11-25: many concurrent waits, which block no other request and leave nothing behind."""

# pyright: reportUnusedFunction=false

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raincheck.server.limits import RESULT_LIMITS, StreamLimit
from raincheck.server.middleware import TaskMiddleware
from raincheck.server.sdk_compat import lowlevel_of
from raincheck.testing import FakeClock
from tests.support.server.caller_v2025 import connected, v2025_caller
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, run_sql, text_of
from tests.support.server.transports_v2025 import v2025_http, v2025_serving
from tests.support.server.unavailable_store import UnavailableStore
from tests.support.server.v2025.tools import (
    ON_ALL_V2025_TRANSPORTS,
    ON_V2025_TRANSPORTS,
    add_echo,
    add_metered,
    ended,
    refusal,
    until,
)

pytestmark = pytest.mark.anyio

LEASED = replace(QUICK, lease=86_400, progress_interval=0)
"""A lease that does not run out when a test moves the clock, and reports that don't wait for it to move."""


def followers_of(server: ExampleServer) -> dict[str, Any]:
    """The tasks that have a follower."""
    (middleware,) = [one for one in lowlevel_of(server.mcp).middleware if isinstance(one, TaskMiddleware)]
    return getattr(middleware.notifier.follower, "_followed")  # noqa: B009 - it has no public name


@pytest.mark.requirement("v2025-result-blocks")
@ON_ALL_V2025_TRANSPORTS
async def test_waiting_for_a_result_blocks_no_other_request(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    add_echo(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        waiting = await caller.wait(task_id)
        for _ in range(3):
            await caller.ping()
            assert (await caller.get(task_id))["status"] == "working"
        assert text_of(await caller.call("say", {"words": "meanwhile"})) == "meanwhile"
        assert text_of(await caller.result(await caller.start("say", {"words": "another"}))) == "another"
        assert not waiting.received.done()
        gate.open.set()
        assert text_of(await waiting.result()) == "through"


@pytest.mark.requirement("v2025-result-blocks")
async def test_a_waiting_caller_is_answered_when_the_task_has_ended_and_not_before() -> None:
    """In particular not at a change that is no end."""
    server = ExampleServer()
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("metered")
        waiting = await caller.wait(task_id)
        for done in range(3):
            await meter.show(done, 3, f"step {done}")
            await caller.ping()
            assert not waiting.received.done()
        meter.finish()
        await waiting.result()
        assert (await caller.get(task_id))["status"] == "completed"


@ON_V2025_TRANSPORTS
async def test_all_callers_that_wait_for_a_task_get_its_result(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server, way) as caller, v2025_caller(server, way) as other:
        task_id = await caller.start("gated")
        waiting = [await one.wait(task_id) for one in (caller, caller, other, other)]
        gate.open.set()
        results = [await call.result() for call in waiting]
        assert [text_of(one) for one in results] == ["through"] * 4
        assert followers_of(server) == {}


async def test_a_thousand_waits_on_one_connection_for_one_task_read_it_once_per_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = UnavailableStore(monkeypatch)
    server = ExampleServer(clock=FakeClock(), settings=LEASED)
    meter = add_metered(server)
    async with v2025_caller(server) as caller:
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
        assert followers_of(server) == {}


async def test_many_requests_on_one_connection_can_wait_each_for_its_own_task() -> None:
    server = ExampleServer(settings=replace(QUICK, concurrency=300))
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        calls = [await caller.begin("tools/call", {"name": "gated", "task": {}}) for _ in range(300)]
        ids = [(await call.result())["task"]["taskId"] for call in calls]
        waiting = [await caller.begin("tasks/result", {"taskId": task_id}) for task_id in ids]
        gate.open.set()
        results = await asyncio.gather(*(call.result() for call in waiting))
        assert len(results) == 300
        assert followers_of(server) == {}


async def test_the_number_of_waits_is_limited_and_a_finished_wait_frees_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2025.methods.RESULT_LIMITS", replace(RESULT_LIMITS, per_owner=StreamLimit(2, 2))
    )
    server = ExampleServer()
    gate = add_gated(server)
    add_echo(server)
    async with v2025_caller(server) as caller:
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
        # Requests that fail, or name no task, take no slot either.
        for _ in range(5):
            assert (await refusal(caller, "tasks/result", {"taskId": "unknown"})).code == -32602
        await caller.result(task_id)


async def test_anonymous_callers_share_their_slots_and_leave_some_to_identified_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms = replace(
        RESULT_LIMITS, total=StreamLimit(3, 3), for_unverified=StreamLimit(1, 1), per_owner=StreamLimit(2, 2)
    )
    monkeypatch.setattr("raincheck.server.v2025.methods.RESULT_LIMITS", rooms)
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server, "http") as stranger, v2025_caller(server) as known:
        strange, own = await stranger.start("gated"), await known.start("gated")
        waiting = [await stranger.wait(strange)]
        assert (await refusal(stranger, "tasks/result", {"taskId": strange})).code == -32010
        waiting += [await known.wait(own), await known.wait(own)]
        assert (await refusal(known, "tasks/result", {"taskId": own})).code == -32010
        gate.open.set()
        assert [text_of(await call.result()) for call in waiting] == ["through"] * 3


@pytest.mark.requirement("v2025-http-as-ever")
@pytest.mark.parametrize("way", ["http", "http-json", "http-stateless", "http-stateless-json"])
async def test_a_caller_whose_connection_breaks_can_wait_on_another_and_holds_no_slot_meanwhile(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "raincheck.server.v2025.methods.RESULT_LIMITS", replace(RESULT_LIMITS, for_unverified=StreamLimit(1, 1))
    )
    clock = FakeClock()
    server = ExampleServer(clock=clock, settings=LEASED)
    gate = add_gated(server)
    async with v2025_caller(server, way) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        waiting = await caller.wait(task_id)
        await caller.http.drop(waiting.id)
        # The server is not notified, so it checks regularly.
        while True:
            clock.advance(1)
            again = await caller.wait(task_id)
            if not again.received.done():
                break
        assert not gate.stopped.is_set(), "the work goes on"
        gate.open.set()
        assert text_of(await again.result()) == "through"
        assert not waiting.received.done()
        assert followers_of(server) == {}


@pytest.mark.requirement("v2025-http-as-ever")
async def test_with_an_event_store_a_caller_resumes_its_stream_and_gets_the_answer() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock, settings=LEASED)
    gate = add_gated(server)
    async with v2025_caller(server, "http-events") as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        waiting = await caller.wait(task_id)
        await caller.http.drop(waiting.id)
        for _ in range(3):
            clock.advance(60)
            await caller.ping()
        gate.open.set()
        await ended(server, task_id, "http")
        caller.http.resume(waiting.id)
        assert text_of(await waiting.result()) == "through"


@ON_V2025_TRANSPORTS
async def test_a_connection_that_closes_during_a_wait_leaves_no_resources_behind(way: str) -> None:
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server) as stays:
        if way == "memory":
            async with v2025_caller(server) as caller:
                task_id = await caller.start("gated")
                await gate.started.wait()
                await stays.ping()
                before = background_task_count()
                async with v2025_caller(server) as leaves:
                    waiting = [await leaves.wait(task_id) for _ in range(5)]
                assert not any(call.received.done() and "result" in call.received.result() for call in waiting)
                await until(lambda: background_task_count() <= before, stays)
        else:
            async with v2025_serving(server.mcp) as serving, v2025_http(serving) as first, connected(first) as caller:
                task_id = await caller.start("gated")
                await gate.started.wait()
                before = background_task_count()
                async with v2025_http(serving) as second, connected(second) as leaves:
                    waiting = [await leaves.wait(task_id) for _ in range(5)]
                    await until(lambda: background_task_count() > before, stays)
                    await second.end()
                await until(lambda: background_task_count() <= before, stays)
                await until(lambda: len(followers_of(server)) == 1, stays)
        assert not gate.stopped.is_set()
        gate.open.set()


def background_task_count() -> int:
    """Background tasks of this process that wait for a task, or push its changes."""
    names = (
        "V2025Methods",
        "ElicitationBroker",
        "StatusNotifier",
        "_FollowedTask",
        "until_disconnected",
        "while_connected",
    )
    return sum(any(name in repr(task) for name in names) for task in asyncio.all_tasks())


async def test_a_store_that_is_away_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = UnavailableStore(monkeypatch)
    server = ExampleServer()
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await gate.started.wait()
        waiting = await caller.wait(task_id)
        away.fail_next("view", 2)
        # The end of a body in this process is known without reading the store.
        await server.tasks.engine.cancel(task_id, reason="closing time")
        await away.missed.wait()
        with pytest.raises(Refused, match="-32000: Task cancelled: closing time"):
            await waiting.result()


async def test_a_caller_that_waits_for_a_task_that_is_deleted_gets_an_unknown_task_error(tmp_path: Path) -> None:
    """An operator may delete tasks from the store."""
    server = ExampleServer(tmp_path / "tasks.db", works=False, settings=replace(QUICK, poll_interval=0.05))
    add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        waiting = [await caller.wait(task_id) for _ in range(3)]
        await asyncio.to_thread(run_sql, tmp_path / "tasks.db", "DELETE FROM tasks")
        for call in waiting:
            assert (await call.received)["error"]["code"] == -32602
        await until(lambda: followers_of(server) == {} and not background_task_count(), caller)


async def test_requesting_the_result_of_an_ended_task_does_not_wait() -> None:
    server = ExampleServer(clock=FakeClock())
    add_echo(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say", {"words": "done"})
        await ended(server, task_id)
        for _ in range(50):
            assert text_of(await caller.result(task_id)) == "done"
        assert followers_of(server) == {}
