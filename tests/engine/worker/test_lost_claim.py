"""A task that was claimed here, and that somebody else has by the time that its journal is read."""

import asyncio
from datetime import timedelta

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.engine import Engine, Settings, TaskContext
from raincheck.testing import FakeClock
from tests.support.engine.harness import Bench
from tests.support.engine.observed_store import Watched, a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

SELDOM = Settings(poll_interval=86_400.0, lease=3_600.0)


async def test_one_that_somebody_else_has_by_now_is_not_run(bench: Bench) -> None:
    runs: list[int] = []
    gate, clock, watched = asyncio.Event(), a_clock(), Watched(bench.store)

    @bench.toolbox.tool
    async def gated(task: TaskContext) -> None:
        runs.append(task.attempt)
        await gate.wait()

    task = await bench.queue("gated")
    may_read = watched.hold_up("journal")
    claimed = asyncio.ensure_future(watched.asked("journal"))
    async with Engine(watched.as_store, bench.toolbox, settings=SELDOM, clock=clock), asyncio.timeout(10):
        await claimed
        # It takes so long that its lease is over for everybody else.
        later = FakeClock(clock.now() + timedelta(hours=2))
        async with Engine(bench.store, bench.toolbox, settings=SELDOM, clock=later) as other:
            await other.wait(task.id, until=lambda task: (task.phase, task.attempt_number) == (Phase.RUNNING, 2))
            read = asyncio.ensure_future(watched.done("journal"))
            may_read.set()
            await read
            gate.set()
            assert (await other.wait(task.id)).task.phase is Phase.COMPLETED
    assert runs == [2]
