"""Following many tasks yields every change, and reads only tasks that may have changed."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.records import View
from raincheck.engine import Engine, TaskContext
from raincheck.errors import ConfigurationError, StoreUnavailable, TaskNotFound
from raincheck.stores.base import Store
from raincheck.stores.memory import MemoryStore
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.hinting_store import AnonymousHintStore
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

SELDOM = replace(QUICK, poll_interval=1_000.0)
"""Polls rarely, so that changes are only seen by notifications."""


def add_gates(harness: EngineHarness) -> dict[str, asyncio.Event]:
    """Add a tool whose tasks each wait for a separate gate."""
    gates = {name: asyncio.Event() for name in "abc"}

    @harness.toolbox.tool()
    async def gated(name: str) -> str:
        await gates[name].wait()
        return name

    return gates


async def test_many_tasks_are_followed_until_all_have_ended(harness: EngineHarness) -> None:
    gates = add_gates(harness)
    async with harness.running() as engine:
        ids = {name: (await engine.submit("gated", {"name": name})).id for name in gates}
        seen: dict[str, list[Phase]] = {task_id: [] for task_id in ids.values()}
        async with aclosing(engine.follow_all(ids.values())) as views:
            async for view in views:
                seen[view.task.id].append(view.task.phase)
                if all(seen.values()):
                    for gate in gates.values():
                        gate.set()
    assert {phases[-1] for phases in seen.values()} == {Phase.COMPLETED}


async def test_following_many_skips_tasks_that_do_not_exist(harness: EngineHarness) -> None:
    gates = add_gates(harness)
    gates["a"].set()
    async with harness.running() as engine:
        task = await engine.submit("gated", {"name": "a"})
        seen = [view async for view in engine.follow_all(["unknown", task.id, "another"])]
        assert {view.task.id for view in seen} == {task.id}
        assert seen[-1].task.is_terminal
        assert [view async for view in engine.follow_all(["unknown"])] == []
        assert [view async for view in engine.follow_all([])] == []


async def test_following_a_task_that_does_not_exist_raises_not_found(harness: EngineHarness) -> None:
    async with harness.running() as engine:
        with pytest.raises(TaskNotFound):
            await anext(engine.follow("unknown"))


async def test_a_change_of_one_task_causes_no_reads_of_others() -> None:
    memory = MemoryStore()
    await memory.open()
    harness, store = EngineHarness(memory), ObservedStore(memory)
    gates = add_gates(harness)
    async with Engine(store.as_store, harness.toolbox, settings=SELDOM) as engine:
        ids = [(await engine.submit("gated", {"name": name})).id for name in gates]
        last: dict[str, View] = {}
        async with aclosing(engine.follow_all(ids)) as views:
            async for view in views:
                last[view.task.id] = view
                if len(last) == 3 and {one.task.phase for one in last.values()} == {Phase.RUNNING}:
                    break
            before = store.calls["view"]
            gates["a"].set()
            assert (await anext(views)).task.id == ids[0]
            assert store.calls["view"] == before, "the end was reported, and the other tasks were not read"
            for gate in gates.values():
                gate.set()
    await memory.close()


async def test_an_unchanged_task_that_was_read_again_is_not_yielded_again(harness: EngineHarness) -> None:
    gates = add_gates(harness)
    observed = ObservedStore(cast("Store", AnonymousHintStore(harness.store)))
    harness.store = observed.as_store
    async with harness.running(SELDOM) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"name": "a"})
        async with aclosing(engine.follow(task.id)) as views, aclosing(engine.follow(task.id, last_seen=task)) as later:
            assert (await anext(views)).task.phase is Phase.RUNNING
            following = [asyncio.ensure_future(anext(views)), asyncio.ensure_future(anext(later))]
            for name in "bc":
                await asyncio.gather(observed.wait_done("view"), engine.submit("gated", {"name": name}))
            gates["a"].set()
            ends = await asyncio.gather(*following)
        assert [view.task.phase for view in ends] == [Phase.COMPLETED] * 2
        for gate in gates.values():
            gate.set()


async def test_followers_are_notified_of_the_stop_although_the_store_is_unavailable(
    harness: EngineHarness,
) -> None:
    gates, clock, observed = add_gates(harness), make_clock(), ObservedStore(harness.store)
    harness.store = observed.as_store
    async with harness.running(SELDOM, clock=clock) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"name": "a"})
        observed.fail("view", times=1_000)
        following = asyncio.ensure_future(anext(engine.follow(task.id)))
        await observed.wait_called("view")
        gates["a"].set()
        await engine.stop()
        clock.advance(60)
        with pytest.raises(StoreUnavailable, match="it has stopped"):
            await following


async def test_following_many_continues_after_the_store_was_unavailable(harness: EngineHarness) -> None:
    gates = add_gates(harness)
    for gate in gates.values():
        gate.set()
    store = ObservedStore(harness.store)
    async with Engine(store.as_store, harness.toolbox, settings=QUICK) as engine:
        ids = [(await engine.submit("gated", {"name": name})).id for name in gates]
        store.fail("view", times=2)
        seen = [view async for view in engine.follow_all(ids)]
        assert {view.task.id for view in seen if view.task.is_terminal} == set(ids)


async def test_following_on_an_engine_that_is_not_running_is_rejected(harness: EngineHarness) -> None:
    add_gates(harness)
    engine = Engine(harness.store, harness.toolbox, settings=QUICK)
    task = await engine.submit("gated", {"name": "a"})
    with pytest.raises(ConfigurationError, match="is not running"):
        await anext(engine.follow_all([task.id]))


async def test_a_deadline_is_the_earlier_of_the_tools_and_the_submitters(harness: EngineHarness) -> None:
    @harness.toolbox.tool(timeout=60.0)
    async def bounded(task: TaskContext) -> None: ...

    @harness.toolbox.tool()
    async def unbounded() -> None: ...

    clock = make_clock()
    async with Engine(harness.store, harness.toolbox, settings=QUICK, clock=clock, works=False) as engine:

        async def allowed(tool: str, seconds: float | None) -> timedelta | None:
            asked = None if seconds is None else timedelta(seconds=seconds)
            deadline = (await engine.submit(tool, timeout=asked)).deadline_at
            return None if deadline is None else deadline - clock.now()

        assert await allowed("bounded", 30) == timedelta(seconds=30)
        assert await allowed("bounded", 90) == timedelta(seconds=60)
        assert await allowed("bounded", None) == timedelta(seconds=60)
        assert await allowed("unbounded", 30) == timedelta(seconds=30)
        assert await allowed("unbounded", None) is None
