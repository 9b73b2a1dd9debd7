"""Direct start: a task is started in the transaction that creates it if it can run here, and is never lost."""

import asyncio
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from raincheck.core.change import Change, Creation
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, Quota, RetryPolicy
from raincheck.core.records import Task
from raincheck.engine import Engine, Settings, TaskContext
from raincheck.errors import IdempotencyConflict, QuotaExceeded, StoreUnavailable
from raincheck.stores.base import Capabilities, Store
from raincheck.stores.requests import ClaimRequest
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


@pytest.fixture
def observed(harness: EngineHarness) -> ObservedStore:
    observed = ObservedStore(harness.store)
    harness.store = observed.as_store
    return observed


def add_quick(harness: EngineHarness) -> None:
    @harness.toolbox.tool(retry=NEVER_TWICE)
    async def quick(task: TaskContext) -> int:
        return task.attempt


def add_gated(harness: EngineHarness, **settings: Any) -> asyncio.Event:
    """Add a tool whose tasks wait for a gate."""
    gate = asyncio.Event()

    @harness.toolbox.tool(**settings)
    async def gated() -> None:
        await gate.wait()

    return gate


async def only_task(engine: Engine) -> Task:
    (task,) = (await engine.list_tasks()).tasks
    return task


async def test_a_task_is_started_in_the_transaction_that_creates_it(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_quick(harness)
    async with harness.running() as engine:
        await harness.result_of("quick")
        observed.calls.clear()
        task = await engine.submit("quick")
        assert (task.phase, task.attempt_number) == (Phase.RUNNING, 1)
        assert (await engine.wait(task.id)).outcome == b"1"
        assert {name: observed.calls[name] for name in ("create", "claim", "commit", "journal")} == {
            "create": 1,
            "claim": 0,
            "commit": 1,
            "journal": 0,
        }
        assert await harness.events(task.id) == ["create", "claim", "complete"]


@pytest.mark.looks_for_work
async def test_a_task_submitted_elsewhere_takes_one_more_commit(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_quick(harness)
    async with harness.running() as engine:
        for submit, writes in ((engine.submit, 2), (harness.submit_elsewhere, 3)):
            observed.calls.clear()
            task = await submit("quick")
            await engine.wait(task.id)
            assert sum(observed.calls[name] for name in ("create", "claim", "commit")) == writes


async def test_an_engine_without_a_worker_or_that_is_not_running_starts_nothing(harness: EngineHarness) -> None:
    add_quick(harness)
    async with harness.running(works=False) as engine:
        assert (await engine.submit("quick")).phase is Phase.QUEUED
    assert (await engine.submit("quick")).phase is Phase.QUEUED


async def test_a_store_without_direct_start_gets_no_claim_with_a_creation(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_quick(harness)

    class Declining:
        capabilities = Capabilities(durable=True, shared=False, supports_direct_start=False)

        def __getattr__(self, name: str) -> Any:
            return getattr(observed, name)

    harness.store = cast("Store", Declining())
    async with harness.running() as engine:
        task = await engine.submit("quick")
        assert task.phase is Phase.QUEUED
        assert (await engine.wait(task.id)).outcome == b"1"


async def test_a_task_that_another_worker_started_is_left_to_it(
    harness: EngineHarness,
) -> None:
    runs: list[str] = []
    inner = harness.store

    @harness.toolbox.tool
    async def quick() -> None:
        runs.append("quick")

    class StartedElsewhereStore:
        """Creates a task that another worker has started by then."""

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        async def create(self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest) -> Task:
            return await inner.create(creation, quota=quota, now=now, claim=replace(claim, holder="another"))

    harness.store = cast("Store", StartedElsewhereStore())
    async with harness.running() as engine:
        task = await engine.submit("quick")
        assert (task.attempt is not None, task.id) == (True, (await engine.task(task.id)).id)
    assert runs == []
    assert await harness.events(task.id) == ["create", "claim"]


@pytest.mark.looks_for_work
async def test_a_queued_task_is_not_overtaken(harness: EngineHarness, observed: ObservedStore) -> None:
    add_quick(harness)
    async with harness.running() as engine:
        # The worker can't claim it for a while.
        may_look = observed.block("next_due")
        first = await harness.submit_elsewhere("quick")
        second = await engine.submit("quick")
        assert second.phase is Phase.QUEUED
        may_look.set()
        ends = [(await engine.wait(task.id)).task for task in (first, second)]
    assert {task.phase for task in ends} == {Phase.COMPLETED}


@pytest.mark.looks_for_work
async def test_a_task_that_waits_for_any_slot_is_not_overtaken_by_another_tool(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_quick(harness)
    gate = add_gated(harness)

    @harness.toolbox.tool(concurrency=1)
    async def narrow() -> None: ...

    async with harness.running(Settings(concurrency=1)) as engine:
        running = await engine.submit("gated")
        waiting = await harness.submit_elsewhere("narrow")
        may_look = observed.block("next_due")
        gate.set()
        # The slot is free, and the worker is about to give it to the waiting task.
        await observed.wait_called("next_due")
        assert (await engine.task(running.id)).is_terminal
        assert (await engine.submit("quick")).phase is Phase.QUEUED
        may_look.set()
        await engine.wait(waiting.id)


async def test_a_tool_at_its_limit_does_not_prevent_direct_starts_of_other_tools(harness: EngineHarness) -> None:
    add_quick(harness)
    gate = add_gated(harness, concurrency=1)
    async with harness.running() as engine:
        assert (await engine.submit("gated")).phase is Phase.RUNNING
        assert (await engine.submit("gated")).phase is Phase.QUEUED
        assert (await engine.submit("quick")).phase is Phase.RUNNING
        gate.set()


async def test_many_concurrent_submits_take_no_more_slots_than_there_are(harness: EngineHarness) -> None:
    now, peak = 0, 0

    async def pass_through() -> None:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.002)
        now -= 1

    for name, concurrency in (("free", None), ("narrow", 1)):
        harness.toolbox.tool(name=name, concurrency=concurrency)(pass_through)
    async with harness.running(Settings(concurrency=3)) as engine:
        tasks = await asyncio.gather(*(engine.submit(name) for _ in range(20) for name in ("free", "narrow")))
        phases = [(await engine.wait(task.id)).task.phase for task in tasks]
    assert set(phases) == {Phase.COMPLETED}
    assert 1 < peak <= 3


async def test_a_claim_in_flight_has_reserved_its_slots(harness: EngineHarness, observed: ObservedStore) -> None:
    add_quick(harness)
    gate = add_gated(harness)
    queued = [await harness.submit_elsewhere("gated") for _ in range(2)]
    may_return = observed.block_replies("claim")
    async with harness.running(Settings(concurrency=2)) as engine:
        for task in queued:
            await harness.reach(task.id, Phase.RUNNING)
        # No task waits in the store, but two claimed ones are about to arrive here.
        last = await engine.submit("quick")
        assert last.phase is Phase.QUEUED
        may_return.set()
        gate.set()
        await engine.wait(last.id)


async def test_the_end_of_a_task_frees_its_slot_for_a_queued_one(harness: EngineHarness) -> None:
    add_quick(harness)
    gate = add_gated(harness)
    async with harness.running(Settings(concurrency=1, poll_interval=1_000)) as engine:
        await engine.submit("gated")
        waiting = await engine.submit("quick")
        assert waiting.phase is Phase.QUEUED
        gate.set()
        assert (await engine.wait(waiting.id)).outcome == b"1"


async def test_a_submitted_task_runs_although_its_submitter_was_cancelled(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_quick(harness)
    async with harness.running(Settings(lease=3_600)) as engine:
        for block in (observed.block, observed.block_replies):
            gate = block("create")
            submitting = asyncio.ensure_future(engine.submit("quick"))
            await observed.wait_called("create")
            submitting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await submitting
            observed.unblock_all()
            gate.set()
        await harness.result_of("quick")
        async with asyncio.timeout(60):
            # The cancelled creations continue in the background, on their own connections.
            while len(tasks := (await engine.list_tasks()).tasks) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [(await engine.wait(task.id)).outcome for task in tasks] == [b"1"] * 3


async def test_a_stopping_engine_waits_for_creations_in_flight_and_releases_their_tasks(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_quick(harness)
    async with harness.running(Settings(grace=0)) as engine:
        may_return = observed.block_replies("create")
        submitting = asyncio.ensure_future(engine.submit("quick"))
        await observed.wait_done("create")
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done(), "otherwise the task would wait for its lease to expire"
        may_return.set()
        await asyncio.wait_for(stopping, 20)
        task = await submitting
        assert task.attempt is not None
    assert (await only_task(engine)).attempt is None
    observed.unblock_all()
    async with harness.running() as engine:
        assert (await engine.wait(task.id)).outcome == b"2", "it had not started, so it may run"


async def test_a_task_that_can_not_be_created_takes_no_slot(harness: EngineHarness, observed: ObservedStore) -> None:
    add_quick(harness)
    gate = add_gated(harness)
    quota = replace(QUICK.quota, live=1)
    async with harness.running(Settings(concurrency=2, poll_interval=1_000, quota=quota)) as engine:
        observed.fail("create", times=3)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await engine.submit("quick")
        running = await engine.submit("gated", idempotency_key="once")
        await harness.reach(running.id, Phase.RUNNING)
        for _ in range(3):
            with pytest.raises(QuotaExceeded):
                await engine.submit("quick")
            with pytest.raises(IdempotencyConflict):
                await engine.submit("quick", idempotency_key="once")
        gate.set()
        await engine.wait(running.id)
        assert (await engine.submit("quick")).phase is Phase.RUNNING


async def test_a_task_that_already_exists_is_not_started_again(harness: EngineHarness) -> None:
    began: list[int] = []

    @harness.toolbox.tool
    async def once(task: TaskContext) -> None:
        began.append(task.attempt)

    async with harness.running() as engine:
        tasks = await asyncio.gather(*(engine.submit("once", idempotency_key="key") for _ in range(5)))
        tasks.append(await engine.submit("once", idempotency_key="key"))
        await engine.wait(tasks[0].id)
    assert len({task.id for task in tasks}) == 1
    assert began == [1]


async def test_a_started_task_whose_confirmation_was_lost_is_run(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    clock = make_clock()
    add_quick(harness)
    async with harness.running(Settings(lease=3_600), clock=clock) as engine:
        observed.lose_replies("create", times=1)
        observed.fail("journal", times=2)
        with pytest.raises(StoreUnavailable):
            await engine.submit("quick")
        while not (task := await only_task(engine)).is_terminal:
            clock.advance(1)
            await asyncio.sleep(0.001)
        assert (task.phase, task.attempt_number) == (Phase.COMPLETED, 1)


async def test_a_queued_task_whose_confirmation_was_lost_is_left_to_the_worker(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    began: list[int] = []

    @harness.toolbox.tool
    async def note(task: TaskContext) -> None:
        began.append(task.attempt)

    # The journal is blocked for as long as a busy machine takes, and the lease must not expire meanwhile.
    async with harness.running(replace(QUICK, lease=60.0)) as engine:
        may_look, may_read = observed.block("next_due"), observed.block("journal")
        claimed = asyncio.ensure_future(observed.wait_done("claim"))
        first = await harness.submit_elsewhere("note")
        observed.lose_replies("create", times=1)
        with pytest.raises(StoreUnavailable):
            await engine.submit("note")
        # The order is open: the hint about the queued task may lead the worker to it before it polls.
        may_look.set()
        await claimed
        may_read.set()
        for task in (await engine.list_tasks()).tasks:
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        assert (await engine.wait(first.id)).task.attempt_number == 1
    assert began == [1, 1]


async def test_an_engine_can_stop_while_the_store_is_unavailable(
    harness: EngineHarness, observed: ObservedStore
) -> None:
    add_quick(harness)
    async with harness.running() as engine:
        observed.lose_replies("create", times=1)
        observed.fail("journal", times=1_000)
        with pytest.raises(StoreUnavailable):
            await engine.submit("quick")
        await asyncio.wait_for(engine.stop(), 20)


async def test_quick_tasks_need_no_polls_and_no_reads(harness: EngineHarness, observed: ObservedStore) -> None:
    add_quick(harness)
    async with harness.running(Settings(poll_interval=1_000, lease=3_600)) as engine:
        await harness.result_of("quick")
        observed.calls.clear()
        for _ in range(20):
            task = await engine.submit("quick")
            async for view in engine.follow(task.id, last_seen=task):
                assert view.task.is_terminal
        assert observed.calls["create"] == observed.calls["commit"] == 20
        # If the end comes before the follower, it is read. A store that was just opened gives one more hint.
        assert sum(observed.calls.values()) - observed.calls["view"] <= 41


async def test_a_task_is_retried_while_code_of_its_first_attempt_still_holds_a_slot(
    harness: EngineHarness,
) -> None:
    may_end = threading.Event()

    @harness.toolbox.tool(attempt_timeout=0.1, grace=0.05, retry=RetryPolicy(first_wait=timedelta(0), jitter=0))
    async def stubborn(task: TaskContext) -> int:
        if task.attempt == 1:
            await task.step("wait", may_end.wait)
        return task.attempt

    async with harness.running(Settings(poll_interval=1_000, concurrency=2)) as engine:
        try:
            task = await engine.submit("stubborn")
            assert (await engine.wait(task.id)).outcome == b"2"
        finally:
            may_end.set()


async def test_an_observer_that_fails_fails_the_submit_and_not_the_stop(harness: EngineHarness) -> None:
    class FailingObserver:
        def on_create(self, creation: Creation, task: Task) -> None:
            raise LookupError(creation.task.id, task.id)

        async def on_commit(self, change: Change) -> None:
            pass

    add_quick(harness)
    async with asyncio.timeout(60), harness.running(observer=FailingObserver()) as engine:
        with pytest.raises(LookupError):
            await engine.submit("quick")
