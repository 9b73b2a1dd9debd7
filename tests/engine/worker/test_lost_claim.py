"""A claimed task that another worker takes over before its journal is read is not run."""

import asyncio
from datetime import timedelta

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.engine import Engine, Settings, TaskContext
from raincheck.testing import FakeClock
from tests.support.engine.harness import EngineHarness
from tests.support.engine.observed_store import ObservedStore, make_clock

pytestmark = pytest.mark.anyio

SELDOM = Settings(poll_interval=86_400.0, lease=3_600.0)


async def test_a_task_that_another_worker_has_taken_over_is_not_run(harness: EngineHarness) -> None:
    runs: list[int] = []
    gate, clock, observed = asyncio.Event(), make_clock(), ObservedStore(harness.store)

    @harness.toolbox.tool
    async def gated(task: TaskContext) -> None:
        runs.append(task.attempt)
        await gate.wait()

    task = await harness.submit_elsewhere("gated")
    may_read = observed.block("journal")
    claimed = asyncio.ensure_future(observed.wait_called("journal"))
    async with Engine(observed.as_store, harness.toolbox, settings=SELDOM, clock=clock), asyncio.timeout(10):
        await claimed
        # It takes so long that its lease is over for everybody else.
        later = FakeClock(clock.now() + timedelta(hours=2))
        async with Engine(harness.store, harness.toolbox, settings=SELDOM, clock=later) as other:
            await other.wait(task.id, until=lambda task: (task.phase, task.attempt_number) == (Phase.RUNNING, 2))
            read = asyncio.ensure_future(observed.wait_done("journal"))
            may_read.set()
            await read
            gate.set()
            assert (await other.wait(task.id)).task.phase is Phase.COMPLETED
    assert runs == [2]
