"""A stopping engine starts no task directly, even while its last poll is in flight."""

import asyncio

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import OnInterrupt, RetryPolicy
from tests.support.engine.harness import EngineHarness
from tests.support.engine.observed_store import ObservedStore

pytestmark = pytest.mark.anyio


@pytest.mark.looks_for_work
async def test_a_task_submitted_during_the_last_poll_of_a_stopping_engine_is_left_queued(
    harness: EngineHarness,
) -> None:
    """It would be cut off a moment later: a tool that must not run twice would have failed for nothing."""
    runs: list[str] = []

    @harness.toolbox.tool(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL))
    async def quick() -> str:
        runs.append("quick")
        return "done"

    observed = ObservedStore(harness.store)
    harness.store = observed.as_store
    may_look = observed.block("next_due")
    looking = asyncio.ensure_future(observed.wait_called("next_due"))
    async with harness.running() as engine:
        await asyncio.wait_for(looking, 20)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done(), "it waits for its worker"
        task = await engine.submit("quick")
        may_look.set()
        await asyncio.wait_for(stopping, 20)
    assert (task.phase, task.attempt, runs) == (Phase.QUEUED, None, [])
    observed.unblock_all()
    async with harness.running() as engine:
        assert (await engine.wait(task.id)).task.phase is Phase.COMPLETED
    assert await harness.events(task.id) == ["create", "claim", "complete"]
