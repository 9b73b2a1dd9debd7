"""Contract for routing and ordering: which worker gets a task, and which task is next."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task
from raincheck.engine import Engine, TaskContext, Toolbox
from raincheck.testing.dispatcher_contract.base import DispatcherContractBase
from raincheck.testing.dispatcher_contract.processes import WAIT_TIMEOUT, DispatcherHarness, eventually, short_settings
from raincheck.testing.harness import ALICE, BOB

MANY = 20
NEVER = 3_600.0


class FairnessContract(DispatcherContractBase):
    async def test_a_worker_without_a_tool_leaves_its_tasks_to_a_worker_that_has_it(
        self, site: DispatcherHarness
    ) -> None:
        await site.start_worker("other")
        submitter = site.submitting_engine("other")
        unsupported = await site.engine.submit("plain")
        supported = await submitter.submit("other")
        assert await site.wait_for_end(supported) == (Phase.COMPLETED, "1")
        assert (await site.engine.task(unsupported.id)).phase is Phase.QUEUED
        assert await site.engine.history(unsupported.id) == await site.history(unsupported)
        second_worker = await site.start_worker()
        await second_worker.wait_for_line("ran", unsupported.id)
        assert await site.wait_for_end(unsupported) == (Phase.COMPLETED, 1)

    async def test_a_worker_with_an_older_version_leaves_newer_tasks_to_a_newer_worker(
        self, site: DispatcherHarness
    ) -> None:
        await site.start_worker("older")
        newer = await site.submitting_engine("newer").submit("versioned")
        older = await site.submitting_engine("older").submit("versioned")
        assert await site.wait_for_end(older) == (Phase.COMPLETED, "1")
        assert (await site.engine.task(newer.id)).phase is Phase.QUEUED
        await site.start_worker("newer")
        assert await site.wait_for_end(newer) == (Phase.COMPLETED, "2")

    async def test_owners_take_turns_across_tools(self, site: DispatcherHarness) -> None:
        order: list[Owner] = []
        toolbox = Toolbox()

        async def run(task: TaskContext) -> None:
            order.append(task.owner)

        for name in ("one", "two"):
            toolbox.tool(name=name)(run)
        submitter = Engine(site.store, toolbox, works=False)
        tasks = [await submitter.submit("one", owner=ALICE) for _ in range(4)]
        tasks += [await submitter.submit("two", owner=BOB) for _ in range(4)]
        async with self._working(site, toolbox, concurrency=1):
            assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        assert order == [ALICE, BOB] * 4

    async def test_higher_priorities_run_first_whatever_the_order_and_the_tool(self, site: DispatcherHarness) -> None:
        order: list[str] = []
        toolbox = Toolbox()

        async def run(task: TaskContext) -> None:
            order.append(task.id)

        for name, priority in (("usual", 0), ("urgent", 10), ("idle", -10)):
            toolbox.tool(name=name, priority=priority)(run)
        submitter = Engine(site.store, toolbox, works=False)
        tasks = [await submitter.submit(name) for name in ("idle", "usual", "urgent") for _ in range(3)]
        async with self._working(site, toolbox, concurrency=1):
            assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        names: dict[str, str] = {task.id: task.tool.name for task in tasks}
        assert [names[task_id] for task_id in order] == ["urgent"] * 3 + ["usual"] * 3 + ["idle"] * 3

    async def test_tasks_of_a_tool_with_concurrency_one_run_one_at_a_time_without_polls(
        self, site: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stop_polling(monkeypatch)
        toolbox = Toolbox()
        running: list[str] = []
        max_running = 0

        @toolbox.tool(concurrency=1)
        async def alone(task: TaskContext) -> None:
            nonlocal max_running
            running.append(task.id)
            max_running = max(max_running, len(running))
            await asyncio.sleep(0.005)
            running.remove(task.id)

        @toolbox.tool
        async def beside() -> None: ...

        submitter = Engine(site.store, toolbox, works=False)
        tasks = [await submitter.submit("alone") for _ in range(MANY)]
        async with self._working(site, toolbox):
            # Some tasks are queued before the worker starts, others arrive while it runs, and it runs another tool too.
            tasks += [await submitter.submit(name) for _ in range(MANY) for name in ("alone", "beside")]
            assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        assert max_running == 1

    async def test_a_burst_of_tasks_is_run_without_polls(
        self, site: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stop_polling(monkeypatch)
        toolbox = Toolbox()

        @toolbox.tool
        async def quick() -> None: ...

        submitter = Engine(site.store, toolbox, works=False)
        async with self._working(site, toolbox, concurrency=2):
            for _ in range(5):
                tasks: list[Task] = list(await asyncio.gather(*(submitter.submit("quick") for _ in range(MANY))))
                async with asyncio.timeout(WAIT_TIMEOUT):
                    assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}

    @asynccontextmanager
    async def _working(self, site: DispatcherHarness, toolbox: Toolbox, concurrency: int = 8) -> AsyncGenerator[None]:
        """Run a worker in this process that receives events and does not poll."""
        settings = replace(short_settings(concurrency), poll_interval=NEVER)
        async with Engine(site.store, toolbox, settings=settings):
            await eventually(self.is_listening, "the worker receives new-task events")
            yield
