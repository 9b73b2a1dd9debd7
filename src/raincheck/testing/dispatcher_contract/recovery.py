"""Contract for recovery: workers that are killed or suspended, and a database that crashes while tasks run."""

import asyncio
import signal

from raincheck.core.lifecycle import Event, Phase
from raincheck.core.owner import Scope
from raincheck.testing.dispatcher_contract.base import DispatcherContractBase
from raincheck.testing.dispatcher_contract.processes import DispatcherHarness

TASKS = 30


class DatabaseCrashContract(DispatcherContractBase):
    async def test_tasks_end_despite_a_database_crash_and_no_recorded_step_runs_again(
        self, site: DispatcherHarness
    ) -> None:
        self.require(crashes=True)
        first = await site.start_worker(concurrency=4)
        await site.start_worker(concurrency=4)
        tasks = [await site.engine.submit("three_steps", {"ms": 100}) for _ in range(TASKS)]
        await first.wait_for_line("returns")
        await asyncio.to_thread(self.crash_database)
        assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        runs = await site.check_recorded_steps(tasks)
        assert runs >= 3 * TASKS
        assert all(worker.process.returncode is None for worker in site.workers), "a worker exited"
        # The workers still receive events for later tasks.
        assert await site.wait_for_ends([await site.engine.submit("plain")]) == {Phase.COMPLETED}

    async def test_tasks_queued_during_a_database_crash_run_once_a_worker_starts(self, site: DispatcherHarness) -> None:
        self.require(crashes=True)
        tasks = [await site.engine.submit("plain") for _ in range(10)]
        await asyncio.to_thread(self.crash_database)
        await site.start_worker()
        assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        assert len(await site.logged_lines("ran")) == len(tasks)


class WorkerCrashContract(DispatcherContractBase):
    async def test_another_worker_resumes_the_task_of_a_killed_one_without_repeating_recorded_steps(
        self, site: DispatcherHarness
    ) -> None:
        victim = await site.start_worker()
        task = await site.engine.submit("three_steps", {"hangs_in": "clean"})
        await victim.wait_for_line("step", task.id, "clean", 1)
        await site.start_worker()
        await victim.kill()
        assert await site.wait_for_end(task) == (Phase.COMPLETED, ["load by 1", "clean by 2", "publish by 2"])
        runs = [(line[2], line[3]) for line in await site.logged_lines("step", task.id)]
        assert runs == [("load", "1"), ("clean", "1"), ("clean", "2"), ("publish", "2")]
        journal = await site.store.journal(task.id, Scope.everything(), now=site.clock.now())
        assert [(step.name, step.attempt) for step in journal.steps] == [("load", 1), ("clean", 2), ("publish", 2)]

    async def test_tasks_queued_behind_a_killed_worker_run_in_another(self, site: DispatcherHarness) -> None:
        victim = await site.start_worker(concurrency=1)
        hanging = await site.engine.submit("three_steps", {"hangs_in": "load"})
        await victim.wait_for_line("step", hanging.id, "load", 1)
        waiting = [await site.engine.submit("plain") for _ in range(5)]
        await victim.kill()
        await site.start_worker(concurrency=1)
        assert await site.wait_for_ends([hanging, *waiting]) == {Phase.COMPLETED}
        assert len(await site.logged_lines("ran")) == len(waiting)

    async def test_a_worker_suspended_past_its_lease_loses_that_attempt_and_nothing_else(
        self, site: DispatcherHarness
    ) -> None:
        sleeper = await site.start_worker()
        task = await site.engine.submit("three_steps", {"hangs_in": "clean"})
        await sleeper.wait_for_line("step", task.id, "clean", 1)
        await site.suspend_worker(sleeper, task)
        await site.start_worker()
        assert await site.wait_for_end(task) == (Phase.COMPLETED, ["load by 1", "clean by 2", "publish by 2"])
        before = await site.history(task)

        sleeper.open_gate()
        sleeper.send_signal(signal.SIGCONT)
        await sleeper.wait_for_line("left", task.id, 1)
        # The worker is healthy and keeps working: it lost that one attempt and nothing else.
        others = [await site.engine.submit("plain") for _ in range(10)]
        assert await site.wait_for_ends(others) == {Phase.COMPLETED}
        assert not [line for line in sleeper.lines if line[0] == "returns"], "it continued after a rejected write"
        after = await site.history(task)
        assert after == before
        moves = [entry.event for entry in after if entry.event is not Event.NOTE]
        assert moves == [Event.CREATE, Event.CLAIM, Event.INTERRUPT, Event.CLAIM, Event.COMPLETE]
