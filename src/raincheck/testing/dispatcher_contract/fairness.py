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
    async def test_a_worker_without_the_tool_leaves_its_task_to_one_that_has_it(self, site: DispatcherHarness) -> None:
        await site.start_worker("other")
        asking = site.submitting_engine("other")
        mine = await site.engine.submit("plain")
        theirs = await asking.submit("other")
        assert await site.wait_for_end(theirs) == (Phase.COMPLETED, None)
        assert (await site.engine.task(mine.id)).phase is Phase.QUEUED
        assert await site.engine.history(mine.id) == await site.history(mine)
        able = await site.start_worker()
        await able.wait_for_line("ran", mine.id)
        assert await site.wait_for_end(mine) == (Phase.COMPLETED, 1)

    async def test_a_worker_of_an_older_version_leaves_a_newer_task_to_one_that_has_it(
        self, site: DispatcherHarness
    ) -> None:
        await site.start_worker("older")
        newer = await site.submitting_engine("newer").submit("versioned")
        older = await site.submitting_engine("older").submit("versioned")
        assert await site.wait_for_end(older) == (Phase.COMPLETED, "1")
        assert (await site.engine.task(newer.id)).phase is Phase.QUEUED
        await site.start_worker("newer")
        assert await site.wait_for_end(newer) == (Phase.COMPLETED, "2")

    async def test_owners_take_turns_whatever_tools_they_use(self, site: DispatcherHarness) -> None:
        order: list[Owner] = []
        toolbox = Toolbox()

        @toolbox.tool
        async def one(task: TaskContext) -> None:
            order.append(task.owner)

        @toolbox.tool
        async def two(task: TaskContext) -> None:
            order.append(task.owner)

        asking = Engine(site.store, toolbox, works=False)
        tasks = [await asking.submit("one", owner=ALICE) for _ in range(4)]
        tasks += [await asking.submit("two", owner=BOB) for _ in range(4)]
        async with self._working(site, toolbox, concurrency=1):
            assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        assert order == [ALICE, BOB] * 4

    async def test_a_higher_priority_goes_first_whoever_was_first_and_whatever_the_tool(
        self, site: DispatcherHarness
    ) -> None:
        order: list[str] = []
        toolbox = Toolbox()

        @toolbox.tool
        async def usual() -> None:
            order.append("usual")

        @toolbox.tool(priority=10)
        async def urgent() -> None:
            order.append("urgent")

        @toolbox.tool(priority=-10)
        async def idle() -> None:
            order.append("idle")

        asking = Engine(site.store, toolbox, works=False)
        tasks = [await asking.submit(name) for name in ("idle", "usual", "urgent") for _ in range(3)]
        async with self._working(site, toolbox, concurrency=1):
            assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        assert order == ["urgent"] * 3 + ["usual"] * 3 + ["idle"] * 3

    async def test_a_tool_that_runs_alone_never_runs_twice_at_once_and_its_tasks_follow_without_polls(
        self, site: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stop_polling(monkeypatch)
        toolbox = Toolbox()
        running: list[str] = []
        most = 0

        @toolbox.tool(concurrency=1)
        async def alone(task: TaskContext) -> None:
            nonlocal most
            running.append(task.id)
            most = max(most, len(running))
            await asyncio.sleep(0.005)
            running.remove(task.id)

        @toolbox.tool
        async def beside() -> None: ...

        asking = Engine(site.store, toolbox, works=False)
        tasks = [await asking.submit("alone") for _ in range(MANY)]
        async with self._working(site, toolbox):
            # Some tasks are queued before the worker starts, others arrive while it runs, and it runs another tool too.
            tasks += [await asking.submit(name) for _ in range(MANY) for name in ("alone", "beside")]
            assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}
        assert most == 1

    async def test_a_burst_of_tasks_is_run_without_polls(
        self, site: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stop_polling(monkeypatch)
        toolbox = Toolbox()

        @toolbox.tool
        async def quick() -> None: ...

        asking = Engine(site.store, toolbox, works=False)
        async with self._working(site, toolbox, concurrency=2):
            for _ in range(5):
                tasks: list[Task] = list(await asyncio.gather(*(asking.submit("quick") for _ in range(MANY))))
                async with asyncio.timeout(WAIT_TIMEOUT):
                    assert await site.wait_for_ends(tasks) == {Phase.COMPLETED}

    @asynccontextmanager
    async def _working(self, site: DispatcherHarness, toolbox: Toolbox, concurrency: int = 8) -> AsyncGenerator[None]:
        """Run a worker in this process that receives events and does not poll."""
        settings = replace(short_settings(concurrency), poll_interval=NEVER)
        async with Engine(site.store, toolbox, settings=settings):
            await eventually(self.is_listening, "the worker is told of new tasks")
            yield
