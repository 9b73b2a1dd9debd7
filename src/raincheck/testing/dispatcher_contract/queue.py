"""A task in the queue and its job: never one without the other.

What others say to a task that runs elsewhere: that it is cancelled, or the answer to its question.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from raincheck.core.commands import Cancel, Release
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.engine import Engine
from raincheck.errors import AlreadyRecorded, QuotaExceeded, StaleChange
from raincheck.testing.clock import FakeClock
from raincheck.testing.dispatcher_contract.base import DispatchBase
from raincheck.testing.dispatcher_contract.processes import Site, eventually, settings_of
from raincheck.testing.harness import EVERYTHING, Scene

PLACES = 8
NEVER = 3_600.0
STOPPING = 10.0
"""Seconds within which a body must have stopped. How long it takes is told, not judged."""


class SteeringContract(DispatchBase):
    async def test_a_cancel_in_one_process_stops_the_body_in_another(
        self, site: Site, record_property: Callable[[str, object], None]
    ) -> None:
        worker = await site.start_worker()
        task = await site.engine.submit("wait_for_ever")
        await worker.hear("began", task.id)
        began = time.monotonic()
        async with asyncio.timeout(STOPPING):
            cancelled = await site.engine.cancel(task.id)
            await worker.hear("cancelled", task.id)
        record_property("milliseconds until the body stopped", round(1_000 * (time.monotonic() - began)))
        assert cancelled.phase is Phase.CANCELLED
        assert await site.end_of(task) == (Phase.CANCELLED, None)
        # Its place is free again.
        assert await site.end_of(await site.engine.submit("plain")) == (Phase.COMPLETED, 1)

    async def test_more_tasks_than_there_are_places_wait_for_answers_and_hold_up_nobody(self, site: Site) -> None:
        worker = await site.start_worker(concurrency=PLACES)
        asking = [await site.engine.submit("ask", {"number": number}) for number in range(PLACES + 4)]
        for task in asking:
            await site.reach(task, Phase.PARKED)
        other = await site.engine.submit("plain")
        assert await site.end_of(other) == (Phase.COMPLETED, 1)
        for number, task in enumerate(asking):
            await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {"told": number}}})
        for number, task in enumerate(asking):
            assert await site.end_of(task) == (Phase.COMPLETED, [number, {"told": number}])
        assert worker.process.returncode is None

    async def test_more_tasks_than_there_are_places_are_parked_while_others_wait_for_a_place(self, site: Site) -> None:
        asking = [await site.engine.submit("ask", {"number": number}) for number in range(PLACES + 4)]
        others = [await site.engine.submit("plain") for _ in range(PLACES)]
        await site.start_worker(concurrency=PLACES)
        assert await site.ends_of(others) == {Phase.COMPLETED}
        for task in asking:
            await site.reach(task, Phase.PARKED)

    async def test_bodies_that_wait_with_patience_give_way_to_others(self, site: Site) -> None:
        settings = replace(settings_of(concurrency=2), patience=NEVER, look_every=NEVER)
        async with Engine(site.store, site.engine.toolbox, settings=settings):
            asking = [await site.engine.submit("ask", {"number": number}) for number in range(3)]
            other = await site.engine.submit("plain")
            assert await site.end_of(other) == (Phase.COMPLETED, 1)
            for task in asking:
                await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
            assert await site.ends_of(asking) == {Phase.COMPLETED}


class QueueingContract(DispatchBase):
    @pytest.fixture
    def scene(self, site: Site) -> Scene:
        # Ahead of the engine's clock: by that, no lease has expired, so its sweeper changes none of these tasks.
        return Scene(site.store, FakeClock(site.clock.now() + timedelta(hours=1)))

    async def test_a_task_that_is_refused_leaves_neither_a_task_nor_a_job(self, scene: Scene) -> None:
        first = await scene.create(quota=Quota(live=1))
        jobs = await self.jobs()
        with pytest.raises(QuotaExceeded):
            await scene.create(quota=Quota(live=1))
        with pytest.raises(AlreadyRecorded):
            await scene.create(id=first.id)
        assert await self.jobs() == jobs
        assert await scene.store.count_live(EVERYTHING) == {Phase.QUEUED: 1}

    async def test_a_change_that_is_stale_brings_no_job(self, scene: Scene) -> None:
        task = await scene.begin()
        change = decide(task, Release(task.fence), scene.clock.now())
        assert change is not None
        await scene.store.commit([change])
        jobs = await self.jobs()
        with pytest.raises(StaleChange):
            await scene.store.commit([change])
        assert await self.jobs() == jobs
        assert len(await scene.claim(limit=10)) == 1

    async def test_of_changes_that_are_kept_together_none_brings_a_job_if_one_is_stale(self, scene: Scene) -> None:
        good, stale = await scene.begin(), await scene.begin()
        changes = [decide(task, Release(task.fence), scene.clock.now()) for task in (good, stale)]
        await scene.do(stale, Cancel("alice"))
        jobs = await self.jobs()
        with pytest.raises(StaleChange):
            await scene.store.commit([change for change in changes if change is not None])
        assert await self.jobs() == jobs
        assert (await scene.load(good)).phase is Phase.RUNNING

    async def test_every_task_in_the_queue_has_a_job_and_one_that_is_cancelled_has_none(self, site: Site) -> None:
        self.need(jobs=True)
        tasks = [await site.engine.submit("plain") for _ in range(5)]
        assert await self.jobs() == 5
        await site.engine.cancel(tasks[0].id)
        await site.engine.pause(tasks[1].id)
        assert await self.jobs() == 3
        await site.engine.resume(tasks[1].id)
        await eventually(lambda: self.count_jobs() == 4, "what was resumed has a job again")

    async def test_what_has_ended_leaves_no_job(self, site: Site) -> None:
        self.need(jobs=True)
        tasks = [await site.engine.submit("plain") for _ in range(5)]
        worker = await site.start_worker()
        assert await site.ends_of(tasks) == {Phase.COMPLETED}
        running = await site.engine.submit("wait_for_ever")
        await worker.hear("began", running.id)
        await site.engine.cancel(running.id)
        await worker.hear("cancelled", running.id)
        await eventually(lambda: self.count_jobs() == 0, "no job is left")

    async def test_a_task_that_parks_has_no_job_and_one_that_is_answered_has_one(self, site: Site) -> None:
        self.need(jobs=True)
        task = await site.engine.submit("ask", {"number": 1})
        worker = await site.start_worker()
        await site.reach(task, Phase.PARKED)
        await eventually(lambda: self.count_jobs() == 0, "no job is left")
        await worker.kill()
        await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
        assert await self.jobs() == 1
        await site.start_worker()
        assert await site.end_of(task) == (Phase.COMPLETED, [1, {}])

    async def test_a_worker_that_comes_for_what_was_cancelled_goes_on_with_what_was_not(self, site: Site) -> None:
        gone = [await site.engine.submit("plain") for _ in range(3)]
        for task in gone:
            await site.engine.cancel(task.id)
        await site.start_worker()
        task = await site.engine.submit("plain")
        assert await site.end_of(task) == (Phase.COMPLETED, 1)
        assert [line[1] for line in await site.lines("ran")] == [task.id]
