"""Following many tasks at once: each change of each is seen, and nothing is read that did not change."""

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
from tests.support.engine.harness import QUICK, Bench
from tests.support.engine.hinting_store import NamesNobody
from tests.support.engine.observed_store import Watched, a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

SELDOM = replace(QUICK, poll_interval=1_000.0)
"""It looks at nothing that nobody told of."""


def add_gates(bench: Bench) -> dict[str, asyncio.Event]:
    """A tool whose tasks each wait for a gate of their own."""
    gates = {name: asyncio.Event() for name in "abc"}

    @bench.toolbox.tool()
    async def gated(name: str) -> str:
        await gates[name].wait()
        return name

    return gates


async def test_many_tasks_are_followed_until_all_have_ended(bench: Bench) -> None:
    gates = add_gates(bench)
    async with bench.working() as engine:
        ids = {name: (await engine.submit("gated", {"name": name})).id for name in gates}
        seen: dict[str, list[Phase]] = {task_id: [] for task_id in ids.values()}
        async with aclosing(engine.follow_all(ids.values())) as views:
            async for view in views:
                seen[view.task.id].append(view.task.phase)
                if all(seen.values()):
                    for gate in gates.values():
                        gate.set()
    assert {phases[-1] for phases in seen.values()} == {Phase.COMPLETED}


async def test_what_is_not_there_is_left_out(bench: Bench) -> None:
    gates = add_gates(bench)
    gates["a"].set()
    async with bench.working() as engine:
        task = await engine.submit("gated", {"name": "a"})
        seen = [view async for view in engine.follow_all(["unknown", task.id, "another"])]
        assert {view.task.id for view in seen} == {task.id}
        assert seen[-1].task.is_terminal
        assert [view async for view in engine.follow_all(["unknown"])] == []
        assert [view async for view in engine.follow_all([])] == []


async def test_one_that_is_not_there_is_told_of(bench: Bench) -> None:
    async with bench.working() as engine:
        with pytest.raises(TaskNotFound):
            await anext(engine.follow("unknown"))


async def test_a_change_of_one_task_makes_nobody_read_the_others() -> None:
    memory = MemoryStore()
    await memory.open()
    bench, store = Bench(memory), Watched(memory)
    gates = add_gates(bench)
    async with Engine(store.as_store, bench.toolbox, settings=SELDOM) as engine:
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
            assert store.calls["view"] == before, "its end was told, and the others were not touched"
            for gate in gates.values():
                gate.set()
    await memory.close()


async def test_what_was_looked_at_again_and_has_not_changed_is_not_told_again(bench: Bench) -> None:
    gates = add_gates(bench)
    watched = Watched(cast("Store", NamesNobody(bench.store)))
    bench.store = watched.as_store
    async with bench.working(SELDOM) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"name": "a"})
        async with aclosing(engine.follow(task.id)) as views, aclosing(engine.follow(task.id, last_seen=task)) as later:
            assert (await anext(views)).task.phase is Phase.RUNNING
            following = [asyncio.ensure_future(anext(views)), asyncio.ensure_future(anext(later))]
            for name in "bc":
                await asyncio.gather(watched.done("view"), engine.submit("gated", {"name": name}))
            gates["a"].set()
            told = await asyncio.gather(*following)
        assert [view.task.phase for view in told] == [Phase.COMPLETED] * 2
        for gate in gates.values():
            gate.set()


async def test_whoever_follows_is_told_that_the_engine_has_stopped_though_the_store_is_away(bench: Bench) -> None:
    gates, clock, watched = add_gates(bench), a_clock(), Watched(bench.store)
    bench.store = watched.as_store
    async with bench.working(SELDOM, clock=clock) as engine, asyncio.timeout(10):
        task = await engine.submit("gated", {"name": "a"})
        watched.fail("view", times=1_000)
        following = asyncio.ensure_future(anext(engine.follow(task.id)))
        await watched.asked("view")
        gates["a"].set()
        await engine.stop()
        clock.advance(60)
        with pytest.raises(StoreUnavailable, match="it has stopped"):
            await following


async def test_many_are_followed_through_a_time_when_the_store_is_away(bench: Bench) -> None:
    gates = add_gates(bench)
    for gate in gates.values():
        gate.set()
    store = Watched(bench.store)
    async with Engine(store.as_store, bench.toolbox, settings=QUICK) as engine:
        ids = [(await engine.submit("gated", {"name": name})).id for name in gates]
        store.fail("view", times=2)
        seen = [view async for view in engine.follow_all(ids)]
        assert {view.task.id for view in seen if view.task.is_terminal} == set(ids)


async def test_whoever_follows_when_the_engine_does_not_run_is_told_so(bench: Bench) -> None:
    add_gates(bench)
    engine = Engine(bench.store, bench.toolbox, settings=QUICK)
    task = await engine.submit("gated", {"name": "a"})
    with pytest.raises(ConfigurationError, match="does not run"):
        await anext(engine.follow_all([task.id]))


async def test_a_deadline_is_the_shorter_of_the_tools_and_the_submitters(bench: Bench) -> None:
    @bench.toolbox.tool(timeout=60.0)
    async def bounded(task: TaskContext) -> None: ...

    @bench.toolbox.tool()
    async def unbounded() -> None: ...

    clock = a_clock()
    async with Engine(bench.store, bench.toolbox, settings=QUICK, clock=clock, works=False) as engine:

        async def allowed(tool: str, seconds: float | None) -> timedelta | None:
            asked = None if seconds is None else timedelta(seconds=seconds)
            deadline = (await engine.submit(tool, timeout=asked)).deadline_at
            return None if deadline is None else deadline - clock.now()

        assert await allowed("bounded", 30) == timedelta(seconds=30)
        assert await allowed("bounded", 90) == timedelta(seconds=60)
        assert await allowed("bounded", None) == timedelta(seconds=60)
        assert await allowed("unbounded", 30) == timedelta(seconds=30)
        assert await allowed("unbounded", None) is None
