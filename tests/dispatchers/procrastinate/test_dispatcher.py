"""A job must not be lost while its task is in the queue, however its coming meets what else goes on in the process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import psycopg
import pytest

from raincheck import TaskContext, open_store
from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Limits
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Tool
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.engine.execution.runner import AttemptRunner
from raincheck.engine.submit import EngineDeps
from raincheck.engine.worker import dispatch
from raincheck.engine.worker.claimer import Claimer
from raincheck.engine.worker.slots import SlotDemand, SlotPool
from raincheck.errors import StoreUnavailable
from raincheck.stores.dispatcher import AttemptFuture, Dispatcher
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.dispatcher_contract.processes import eventually
from raincheck.testing.harness import NAMESPACE, TOOL

pytestmark = pytest.mark.anyio

ALONE = Tool("alone")


@dataclass
class ScriptedHands:
    """Hands with no room at first. What happens while they look is the test's to say."""

    meanwhile: Callable[[], None] = lambda: None
    free_tools: frozenset[Tool] = frozenset()
    takes: int = 0
    left: int = 0
    """How many more there are, for who has done one."""
    namespace: str = "default"
    concurrency: int = 2
    tools: frozenset[Tool] = frozenset({ALONE})
    told: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    async def claim_next(self, job_tool: Tool | None) -> AttemptFuture | None:
        assert job_tool == ALONE
        self.takes += 1
        had_room = ALONE in self.free_tools
        await asyncio.sleep(0)
        self.meanwhile()
        return _done() if had_room else None

    async def claim_following(self) -> AttemptFuture | None:
        self.left -= 1
        return _done() if self.left >= 0 else None

    def on_free_change(self, callback: Callable[[], None]) -> None:
        self.told.append(callback)

    def make_room(self) -> None:
        self.free_tools = self.tools
        for tell in self.told:
            tell()


def _done() -> AttemptFuture:
    running = asyncio.get_running_loop().create_future()
    running.set_result(None)
    return running


@pytest.fixture
async def dispatcher(database_url: str) -> AsyncIterator[Dispatcher]:
    """On a database in which one task is queued, with its job."""
    toolbox = Toolbox()

    @toolbox.tool
    async def alone() -> None: ...

    async with open_store(database_url) as store:
        await Engine(store, toolbox, works=False).submit("alone")
        assert store.capabilities.make_dispatcher is not None
        yield store.capabilities.make_dispatcher()


def count_jobs(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM raincheck.procrastinate_jobs").fetchone()
    assert row is not None
    return row[0]


def forget_jobs(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE raincheck.procrastinate_jobs CASCADE")


async def run(dispatcher: Dispatcher, hands: ScriptedHands, takes: int) -> None:
    """Have jobs brought until they were taken so often."""
    running = asyncio.create_task(dispatcher.run(hands))
    try:
        await eventually(lambda: hands.takes >= takes, f"the job came {takes} times")
        await asyncio.sleep(0.2)
    finally:
        dispatcher.stop()
        await running


async def test_a_job_that_there_is_no_room_for_goes_back(database_url: str, dispatcher: Dispatcher) -> None:
    hands = ScriptedHands()
    await run(dispatcher, hands, 1)
    assert await asyncio.to_thread(count_jobs, database_url) == 1


async def test_a_job_comes_again_if_there_was_no_room_when_it_came_and_is_a_moment_later(
    database_url: str, dispatcher: Dispatcher
) -> None:
    hands = ScriptedHands()
    hands.meanwhile = hands.make_room
    await run(dispatcher, hands, 2)
    assert await asyncio.to_thread(count_jobs, database_url) == 0


async def test_who_was_brought_one_goes_on_with_the_next_until_there_is_none(
    database_url: str, dispatcher: Dispatcher
) -> None:
    hands = ScriptedHands(free_tools=frozenset({ALONE}), left=3)
    await run(dispatcher, hands, 1)
    assert (hands.takes, hands.left) == (1, -1)
    assert await asyncio.to_thread(count_jobs, database_url) == 0


async def test_a_job_is_done_with_also_if_the_next_task_can_not_be_had(
    database_url: str, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(_: ScriptedHands) -> None:
        raise StoreUnavailable("a store", "it is away")

    monkeypatch.setattr(ScriptedHands, "claim_following", follow)
    await run(dispatcher, ScriptedHands(free_tools=frozenset({ALONE})), 1)
    assert await asyncio.to_thread(count_jobs, database_url) == 0


async def test_what_is_begun_without_a_job_takes_its_own_along(database_url: str) -> None:
    async with open_store(database_url) as store:
        scene = StoreHarness(store, FakeClock())
        first, second = await scene.create(), await scene.create()
        request = ClaimRequest(NAMESPACE, frozenset({TOOL}), "worker", timedelta(seconds=30), 1, withdraw_job=True)
        (begun,) = await store.claim(request, now=scene.clock.now())
        assert begun.id == first.id
        assert await asyncio.to_thread(count_jobs, database_url) == 1
        # Another, who was brought the job that is left, finds what it was for.
        (begun,) = await store.claim(replace(request, withdraw_job=False, job_tool=TOOL), now=scene.clock.now())
        assert begun.id == second.id
        assert await asyncio.to_thread(count_jobs, database_url) == 1


async def test_what_is_begun_where_it_is_created_has_no_job_and_what_has_to_wait_has_one(database_url: str) -> None:
    offer = ClaimRequest(NAMESPACE, frozenset({TOOL}), "creator", timedelta(seconds=30), 1)
    async with open_store(database_url) as store:
        scene = StoreHarness(store, FakeClock())
        assert (await scene.create(claim=offer)).phase is Phase.RUNNING
        assert await asyncio.to_thread(count_jobs, database_url) == 0
        await scene.create()
        assert (await scene.create(claim=offer)).phase is Phase.QUEUED
        assert await asyncio.to_thread(count_jobs, database_url) == 2


async def test_many_that_are_done_at_once_are_given_the_next_in_one_claim(database_url: str) -> None:
    toolbox = Toolbox()
    gates = [asyncio.Event() for _ in range(2)]
    began: asyncio.Queue[int] = asyncio.Queue()

    @toolbox.tool
    async def wave(number: int) -> None:
        began.put_nowait(number)
        await gates[number].wait()

    async with open_store(database_url) as store, Engine(store, toolbox, settings=Settings(concurrency=4)) as engine:
        tasks = [await engine.submit("wave", {"number": 0}) for _ in range(4)]
        tasks += [await engine.submit("wave", {"number": 1}) for _ in range(4)]
        assert [await began.get() for _ in range(4)] == [0, 0, 0, 0]
        gates[0].set()
        assert [await began.get() for _ in range(4)] == [1, 1, 1, 1]
        gates[1].set()
        for task in tasks:
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        await eventually(lambda: count_jobs(database_url) == 0, "no job is left")


async def test_two_jobs_that_come_at_once_do_not_count_on_the_same_place(database_url: str) -> None:
    toolbox = Toolbox()
    running: list[str] = []
    gate = asyncio.Event()

    @toolbox.tool(concurrency=1)
    async def narrow(task: TaskContext) -> None:
        running.append(task.id)
        await gate.wait()

    async with open_store(database_url) as store:
        for _ in range(2):
            await Engine(store, toolbox, works=False).submit("narrow")
        means = EngineDeps(store, SystemClock(), Limits())
        settings, room = Settings(), SlotDemand()
        places = SlotPool(toolbox, settings.concurrency, room)
        runner = AttemptRunner(means, toolbox, settings, room, lambda _: None)
        hands = Claimer(means, "default", "holder", toolbox, runner, settings, places, room)
        (tool,) = hands.tools
        begun = await asyncio.gather(hands.claim_next(tool), hands.claim_next(tool))
        gate.set()
        assert [job is not None for job in begun].count(True) == 1
        await asyncio.wait([job for job in begun if job is not None])
    assert len(running) == 1


async def test_what_waits_is_begun_in_the_place_of_one_that_no_job_had_brought(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "UNSERVED_SECONDS", 3_600.0)
    toolbox = Toolbox()
    gate = asyncio.Event()

    @toolbox.tool
    async def gated() -> None:
        await gate.wait()

    async with open_store(database_url) as store, Engine(store, toolbox, settings=Settings(concurrency=2)) as engine:
        begun = [await engine.submit("gated") for _ in range(2)]
        waiting = [await engine.submit("gated") for _ in range(4)]
        assert [task.phase for task in (*begun, *waiting)] == [Phase.RUNNING] * 2 + [Phase.QUEUED] * 4
        # No dispatcher delivers them any more, and the engine looks for such tasks once an hour.
        await asyncio.to_thread(forget_jobs, database_url)
        gate.set()
        async with asyncio.timeout(60):
            for task in (*begun, *waiting):
                assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED


async def test_what_may_run_at_once_after_a_pause_or_a_failure_waits_for_no_look(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks for what is due: it has a job, or none.
    monkeypatch.setattr(dispatch, "RECOVER_INTERVAL", 3_600.0)
    toolbox = Toolbox()

    @toolbox.tool(retry=RetryPolicy(first_wait=timedelta(0), jitter=0))
    async def stumbles(task: TaskContext) -> int:
        if task.attempt == 1:
            raise ConnectionError
        return task.attempt

    async with open_store(database_url) as store:
        asked = Engine(store, toolbox, works=False)
        # Before a worker runs, so that none starts the task before it is paused.
        paused = await asked.submit("stumbles")
        await asked.pause(paused.id)
        async with Engine(store, toolbox) as engine, asyncio.timeout(60):
            task = await engine.submit("stumbles")
            assert await engine.result(task.id) == 2
            await asked.resume(paused.id)
            assert (await engine.wait(paused.id)).task.is_terminal
