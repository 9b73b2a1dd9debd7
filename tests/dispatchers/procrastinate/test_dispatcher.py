"""A job is not lost while its task is queued, whatever else happens in the process at that time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import psycopg
import pytest

from raincheck import TaskContext, open_store
from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import RetryPolicy
from raincheck.core.records import Tool
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.engine.execution.attempt import AttemptRunner
from raincheck.engine.tool import EngineDeps
from raincheck.engine.worker import dispatch
from raincheck.engine.worker.dispatch import Claimer
from raincheck.engine.worker.slots import SlotPool
from raincheck.errors import StoreUnavailable
from raincheck.stores.dispatcher import AttemptFuture, Dispatcher
from raincheck.stores.requests import ClaimRequest
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.dispatcher_contract.processes import eventually
from raincheck.testing.harness import NAMESPACE, TOOL

pytestmark = pytest.mark.anyio

ALONE = Tool("alone")


@dataclass
class ScriptedConsumer:
    """A consumer without a free slot at first. The test sets what happens during its claims."""

    meanwhile: Callable[[], None] = lambda: None
    free_tools: frozenset[Tool] = frozenset()
    claims: int = 0
    left: int = 0
    """The number of following tasks."""
    namespace: str = "default"
    concurrency: int = 2
    tools: frozenset[Tool] = frozenset({ALONE})
    callbacks: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    async def claim_next(self, job_tool: Tool | None) -> AttemptFuture | None:
        assert job_tool == ALONE
        self.claims += 1
        had_slot = ALONE in self.free_tools
        await asyncio.sleep(0)
        self.meanwhile()
        return _done() if had_slot else None

    async def claim_following(self) -> AttemptFuture | None:
        self.left -= 1
        return _done() if self.left >= 0 else None

    def on_free_change(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def free_slot(self) -> None:
        self.free_tools = self.tools
        for callback in self.callbacks:
            callback()


def _done() -> AttemptFuture:
    running = asyncio.get_running_loop().create_future()
    running.set_result(None)
    return running


@pytest.fixture
async def dispatcher(database_url: str) -> AsyncIterator[Dispatcher]:
    """A dispatcher on a database in which one task is queued, with its job."""
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


def delete_jobs(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE raincheck.procrastinate_jobs CASCADE")


async def run(dispatcher: Dispatcher, consumer: ScriptedConsumer, claims: int) -> None:
    """Run the dispatcher until the consumer has claimed this often."""
    running = asyncio.create_task(dispatcher.run(consumer))
    try:
        await eventually(lambda: consumer.claims >= claims, f"the job was delivered {claims} times")
        await asyncio.sleep(0.2)
    finally:
        dispatcher.stop()
        await running


async def test_a_job_without_a_free_slot_is_requeued(database_url: str, dispatcher: Dispatcher) -> None:
    consumer = ScriptedConsumer()
    await run(dispatcher, consumer, 1)
    assert await asyncio.to_thread(count_jobs, database_url) == 1


async def test_a_job_is_redelivered_if_a_slot_becomes_free_just_after_its_claim_failed(
    database_url: str, dispatcher: Dispatcher
) -> None:
    consumer = ScriptedConsumer()
    consumer.meanwhile = consumer.free_slot
    await run(dispatcher, consumer, 2)
    assert await asyncio.to_thread(count_jobs, database_url) == 0


async def test_after_a_job_the_consumer_continues_with_following_tasks_until_none_is_left(
    database_url: str, dispatcher: Dispatcher
) -> None:
    consumer = ScriptedConsumer(free_tools=frozenset({ALONE}), left=3)
    await run(dispatcher, consumer, 1)
    assert (consumer.claims, consumer.left) == (1, -1)
    assert await asyncio.to_thread(count_jobs, database_url) == 0


async def test_a_job_is_finished_even_if_the_following_claim_fails(
    database_url: str, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(_: ScriptedConsumer) -> None:
        raise StoreUnavailable("a store", "it is unavailable")

    monkeypatch.setattr(ScriptedConsumer, "claim_following", follow)
    await run(dispatcher, ScriptedConsumer(free_tools=frozenset({ALONE})), 1)
    assert await asyncio.to_thread(count_jobs, database_url) == 0


async def test_a_task_started_without_a_job_withdraws_its_own_job(database_url: str) -> None:
    async with open_store(database_url) as store:
        harness = StoreHarness(store, FakeClock())
        first, second = await harness.create(), await harness.create()
        request = ClaimRequest(NAMESPACE, frozenset({TOOL}), "worker", timedelta(seconds=30), 1, withdraw_job=True)
        (started,) = await store.claim(request, now=harness.clock.now())
        assert started.id == first.id
        assert await asyncio.to_thread(count_jobs, database_url) == 1
        # Another worker, which gets the remaining job, finds its task.
        (started,) = await store.claim(replace(request, withdraw_job=False, job_tool=TOOL), now=harness.clock.now())
        assert started.id == second.id
        assert await asyncio.to_thread(count_jobs, database_url) == 1


async def test_a_directly_started_task_has_no_job_and_a_queued_one_has_one(database_url: str) -> None:
    offer = ClaimRequest(NAMESPACE, frozenset({TOOL}), "creator", timedelta(seconds=30), 1)
    async with open_store(database_url) as store:
        harness = StoreHarness(store, FakeClock())
        assert (await harness.create(claim=offer)).phase is Phase.RUNNING
        assert await asyncio.to_thread(count_jobs, database_url) == 0
        await harness.create()
        assert (await harness.create(claim=offer)).phase is Phase.QUEUED
        assert await asyncio.to_thread(count_jobs, database_url) == 2


async def test_many_slots_that_become_free_at_once_are_filled_in_waves(database_url: str) -> None:
    toolbox = Toolbox()
    gates = [asyncio.Event() for _ in range(2)]
    starts: asyncio.Queue[int] = asyncio.Queue()

    @toolbox.tool
    async def wave(number: int) -> None:
        starts.put_nowait(number)
        await gates[number].wait()

    async with open_store(database_url) as store, Engine(store, toolbox, settings=Settings(concurrency=4)) as engine:
        tasks = [await engine.submit("wave", {"number": 0}) for _ in range(4)]
        tasks += [await engine.submit("wave", {"number": 1}) for _ in range(4)]
        assert [await starts.get() for _ in range(4)] == [0, 0, 0, 0]
        gates[0].set()
        assert [await starts.get() for _ in range(4)] == [1, 1, 1, 1]
        gates[1].set()
        for task in tasks:
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        await eventually(lambda: count_jobs(database_url) == 0, "no job is left")


async def test_two_concurrent_jobs_do_not_use_the_same_slot(database_url: str) -> None:
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
        deps = EngineDeps(store, SystemClock(), "default", toolbox, Settings())
        slots = SlotPool(toolbox, deps.settings.concurrency)
        runner = AttemptRunner(deps, slots, lambda _: None)
        consumer = Claimer(deps, "holder", runner, slots)
        (tool,) = consumer.tools
        started = await asyncio.gather(consumer.claim_next(tool), consumer.claim_next(tool))
        gate.set()
        assert [attempt is not None for attempt in started].count(True) == 1
        await asyncio.wait([attempt for attempt in started if attempt is not None])
    assert len(running) == 1


async def test_a_waiting_task_is_started_in_the_slot_of_a_directly_started_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "UNSERVED_SECONDS", 3_600.0)
    toolbox = Toolbox()
    gate = asyncio.Event()

    @toolbox.tool
    async def gated() -> None:
        await gate.wait()

    async with open_store(database_url) as store, Engine(store, toolbox, settings=Settings(concurrency=2)) as engine:
        started = [await engine.submit("gated") for _ in range(2)]
        waiting = [await engine.submit("gated") for _ in range(4)]
        assert [task.phase for task in (*started, *waiting)] == [Phase.RUNNING] * 2 + [Phase.QUEUED] * 4
        # No dispatcher delivers them any more, and the engine searches for such tasks only once an hour.
        await asyncio.to_thread(delete_jobs, database_url)
        gate.set()
        async with asyncio.timeout(60):
            for task in (*started, *waiting):
                assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED


async def test_a_task_that_is_due_at_once_after_a_pause_or_a_failure_needs_no_poll(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No recovery wakes due tasks: each has a job already.
    monkeypatch.setattr(dispatch, "RECOVER_INTERVAL", 3_600.0)
    toolbox = Toolbox()

    @toolbox.tool(retry=RetryPolicy(first_wait=timedelta(0), jitter=0))
    async def stumbles(task: TaskContext) -> int:
        if task.attempt == 1:
            raise ConnectionError
        return task.attempt

    async with open_store(database_url) as store:
        caller = Engine(store, toolbox, works=False)
        # Before a worker runs, so that none starts the task before it is paused.
        paused = await caller.submit("stumbles")
        await caller.pause(paused.id)
        async with Engine(store, toolbox) as engine, asyncio.timeout(60):
            task = await engine.submit("stumbles")
            assert await engine.result(task.id) == 2
            await caller.resume(paused.id)
            assert (await engine.wait(paused.id)).task.is_terminal
