"""Direct start: a task that is asked for where it can run is begun in the transaction that keeps it, and not lost."""

import asyncio
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from raincheck.core.change import Creation
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.policies import OnInterrupt, RetryPolicy
from raincheck.core.records import Task
from raincheck.engine import Engine, Settings, TaskContext
from raincheck.errors import IdempotencyConflict, QuotaExceeded, StoreUnavailable
from raincheck.stores.base import Capabilities, Store
from raincheck.stores.requests import ClaimRequest
from tests.support.engine.harness import QUICK, Bench
from tests.support.engine.observed_store import Watched, a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

NEVER_TWICE = RetryPolicy(on_interrupt=OnInterrupt.FAIL)


@pytest.fixture
def watched(bench: Bench) -> Watched:
    watched = Watched(bench.store)
    bench.store = watched.as_store
    return watched


def add_quick(bench: Bench) -> None:
    @bench.toolbox.tool(retry=NEVER_TWICE)
    async def quick(task: TaskContext) -> int:
        return task.attempt


def add_gated(bench: Bench, **settings: Any) -> asyncio.Event:
    """A tool whose tasks wait for a gate."""
    gate = asyncio.Event()

    @bench.toolbox.tool(**settings)
    async def gated() -> None:
        await gate.wait()

    return gate


async def only_task(engine: Engine) -> Task:
    (task,) = (await engine.list_tasks()).tasks
    return task


async def test_a_task_is_begun_in_the_transaction_that_keeps_it(bench: Bench, watched: Watched) -> None:
    add_quick(bench)
    async with bench.working() as engine:
        await bench.result_of("quick")
        watched.calls.clear()
        task = await engine.submit("quick")
        assert (task.phase, task.attempt_number) == (Phase.RUNNING, 1)
        assert (await engine.wait(task.id)).outcome == b"1"
        assert {name: watched.calls[name] for name in ("create", "claim", "commit", "journal")} == {
            "create": 1,
            "claim": 0,
            "commit": 1,
            "journal": 0,
        }
        assert await bench.events(task.id) == ["create", "claim", "complete"]


@pytest.mark.looks_for_work
async def test_one_that_is_asked_for_elsewhere_takes_a_commit_more(bench: Bench, watched: Watched) -> None:
    add_quick(bench)
    async with bench.working() as engine:
        for submit, writes in ((engine.submit, 2), (bench.queue, 3)):
            watched.calls.clear()
            task = await submit("quick")
            await engine.wait(task.id)
            assert sum(watched.calls[name] for name in ("create", "claim", "commit")) == writes


async def test_an_engine_that_does_not_work_or_run_begins_nothing(bench: Bench) -> None:
    add_quick(bench)
    async with bench.working(works=False) as engine:
        assert (await engine.submit("quick")).phase is Phase.QUEUED
    assert (await engine.submit("quick")).phase is Phase.QUEUED


async def test_a_store_that_takes_no_offers_is_made_none(bench: Bench, watched: Watched) -> None:
    add_quick(bench)

    class Declining:
        capabilities = Capabilities(durable=True, shared=False, supports_direct_start=False)

        def __getattr__(self, name: str) -> Any:
            return getattr(watched, name)

    bench.store = cast("Store", Declining())
    async with bench.working() as engine:
        task = await engine.submit("quick")
        assert task.phase is Phase.QUEUED
        assert (await engine.wait(task.id)).outcome == b"1"


async def test_one_that_another_has_begun_by_the_time_that_it_is_told_of_is_left_to_them(bench: Bench) -> None:
    runs: list[str] = []
    kept = bench.store

    @bench.toolbox.tool
    async def quick() -> None:
        runs.append("quick")

    class ToldLate:
        """Keeps a task that another has begun by then."""

        def __getattr__(self, name: str) -> Any:
            return getattr(kept, name)

        async def create(self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest) -> Task:
            return await kept.create(creation, quota=quota, now=now, claim=replace(claim, holder="another"))

    bench.store = cast("Store", ToldLate())
    async with bench.working() as engine:
        task = await engine.submit("quick")
        assert (task.attempt is not None, task.id) == (True, (await engine.task(task.id)).id)
    assert runs == []
    assert await bench.events(task.id) == ["create", "claim"]


@pytest.mark.looks_for_work
async def test_nobody_who_waits_is_overtaken(bench: Bench, watched: Watched) -> None:
    add_quick(bench)
    async with bench.working() as engine:
        # The worker does not get to claim it for a while.
        may_look = watched.hold_up("next_due")
        first = await bench.queue("quick")
        second = await engine.submit("quick")
        assert second.phase is Phase.QUEUED
        may_look.set()
        ends = [(await engine.wait(task.id)).task for task in (first, second)]
    assert {task.phase for task in ends} == {Phase.COMPLETED}


@pytest.mark.looks_for_work
async def test_who_waits_for_any_place_in_the_process_is_not_overtaken_by_another_tool(
    bench: Bench, watched: Watched
) -> None:
    add_quick(bench)
    gate = add_gated(bench)

    @bench.toolbox.tool(concurrency=1)
    async def narrow() -> None: ...

    async with bench.working(Settings(concurrency=1)) as engine:
        running = await engine.submit("gated")
        waiting = await bench.queue("narrow")
        may_look = watched.hold_up("next_due")
        gate.set()
        # The place is free, and the worker is about to give it to who waits.
        await watched.asked("next_due")
        assert (await engine.task(running.id)).is_terminal
        assert (await engine.submit("quick")).phase is Phase.QUEUED
        may_look.set()
        await engine.wait(waiting.id)


async def test_a_tool_that_has_all_its_places_does_not_keep_others_from_being_begun(bench: Bench) -> None:
    add_quick(bench)
    gate = add_gated(bench, concurrency=1)
    async with bench.working() as engine:
        assert (await engine.submit("gated")).phase is Phase.RUNNING
        assert (await engine.submit("gated")).phase is Phase.QUEUED
        assert (await engine.submit("quick")).phase is Phase.RUNNING
        gate.set()


async def test_many_who_ask_at_once_get_no_more_places_than_there_are(bench: Bench) -> None:
    now, most = 0, 0

    async def pass_through() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1

    for name, concurrency in (("free", None), ("narrow", 1)):
        bench.toolbox.tool(name=name, concurrency=concurrency)(pass_through)
    async with bench.working(Settings(concurrency=3)) as engine:
        tasks = await asyncio.gather(*(engine.submit(name) for _ in range(20) for name in ("free", "narrow")))
        phases = [(await engine.wait(task.id)).task.phase for task in tasks]
    assert set(phases) == {Phase.COMPLETED}
    assert 1 < most <= 3


async def test_what_a_claim_on_its_way_brings_has_its_places(bench: Bench, watched: Watched) -> None:
    add_quick(bench)
    gate = add_gated(bench)
    queued = [await bench.queue("gated") for _ in range(2)]
    may_return = watched.hold_up_replies("claim")
    async with bench.working(Settings(concurrency=2)) as engine:
        for task in queued:
            await bench.reach(task.id, Phase.RUNNING)
        # In the store nobody waits. Here, two are about to come.
        last = await engine.submit("quick")
        assert last.phase is Phase.QUEUED
        may_return.set()
        gate.set()
        await engine.wait(last.id)


async def test_the_end_of_one_makes_room_for_who_waits(bench: Bench) -> None:
    add_quick(bench)
    gate = add_gated(bench)
    async with bench.working(Settings(concurrency=1, poll_interval=1_000)) as engine:
        await engine.submit("gated")
        waiting = await engine.submit("quick")
        assert waiting.phase is Phase.QUEUED
        gate.set()
        assert (await engine.wait(waiting.id)).outcome == b"1"


async def test_a_submitter_who_leaves_in_the_middle_does_not_leave_a_task_that_nobody_runs(
    bench: Bench, watched: Watched
) -> None:
    add_quick(bench)
    async with bench.working(Settings(lease=3_600)) as engine:
        for hold_up in (watched.hold_up, watched.hold_up_replies):
            gate = hold_up("create")
            submitting = asyncio.ensure_future(engine.submit("quick"))
            await watched.asked("create")
            submitting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await submitting
            watched.let_all_through()
            gate.set()
        await bench.result_of("quick")
        async with asyncio.timeout(60):
            # The creations that were left continue in the background, on connections of their own.
            while len(tasks := (await engine.list_tasks()).tasks) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [(await engine.wait(task.id)).outcome for task in tasks] == [b"1"] * 3


async def test_an_engine_that_stops_waits_for_what_is_on_its_way_and_hands_it_back(
    bench: Bench, watched: Watched
) -> None:
    add_quick(bench)
    async with bench.working(Settings(grace=0)) as engine:
        may_return = watched.hold_up_replies("create")
        submitting = asyncio.ensure_future(engine.submit("quick"))
        await watched.done("create")
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done(), "it would be left to its lease"
        may_return.set()
        await asyncio.wait_for(stopping, 20)
        task = await submitting
        assert task.attempt is not None
    assert (await only_task(engine)).attempt is None
    watched.let_all_through()
    async with bench.working() as engine:
        assert (await engine.wait(task.id)).outcome == b"2", "nothing of it had begun, so it may run"


async def test_a_task_that_can_not_be_kept_takes_no_place(bench: Bench, watched: Watched) -> None:
    add_quick(bench)
    gate = add_gated(bench)
    quota = replace(QUICK.quota, live=1)
    async with bench.working(Settings(concurrency=2, poll_interval=1_000, quota=quota)) as engine:
        watched.fail("create", times=3)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await engine.submit("quick")
        running = await engine.submit("gated", idempotency_key="once")
        await bench.reach(running.id, Phase.RUNNING)
        for _ in range(3):
            with pytest.raises(QuotaExceeded):
                await engine.submit("quick")
            with pytest.raises(IdempotencyConflict):
                await engine.submit("quick", idempotency_key="once")
        gate.set()
        await engine.wait(running.id)
        assert (await engine.submit("quick")).phase is Phase.RUNNING


async def test_a_task_that_is_there_already_is_not_begun_again(bench: Bench) -> None:
    began: list[int] = []

    @bench.toolbox.tool
    async def once(task: TaskContext) -> None:
        began.append(task.attempt)

    async with bench.working() as engine:
        tasks = await asyncio.gather(*(engine.submit("once", idempotency_key="key") for _ in range(5)))
        tasks.append(await engine.submit("once", idempotency_key="key"))
        await engine.wait(tasks[0].id)
    assert len({task.id for task in tasks}) == 1
    assert began == [1]


async def test_one_of_which_only_the_receipt_was_lost_is_run(bench: Bench, watched: Watched) -> None:
    clock = a_clock()
    add_quick(bench)
    async with bench.working(Settings(lease=3_600), clock=clock) as engine:
        watched.lose_replies("create", times=1)
        watched.fail("journal", times=2)
        with pytest.raises(StoreUnavailable):
            await engine.submit("quick")
        while not (task := await only_task(engine)).is_terminal:
            clock.advance(1)
            await asyncio.sleep(0.001)
        assert (task.phase, task.attempt_number) == (Phase.COMPLETED, 1)


async def test_one_of_which_the_receipt_was_lost_and_that_was_not_begun_is_left_to_the_worker(
    bench: Bench, watched: Watched
) -> None:
    began: list[int] = []

    @bench.toolbox.tool
    async def note(task: TaskContext) -> None:
        began.append(task.attempt)

    # The journal is held up for as long as a busy machine takes, and the lease is not to expire meanwhile.
    async with bench.working(replace(QUICK, lease=60.0)) as engine:
        may_look, may_read = watched.hold_up("next_due"), watched.hold_up("journal")
        claimed = asyncio.ensure_future(watched.done("claim"))
        first = await bench.queue("note")
        watched.lose_replies("create", times=1)
        with pytest.raises(StoreUnavailable):
            await engine.submit("note")
        # Nothing says who is first: the news of the queued task may lead the worker to it before it looks.
        may_look.set()
        await claimed
        may_read.set()
        for task in (await engine.list_tasks()).tasks:
            assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
        assert (await engine.wait(first.id)).task.attempt_number == 1
    assert began == [1, 1]


async def test_a_store_that_stays_away_does_not_keep_the_engine_from_stopping(bench: Bench, watched: Watched) -> None:
    add_quick(bench)
    async with bench.working() as engine:
        watched.lose_replies("create", times=1)
        watched.fail("journal", times=1_000)
        with pytest.raises(StoreUnavailable):
            await engine.submit("quick")
        await asyncio.wait_for(engine.stop(), 20)


async def test_quick_tasks_are_not_looked_for_or_looked_at(bench: Bench, watched: Watched) -> None:
    add_quick(bench)
    async with bench.working(Settings(poll_interval=1_000, lease=3_600)) as engine:
        await bench.result_of("quick")
        watched.calls.clear()
        for _ in range(20):
            task = await engine.submit("quick")
            async for view in engine.follow(task.id, last_seen=task):
                assert view.task.is_terminal
        assert watched.calls["create"] == watched.calls["commit"] == 20
        # Where the end comes before anybody follows, it is read. A store that has just been opened gives one hint more.
        assert sum(watched.calls.values()) - watched.calls["view"] <= 41


async def test_one_that_is_to_be_tried_again_is_found_though_something_of_it_keeps_its_place(bench: Bench) -> None:
    may_end = threading.Event()

    @bench.toolbox.tool(attempt_timeout=0.1, grace=0.05, retry=RetryPolicy(first_wait=timedelta(0), jitter=0))
    async def stubborn(task: TaskContext) -> int:
        if task.attempt == 1:
            await task.step("wait", may_end.wait)
        return task.attempt

    async with bench.working(Settings(poll_interval=1_000, concurrency=2)) as engine:
        try:
            task = await engine.submit("stubborn")
            assert (await engine.wait(task.id)).outcome == b"2"
        finally:
            may_end.set()
