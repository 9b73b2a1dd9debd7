"""An engine that is told to stop begins nothing directly any more, however long its last look takes."""

import asyncio

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from tests.support.engine.harness import Bench
from tests.support.engine.observed_store import Watched

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


@pytest.mark.looks_for_work
async def test_what_is_asked_for_while_the_last_look_for_work_goes_on_is_left_to_others(bench: Bench) -> None:
    """It would be cut off a moment later: a tool that must not run twice would have failed for nothing."""
    runs: list[str] = []

    @bench.toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    async def quick() -> str:
        runs.append("quick")
        return "done"

    watched = Watched(bench.store)
    bench.store = watched.as_store
    may_look = watched.hold_up("next_due")
    looking = asyncio.ensure_future(watched.asked("next_due"))
    async with bench.working() as engine:
        await asyncio.wait_for(looking, 20)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done(), "it waits for its worker"
        task = await engine.submit("quick")
        may_look.set()
        await asyncio.wait_for(stopping, 20)
    assert (task.phase, task.attempt, runs) == (Phase.QUEUED, None, [])
    watched.let_all_through()
    async with bench.working() as engine:
        assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
    assert await bench.events(task.id) == ["create", "claim", "complete"]
