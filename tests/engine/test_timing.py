"""Event loops, and how long to wait before another try."""

import asyncio

import pytest

from raincheck.engine.timing import pause_after, runs_in

pytestmark = pytest.mark.anyio


def test_the_waits_for_a_store_that_is_away_grow_and_stay_bounded_however_long_that_takes() -> None:
    assert [pause_after(tries) for tries in range(1, 7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert pause_after(100_000) == 5.0


async def test_one_can_tell_whether_one_is_in_a_loop() -> None:
    loop = asyncio.get_running_loop()
    assert runs_in(loop)
    assert not await asyncio.to_thread(runs_in, loop)
