"""Claiming respects limits, priorities and fairness between owners, and an idle engine does nothing."""

import asyncio
from collections import Counter

import pytest

from raincheck._async import RETRY_DELAY
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.engine import Engine, Settings, TaskContext
from tests.support.engine.harness import EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

ALICE, BOB = (Owner.token("https://example.com", name) for name in ("alice", "bob"))


class Gauge:
    """How many bodies are in a place at once."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._full = asyncio.Event()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def pass_through(self, name: str) -> None:
        """Stay until it was full once."""
        for place in (name, "all"):
            self.now[place] += 1
            self.most[place] = max(self.most[place], self.now[place])
        if self.now["all"] >= self._room:
            self._full.set()
        await asyncio.wait_for(self._full.wait(), 20)
        await asyncio.sleep(0.005)
        for place in (name, "all"):
            self.now[place] -= 1


async def test_no_more_attempts_run_at_once_than_the_process_or_the_tool_allows(harness: EngineHarness) -> None:
    gauge = Gauge(4)

    @harness.toolbox.tool
    async def free() -> None:
        await gauge.pass_through("free")

    @harness.toolbox.tool(concurrency=2)
    async def narrow() -> None:
        await gauge.pass_through("narrow")

    async with harness.running(Settings(concurrency=4)) as engine:
        tasks = [await engine.submit(tool) for _ in range(10) for tool in ("free", "narrow")]
        for task in tasks:
            await engine.wait(task.id)
    assert gauge.most["all"] == 4
    assert gauge.most["narrow"] == 2


async def test_a_tool_with_its_own_limit_does_not_block_other_tools(harness: EngineHarness) -> None:
    may_end = asyncio.Event()

    @harness.toolbox.tool(concurrency=1, priority=100)
    async def slow() -> None:
        await may_end.wait()

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with harness.running(Settings(concurrency=2)) as engine:
        tasks = [await engine.submit("slow") for _ in range(20)]
        await harness.reach(tasks[0].id, Phase.RUNNING)
        assert await asyncio.wait_for(harness.result_of("quick"), 5) == "done"
        phases = Counter([(await engine.view(task.id)).task.phase for task in tasks])
        assert phases == {Phase.RUNNING: 1, Phase.QUEUED: 19}
        may_end.set()


async def test_tasks_with_higher_priority_run_first(harness: EngineHarness) -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    for name, priority in (("low", -5), ("normal", 0), ("high", 5)):
        harness.toolbox.tool(name=name, priority=priority)(note)

    async with harness.running(works=False) as engine:
        tasks = [await engine.submit(tool, {"name": tool}) for tool in ("low", "normal", "high") for _ in range(2)]
    async with harness.running(Settings(concurrency=1)) as engine:
        for task in tasks:
            await engine.wait(task.id)
    assert order == ["high", "high", "normal", "normal", "low", "low"]


async def test_an_owner_with_hundreds_of_tasks_does_not_block_another_owner(harness: EngineHarness) -> None:
    order: list[str] = []
    may_begin = asyncio.Event()

    @harness.toolbox.tool
    async def note(name: str) -> None:
        await may_begin.wait()
        order.append(name)

    async with harness.running(Settings(concurrency=1)) as engine:
        for _ in range(300):
            await engine.submit("note", {"name": "alice"}, owner=ALICE)
        one = await engine.submit("note", {"name": "bob"}, owner=BOB)
        may_begin.set()
        await engine.wait(one.id, owner=BOB)
        assert order.index("bob") <= 3


async def test_tasks_of_another_namespace_are_left_alone(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with Engine(harness.store, harness.toolbox, namespace="theirs", works=False) as theirs, harness.running():
        task = await theirs.submit("quick")
        assert await harness.result_of("quick") == "done"
        assert (await theirs.view(task.id)).task.phase is Phase.QUEUED


async def test_an_engine_without_tools_takes_nothing(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with harness.running(works=False) as engine:
        task = await engine.submit("quick")
    async with Engine(harness.store, type(harness.toolbox)()) as empty:
        await asyncio.sleep(0.1)
        assert (await empty.view(task.id)).task.phase is Phase.QUEUED


async def test_an_idle_engine_writes_nothing_and_rarely_polls(harness: EngineHarness) -> None:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.elicit("now?", {"type": "object"})

    async with harness.running(Settings(park_after=0.01)) as engine:
        assert await harness.result_of("quick") == "done"
        asking = await engine.submit("ask")
        await harness.reach(asking.id, Phase.PARKED)
        await asyncio.sleep(0.1)
        observed.calls.clear()
        await asyncio.sleep(0.5)
        assert observed.writes == 0
        assert sum(observed.calls.values()) <= 5, observed.calls


async def test_an_engine_whose_tasks_all_wait_does_not_spin(harness: EngineHarness) -> None:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> None:
        await task.elicit("now?", {"type": "object"})

    async with harness.running(Settings(park_after=600)) as engine:
        tasks = [await engine.submit("ask") for _ in range(5)]
        for task in tasks:
            await engine.wait(task.id, until=lambda task: task.open_inputs == 1)
        await asyncio.sleep(0.1)
        observed.calls.clear()
        await asyncio.sleep(0.5)
        assert observed.writes == 0
        assert sum(observed.calls.values()) <= 5, observed.calls


async def test_work_without_a_notification_is_found_by_polling(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool
    async def nap(task: TaskContext) -> int:
        await task.sleep(100)
        return task.attempt

    # The feed has hints about changes. Due times cause no hint.
    async with harness.running(Settings(park_after=0, poll_interval=1_000), clock=clock) as engine:
        task = await engine.submit("nap")
        await harness.reach(task.id, Phase.PARKED)
        await asyncio.sleep(0.05)
        clock.advance(100)
        assert (await asyncio.wait_for(engine.wait(task.id), 20)).outcome == b"2"


async def test_a_task_that_was_queued_for_long_runs_with_its_arguments(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool
    async def echo(word: str = "nothing") -> str:
        return word

    async with harness.running(works=False, clock=clock) as engine:
        task = await engine.submit("echo", {"word": "kept"})
    clock.advance(90 * 86_400)
    async with harness.running(clock=clock) as engine:
        assert await engine.result(task.id) == "kept"


async def test_a_queued_task_is_claimed_although_the_clock_was_set_back(harness: EngineHarness) -> None:
    clock = make_clock()

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with harness.running(works=False, clock=clock) as engine:
        task = await engine.submit("quick")
    clock.advance(-3_600)
    async with harness.running(clock=clock) as engine:
        async with asyncio.timeout(20):
            while not (await engine.view(task.id)).task.is_terminal:
                clock.advance(1)
                await asyncio.sleep(0.01)
        assert (await engine.wait(task.id)).outcome == b'"done"'


async def test_claiming_resumes_after_the_store_was_unavailable(harness: EngineHarness) -> None:
    clock, observed = make_clock(), ObservedStore(harness.store)
    harness.store = observed.as_store

    @harness.toolbox.tool
    async def quick() -> str:
        return "done"

    async with harness.running(clock=clock) as engine:
        observed.fail("next_due", "claim", "list_overdue", times=3)
        task = await harness.submit_elsewhere("quick")
        async with asyncio.timeout(20):
            while not (await engine.view(task.id)).task.is_terminal:
                clock.advance(RETRY_DELAY)
                await asyncio.sleep(0.01)
        assert (await engine.wait(task.id)).outcome == b'"done"'
        assert observed.calls["next_due"] > 3


async def test_a_waiting_task_keeps_its_slot_if_no_other_task_could_use_it(harness: EngineHarness) -> None:
    may_end = asyncio.Event()

    @harness.toolbox.tool(concurrency=1)
    async def slow() -> None:
        await may_end.wait()

    @harness.toolbox.tool
    async def quick() -> None: ...

    @harness.toolbox.tool
    async def ask(task: TaskContext) -> int:
        await task.elicit("now?", {"type": "object"})
        return task.attempt

    async with harness.running(Settings(park_after=600)) as engine:
        asking = await engine.submit("ask")
        await engine.wait(asking.id, until=lambda task: task.open_inputs == 1)
        first, second = await engine.submit("slow"), await engine.submit("slow")
        await harness.reach(first.id, Phase.RUNNING)
        await harness.result_of("quick")  # so that the worker has looked at the whole queue
        assert (await engine.view(second.id)).task.phase is Phase.QUEUED
        await engine.answer(asking.id, {"elicit-0": {"action": "accept", "content": {}}})
        assert (await engine.wait(asking.id)).outcome == b"1", "it was not parked"
        may_end.set()


async def test_tools_with_their_own_limits_take_turns_with_other_tools(harness: EngineHarness) -> None:
    order: list[str] = []

    @harness.toolbox.tool(concurrency=1)
    async def bound() -> None:
        order.append("bound")

    @harness.toolbox.tool
    async def free() -> None:
        order.append("free")

    async with harness.running(Settings(concurrency=1), works=False) as engine:
        tasks = [await engine.submit(name) for _ in range(10) for name in ("bound", "free")]
    async with harness.running(Settings(concurrency=1)) as engine:
        for task in tasks:
            await engine.wait(task.id)
    assert order == ["bound", "free"] * 10


async def test_a_tool_with_a_limit_and_a_priority_runs_first_up_to_its_limit(harness: EngineHarness) -> None:
    order: list[str] = []

    @harness.toolbox.tool(concurrency=2, priority=10)
    async def urgent() -> None:
        order.append("urgent")

    @harness.toolbox.tool
    async def free() -> None:
        order.append("free")

    async with harness.running(Settings(concurrency=4), works=False) as engine:
        tasks = [await engine.submit(name) for name in ("free", "urgent") for _ in range(20)]
    async with harness.running(Settings(concurrency=2)) as engine:
        for task in tasks:
            await engine.wait(task.id)
    # Two begin at a time, and the last urgent one and the first free one are such a pair: they may begin in any order.
    assert order[:19] + sorted(order[19:21], reverse=True) + order[21:] == ["urgent"] * 20 + ["free"] * 20
