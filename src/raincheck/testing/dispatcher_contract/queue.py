"""Contract for jobs, and for control of tasks that run in another process.

A queued task and its job exist together or not at all. A cancel, or the answer to an input request, reaches a task
that runs in another process.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from raincheck.core.commands import Cancel, Release
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import Quota
from raincheck.engine import Engine
from raincheck.errors import AlreadyRecorded, QuotaExceeded, StaleChange
from raincheck.testing.clock import FakeClock
from raincheck.testing.dispatcher_contract.base import DispatcherContractBase
from raincheck.testing.dispatcher_contract.processes import DispatcherHarness, eventually, short_settings
from raincheck.testing.harness import EVERYTHING, StoreHarness

SLOTS = 8
NEVER = 3_600.0
STOP_TIMEOUT = 10.0
"""Maximum seconds until a body has stopped. The actual time is reported, not judged."""


class ControlContract(DispatcherContractBase):
    async def test_a_cancel_in_one_process_stops_the_body_in_another(
        self, site: DispatcherHarness, record_property: Callable[[str, object], None]
    ) -> None:
        worker = await site.start_worker()
        task = await site.engine.submit("wait_for_ever")
        await worker.wait_for_line("started", task.id)
        started_at = time.monotonic()
        async with asyncio.timeout(STOP_TIMEOUT):
            cancelled = await site.engine.cancel(task.id)
            await worker.wait_for_line("cancelled", task.id)
        record_property("milliseconds until the body stopped", round(1_000 * (time.monotonic() - started_at)))
        assert cancelled.phase is Phase.CANCELLED
        assert await site.wait_for_end(task) == (Phase.CANCELLED, None)
        # Its slot is free again.
        assert await site.wait_for_end(await site.engine.submit("plain")) == (Phase.COMPLETED, 1)

    async def test_more_tasks_than_slots_wait_for_answers_without_delaying_others(
        self, site: DispatcherHarness
    ) -> None:
        worker = await site.start_worker(concurrency=SLOTS)
        parked = [await site.engine.submit("ask", {"number": number}) for number in range(SLOTS + 4)]
        for task in parked:
            await site.wait_for_phase(task, Phase.PARKED)
        other = await site.engine.submit("plain")
        assert await site.wait_for_end(other) == (Phase.COMPLETED, 1)
        for number, task in enumerate(parked):
            await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {"number": number}}})
        for number, task in enumerate(parked):
            assert await site.wait_for_end(task) == (Phase.COMPLETED, [number, {"number": number}])
        assert worker.process.returncode is None

    async def test_more_tasks_than_slots_are_parked_while_others_are_queued(self, site: DispatcherHarness) -> None:
        parked = [await site.engine.submit("ask", {"number": number}) for number in range(SLOTS + 4)]
        others = [await site.engine.submit("plain") for _ in range(SLOTS)]
        await site.start_worker(concurrency=SLOTS)
        assert await site.wait_for_ends(others) == {Phase.COMPLETED}
        for task in parked:
            await site.wait_for_phase(task, Phase.PARKED)

    async def test_bodies_that_wait_free_their_slots_for_queued_tasks(self, site: DispatcherHarness) -> None:
        settings = replace(short_settings(concurrency=2), park_after=NEVER, poll_interval=NEVER)
        async with Engine(site.store, site.engine.toolbox, settings=settings):
            parked = [await site.engine.submit("ask", {"number": number}) for number in range(3)]
            other = await site.engine.submit("plain")
            assert await site.wait_for_end(other) == (Phase.COMPLETED, 1)
            for task in parked:
                await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
            assert await site.wait_for_ends(parked) == {Phase.COMPLETED}


class JobQueueContract(DispatcherContractBase):
    @pytest.fixture
    def harness(self, site: DispatcherHarness) -> StoreHarness:
        # Ahead of the engine's clock, on which no lease has expired, so that its sweeper changes none of these tasks.
        return StoreHarness(site.store, FakeClock(site.clock.now() + timedelta(hours=1)))

    async def test_a_rejected_create_leaves_neither_a_task_nor_a_job(self, harness: StoreHarness) -> None:
        first = await harness.create(quota=Quota(live=1))
        jobs = await self.job_count()
        with pytest.raises(QuotaExceeded):
            await harness.create(quota=Quota(live=1))
        with pytest.raises(AlreadyRecorded):
            await harness.create(id=first.id)
        assert await self.job_count() == jobs
        assert await harness.store.count_live(EVERYTHING) == {Phase.QUEUED: 1}

    async def test_a_stale_change_creates_no_job(self, harness: StoreHarness) -> None:
        task = await harness.create_running()
        change = harness.decide(task, Release(task.attempt_number))
        await harness.store.commit([change])
        jobs = await self.job_count()
        with pytest.raises(StaleChange):
            await harness.store.commit([change])
        assert await self.job_count() == jobs
        assert len(await harness.claim(limit=10)) == 1

    async def test_a_commit_with_a_stale_change_creates_no_jobs(self, harness: StoreHarness) -> None:
        good, stale = await harness.create_running(), await harness.create_running()
        changes = [harness.decide(task, Release(task.attempt_number)) for task in (good, stale)]
        await harness.apply(stale, Cancel("alice"))
        jobs = await self.job_count()
        with pytest.raises(StaleChange):
            await harness.store.commit(changes)
        assert await self.job_count() == jobs
        assert (await harness.load(good)).phase is Phase.RUNNING

    async def test_every_queued_task_has_a_job_and_a_cancelled_one_has_none(self, site: DispatcherHarness) -> None:
        self.require(jobs=True)
        tasks = [await site.engine.submit("plain") for _ in range(5)]
        assert await self.job_count() == 5
        await site.engine.cancel(tasks[0].id)
        await site.engine.pause(tasks[1].id)
        assert await self.job_count() == 3
        await site.engine.resume(tasks[1].id)
        await eventually(lambda: self.count_jobs() == 4, "the resumed task has a job again")

    async def test_a_terminal_task_has_no_job(self, site: DispatcherHarness) -> None:
        self.require(jobs=True)
        tasks = [await site.engine.submit("plain") for _ in range(5)]
        worker = await site.start_worker()
        assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        running = await site.engine.submit("wait_for_ever")
        await worker.wait_for_line("started", running.id)
        await site.engine.cancel(running.id)
        await worker.wait_for_line("cancelled", running.id)
        await eventually(lambda: self.count_jobs() == 0, "no job is left")

    async def test_a_parked_task_has_no_job_and_an_answered_one_has_one(self, site: DispatcherHarness) -> None:
        self.require(jobs=True)
        task = await site.engine.submit("ask", {"number": 1})
        worker = await site.start_worker()
        await site.wait_for_phase(task, Phase.PARKED)
        await eventually(lambda: self.count_jobs() == 0, "no job is left")
        await worker.kill()
        await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
        assert await self.job_count() == 1
        await site.start_worker()
        assert await site.wait_for_end(task) == (Phase.COMPLETED, [1, {}])

    async def test_a_worker_skips_cancelled_tasks_and_runs_the_others(self, site: DispatcherHarness) -> None:
        cancelled = [await site.engine.submit("plain") for _ in range(3)]
        for task in cancelled:
            await site.engine.cancel(task.id)
        await site.start_worker()
        task = await site.engine.submit("plain")
        assert await site.wait_for_end(task) == (Phase.COMPLETED, 1)
        assert [line[1] for line in await site.logged_lines("ran")] == [task.id]
