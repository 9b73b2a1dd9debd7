"""The ttl that a caller requests is clamped to the limits."""

from dataclasses import replace
from datetime import timedelta

import pytest

from raincheck.core.policies import Limits, Retention
from raincheck.errors import ConfigurationError, TaskNotFound
from tests.support.engine.harness import QUICK, EngineHarness
from tests.support.engine.observed_store import make_clock

pytestmark = pytest.mark.anyio

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def within(ttl: timedelta) -> Limits:
    return replace(QUICK.limits, ttl=ttl)


@pytest.mark.parametrize(
    ("most", "asked", "got"),
    [
        (HOUR, MINUTE * 30, MINUTE * 30),
        (HOUR, HOUR, HOUR),
        (HOUR, HOUR * 2, HOUR),
        (HOUR, timedelta.max, HOUR),
        # Less than what the tool keeps its tasks for by itself changes nothing.
        (HOUR, MINUTE, MINUTE * 2),
        (HOUR, timedelta(0), MINUTE * 2),
        (HOUR, None, MINUTE * 2),
        (timedelta(0), HOUR, MINUTE * 2),
        (DAY * 3_650, timedelta.max, DAY * 3_650),
    ],
    ids=str,
)
async def test_a_requested_ttl_is_clamped_to_the_limit(
    harness: EngineHarness, most: timedelta, asked: timedelta | None, got: timedelta
) -> None:
    @harness.toolbox.tool(timeout=60, retention=Retention(keep=MINUTE))
    async def quick() -> None: ...

    async with harness.running(replace(QUICK, limits=within(most)), works=False) as engine:
        assert (await engine.submit("quick", ttl=asked)).ttl == got


async def test_the_retention_of_a_tool_is_not_clamped(harness: EngineHarness) -> None:
    @harness.toolbox.tool(timeout=60, retention=Retention(keep=MINUTE, ttl=DAY * 30))
    async def quick() -> None: ...

    async with harness.running(replace(QUICK, limits=within(HOUR)), works=False) as engine:
        assert (await engine.submit("quick")).ttl == DAY * 30


async def test_a_task_can_be_read_for_its_clamped_ttl_and_no_longer(
    harness: EngineHarness,
) -> None:
    clock = make_clock()

    @harness.toolbox.tool(timeout=60, retention=Retention(keep=MINUTE))
    async def quick() -> str:
        return "done"

    async with harness.running(replace(QUICK, limits=within(HOUR)), clock=clock) as engine:
        asked = await engine.submit("quick", ttl=DAY)
        not_asked = await engine.submit("quick")
        for task in (asked, not_asked):
            await engine.result(task.id)
        clock.jump_to(asked.created_at + HOUR - timedelta(seconds=1))
        assert await engine.result(asked.id) == "done"
        with pytest.raises(TaskNotFound):
            await engine.view(not_asked.id)
        clock.jump_to(asked.created_at + HOUR + timedelta(seconds=1))
        with pytest.raises(TaskNotFound):
            await engine.view(asked.id)


@pytest.mark.parametrize("ttl", [timedelta(seconds=-1), timedelta.max, 60, None, "1 day"], ids=str)
def test_a_ttl_limit_that_can_not_be_met_is_rejected(ttl: object) -> None:
    """It is rejected when it is set, and not at the first call that requests a longer ttl."""
    with pytest.raises(ConfigurationError):
        Limits(ttl=ttl)  # type: ignore[arg-type] # what an author might do
