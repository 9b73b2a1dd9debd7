"""For how long a caller may ask to have a task kept."""

from dataclasses import replace
from datetime import timedelta

import pytest

from raincheck.core.limits import Limits
from raincheck.core.policies import Retention
from raincheck.errors import ConfigurationError, TaskNotFound
from tests.support.engine.harness import QUICK, Bench
from tests.support.engine.observed_store import a_clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

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
async def test_a_caller_gets_what_it_asks_for_up_to_what_may_be_asked_for(
    bench: Bench, most: timedelta, asked: timedelta | None, got: timedelta
) -> None:
    @bench.toolbox.tool(timeout=60, retention=Retention(keep=MINUTE))
    async def quick() -> None: ...

    async with bench.working(replace(QUICK, limits=within(most)), works=False) as engine:
        assert (await engine.submit("quick", ttl=asked)).ttl == got


async def test_what_a_tool_promises_by_itself_is_not_bounded_by_it(bench: Bench) -> None:
    @bench.toolbox.tool(timeout=60, retention=Retention(keep=MINUTE, ttl=DAY * 30))
    async def quick() -> None: ...

    async with bench.working(replace(QUICK, limits=within(HOUR)), works=False) as engine:
        assert (await engine.submit("quick")).ttl == DAY * 30


async def test_a_task_can_be_read_for_as_long_as_it_was_asked_for_within_bounds_and_no_longer(bench: Bench) -> None:
    clock = a_clock()

    @bench.toolbox.tool(timeout=60, retention=Retention(keep=MINUTE))
    async def quick() -> str:
        return "done"

    async with bench.working(replace(QUICK, limits=within(HOUR)), clock=clock) as engine:
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
def test_a_bound_that_can_not_be_kept_is_refused_where_it_is_set(ttl: object) -> None:
    """Not at the first call of somebody who asks for more."""
    with pytest.raises(ConfigurationError):
        Limits(ttl=ttl)  # type: ignore[arg-type] # what an author might do
