"""A database that crashes under work that goes on."""

import asyncio

from raincheck.core.lifecycle import Phase
from raincheck.testing.dispatching.base import DispatchBase
from raincheck.testing.dispatching.site import Site

TASKS = 30


class CrashingContract(DispatchBase):
    async def test_everything_ends_though_the_database_crashes_and_nothing_recorded_runs_again(
        self, site: Site
    ) -> None:
        self.need(crashes=True)
        first = await site.start_worker(concurrency=4)
        await site.start_worker(concurrency=4)
        tasks = [await site.engine.submit("three_steps", {"ms": 100}) for _ in range(TASKS)]
        await first.hear("returns")
        await asyncio.to_thread(self.crash_database)
        assert await site.ends_of(tasks) == {Phase.COMPLETED}
        runs = await site.check_that_no_recorded_step_ran_again(tasks)
        assert runs >= 3 * TASKS
        assert all(worker.process.returncode is None for worker in site.workers), "no worker gave up"
        # And what comes later is told to them as before.
        assert await site.ends_of([await site.engine.submit("plain")]) == {Phase.COMPLETED}

    async def test_what_was_queued_when_the_database_crashed_runs_when_a_worker_comes(self, site: Site) -> None:
        self.need(crashes=True)
        tasks = [await site.engine.submit("plain") for _ in range(10)]
        await asyncio.to_thread(self.crash_database)
        await site.start_worker()
        assert await site.ends_of(tasks) == {Phase.COMPLETED}
        assert len(await site.lines("ran")) == len(tasks)
